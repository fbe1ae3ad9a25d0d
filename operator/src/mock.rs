//! An API server for tests: it expects named requests in order and answers each as told. A request
//! that is not expected fails the test, and so does one that does not come.

use crate::context::{Context, Images};
use crate::event::Events;
use crate::metrics::Metrics;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinHandle;
use tower_test::mock::Handle;

/// Method, path (and start of the query), status code and body of the answer. A write that is
/// answered with null gets what it wrote.
pub(crate) type Exchange = (&'static str, String, u16, Value);

/// The server's end.
pub(crate) struct MockApi(Handle<Request<Body>, Response<Body>>);

impl MockApi {
    /// A client and the server that it speaks to.
    pub(crate) fn new() -> (Client, Self) {
        let (service, handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        (Client::new(service, "default"), Self(handle))
    }

    /// Plays the exchanges; the result has the bodies of the requests.
    pub(crate) fn play(mut self, exchanges: Vec<Exchange>) -> JoinHandle<Vec<Value>> {
        tokio::spawn(async move {
            let mut bodies = Vec::new();
            for (method, path, code, answer) in exchanges {
                let next = tokio::time::timeout(Duration::from_secs(5), self.0.next_request());
                let (request, send) = next
                    .await
                    .unwrap_or_else(|_| panic!("{method} {path} did not come"))
                    .expect("the client is there");
                let uri = request.uri().to_string();
                assert_eq!(request.method(), method, "{uri}");
                assert!(uri.starts_with(&path), "{uri} instead of {path}");
                let body = request.into_body().collect_bytes().await.expect("a body");
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                let answer = match (code, answer) {
                    (400.., _) => status(code),
                    (_, Value::Null) => body.clone(),
                    (_, answer) => answer,
                };
                bodies.push(body);
                let response = Response::builder().status(code);
                let response = response.body(Body::from(answer.to_string().into_bytes()));
                send.send_response(response.expect("a response"));
            }
            let more = tokio::time::timeout(Duration::from_millis(50), self.0.next_request());
            if let Ok(Some((request, _))) = more.await {
                panic!("{} {} was not expected", request.method(), request.uri());
            }
            bodies
        })
    }
}

/// What reconciles are given.
pub(crate) fn context(client: Client) -> Context {
    Context::new(
        client.clone(),
        Images { namesrv: "namesrv:1".to_owned(), broker: "broker:1".to_owned() },
        Duration::from_secs(35),
        Events::new(client, "test".to_owned()),
        Metrics::register(&mut Registry::default()),
    )
}

/// The answer to a list.
pub(crate) fn list(items: &[&Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})
}

fn status(code: u16) -> Value {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        403 => "Forbidden",
        _ => "Invalid",
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("the test says {reason}"), "reason": reason, "code": code,
    })
}
