//! What surrounds every reconcile: a time limit, a guard against panics, measures, pauses.

use crate::context::Context;
use crate::error::Error;
use crate::event::Reason;
use futures::FutureExt as _;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use tokio::time::Instant;

/// A reconcile that takes longer is given up and tried again.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);
/// How often a resource is looked at when nothing happens to it. Looking writes nothing.
pub const RESYNC: Duration = Duration::from_secs(300);
/// How often a resource is looked at that is on its way.
pub const LOOK_AGAIN: Duration = Duration::from_secs(15);
/// Pause after a write that met somebody else's.
const CONFLICT_PAUSE: Duration = Duration::from_millis(200);

/// Runs a reconcile of `resource`. A panic in it becomes an error of this resource: kube's runtime
/// would end the whole controller, for every cluster.
pub async fn guard<K>(
    context: &Context,
    kind: &'static str,
    resource: &K,
    work: impl Future<Output = Result<Action, Error>>,
) -> Result<Action, Error>
where
    K: Resource<DynamicType = ()>,
{
    let begin = Instant::now();
    let bounded = tokio::time::timeout(TIME_LIMIT, AssertUnwindSafe(work).catch_unwind());
    let result = match bounded.await {
        Err(_) => Err(Error::Slow(TIME_LIMIT)),
        Ok(Err(panic)) => Err(Error::Panicked(words(panic.as_ref()))),
        Ok(Ok(result)) => result,
    };
    let outcome = result.as_ref().map_or_else(Error::kind, |_| "ok");
    context.metrics.reconciled(kind, outcome, begin.elapsed());
    match &result {
        Ok(_) => context.succeeded(kind, &path(resource)),
        Err(error @ Error::Panicked(_)) if context.is_first_failure(kind, &path(resource)) => {
            context.events.publish(resource, Reason::Degraded, &error.sentence()).await;
        }
        Err(_) => {}
    }
    result
}

/// How long to wait after an error.
pub fn pause<K: Resource>(
    context: &Context,
    kind: &'static str,
    resource: &K,
    e: &Error,
) -> Action {
    let path = path(resource);
    if e.is_conflict() {
        tracing::debug!(kind, resource = path, error = %e, "will be tried again at once");
        return Action::requeue(CONFLICT_PAUSE);
    }
    let pause = context.failed(kind, &path);
    tracing::warn!(kind, resource = path, error = %e, pause_ms = pause.as_millis(), "failed");
    Action::requeue(pause)
}

/// `namespace/name`.
pub fn path(resource: &impl ResourceExt) -> String {
    format!("{}/{}", resource.namespace().unwrap_or_default(), resource.name_any())
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::{self, MockApi};
    use crds::RocketMQCluster;
    use serde_json::{Value, json};

    fn cluster() -> RocketMQCluster {
        serde_json::from_value(json!({
            "apiVersion": "rocketmq.rs/v1alpha1", "kind": "RocketMQCluster",
            "metadata": {"name": "o", "namespace": "mq", "uid": "u"},
            "spec": {"brokers": {"groups": 1, "storage": {"size": "1Gi"}}},
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn a_panic_is_an_error_of_one_resource() {
        let (client, api) = MockApi::new();
        let path = "/apis/events.k8s.io/v1/namespaces/mq/events".to_owned();
        let scenario = api.play(vec![("POST", path, 201, Value::Null)]);
        let context = mock::context(client);
        let work = async { panic!("there is no such thing") };
        let result = guard(&context, "RocketMQCluster", &cluster(), work).await;
        assert_eq!(result.unwrap_err().kind(), "panic");
        let event = &scenario.await.unwrap()[0];
        assert_eq!(event["type"], "Warning");
        assert!(event["note"].as_str().unwrap().contains("there is no such thing"), "{event}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_that_hangs_is_given_up() {
        let (client, _api) = MockApi::new();
        let work = std::future::pending();
        let result = guard(&mock::context(client), "RocketMQCluster", &cluster(), work).await;
        assert_eq!(result.unwrap_err().kind(), "slow");
    }

    #[tokio::test]
    async fn pauses() {
        let (client, _api) = MockApi::new();
        let context = mock::context(client);
        let api = |code: u16| {
            let status = serde_json::from_value(json!({"message": "m", "code": code})).unwrap();
            Error::api("apply", "Service o")(kube::Error::Api(Box::new(status)))
        };
        let pause_after = |error: &Error| pause(&context, "RocketMQCluster", &cluster(), error);
        assert_eq!(pause_after(&api(409)), Action::requeue(CONFLICT_PAUSE));
        let (first, second) = (pause_after(&api(500)), pause_after(&api(500)));
        assert_ne!(first, second);
        context.succeeded("RocketMQCluster", "mq/o");
        assert_eq!(pause_after(&api(500)), first);
        assert_eq!(api(422).sentence(), "Cannot apply Service o: m");
        assert!(api(422).is_refusal() && !api(500).is_refusal());
    }
}
