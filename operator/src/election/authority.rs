//! Whom the endpoint believes what.
//!
//! On Kubernetes a broker shows the token of its pod's service account, which the API server says
//! whose it is ([`PodTokens`]); nobody else may speak for a replica, and people change masters with
//! `kubectl`, where Kubernetes knows who they are.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use protocol::command::RemotingCommand;
use protocol::header::controller::TOKEN_FIELD;
use replication::ReplicaId;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, timeout};

/// For whom the token is made.
pub const AUDIENCE: &str = "rocketmq-operator";
/// The API server is asked about a token again after this time.
const REVIEW_AGAIN: Duration = Duration::from_secs(60);
/// The API server has this long to answer.
const REVIEW_LIMIT: Duration = Duration::from_secs(1);
/// Tokens that are remembered; beyond that all are forgotten.
const TOKENS_MAX: usize = 10_000;
/// What the API server says of the pod to which a token belongs.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// A group: BrokerNames are the same in several namespaces. Empty where there are none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId {
    /// Its namespace.
    pub namespace: String,
    /// Its BrokerName.
    pub name: String,
}

impl GroupId {
    /// A group of a local cluster.
    pub fn local(name: impl Into<String>) -> Self {
        Self { namespace: String::new(), name: name.into() }
    }
}

/// Why a request is not carried out.
#[derive(Debug, thiserror::Error)]
pub(super) enum Denied {
    /// Without a token nobody is a replica.
    #[error("the request has no token: set controllerTokenFile")]
    NoToken,
    /// The API server does not know it.
    #[error("the token is not valid: {0}")]
    Invalid(String),
    /// It belongs to another.
    #[error("the token belongs to pod {pod}, which does not speak for replica {id} of {group}")]
    Other { pod: String, group: String, id: ReplicaId },
    /// The API server cannot be asked.
    #[error("the token cannot be looked at: {0}")]
    NoAnswer(String),
    /// Here this is done in another way.
    #[error(
        "on Kubernetes masters are changed with kubectl: kubectl annotate rmqbg GROUP \
         rocketmq.rs/promote=NUMBER"
    )]
    Kubectl,
}

/// See the module.
#[derive(Clone)]
pub enum Authority {
    /// Everybody who reaches the port, as on one machine.
    Everybody,
    /// Pods, by the tokens that they show.
    Pods(Arc<PodTokens>),
}

impl Authority {
    /// The group for whose replica `id` a request may speak.
    pub(super) async fn replica(
        &self,
        request: &RemotingCommand,
        name: &str,
        id: ReplicaId,
    ) -> Result<GroupId, Denied> {
        let Self::Pods(tokens) = self else { return Ok(GroupId::local(name)) };
        let token = request.ext_fields.get(TOKEN_FIELD).ok_or(Denied::NoToken)?;
        let PodIdentity { namespace, pod } = tokens.identity(token).await?;
        if pod != format!("{name}-{}", id - 1) {
            return Err(Denied::Other { pod, group: name.to_owned(), id });
        }
        Ok(GroupId { namespace, name: name.to_owned() })
    }

    /// Whether a person may change something by way of the port.
    pub(super) fn person(&self) -> Result<(), Denied> {
        match self {
            Self::Everybody => Ok(()),
            Self::Pods(_) => Err(Denied::Kubectl),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PodIdentity {
    namespace: String,
    pod: String,
}

/// Says whose tokens are.
pub struct PodTokens {
    api: Api<TokenReview>,
    /// By hash, so that no token lies around.
    known: Mutex<HashMap<[u8; 32], (PodIdentity, Instant)>>,
}

impl PodTokens {
    /// Asks this API server.
    pub fn new(client: Client) -> Self {
        Self { api: Api::all(client), known: Mutex::default() }
    }

    async fn identity(&self, token: &str) -> Result<PodIdentity, Denied> {
        let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let known = self.known.lock().get(&hash).cloned();
        if let Some((identity, at)) = &known
            && at.elapsed() < REVIEW_AGAIN
        {
            return Ok(identity.clone());
        }
        let review = TokenReview {
            spec: TokenReviewSpec {
                audiences: Some(vec![AUDIENCE.to_owned()]),
                token: Some(token.to_owned()),
            },
            ..TokenReview::default()
        };
        let identity = match (self.review(&review).await, known) {
            (Ok(answer), _) => identity(&answer)?,
            // A broker must not look dead because the API server does.
            (Err(Denied::NoAnswer(_)), Some((identity, _))) => identity,
            (Err(denied), _) => return Err(denied),
        };
        let mut known = self.known.lock();
        if known.len() >= TOKENS_MAX {
            known.clear();
        }
        known.insert(hash, (identity.clone(), Instant::now()));
        Ok(identity)
    }

    async fn review(&self, review: &TokenReview) -> Result<TokenReview, Denied> {
        let params = PostParams::default();
        match timeout(REVIEW_LIMIT, self.api.create(&params, review)).await {
            Ok(answer) => answer.map_err(|error| Denied::NoAnswer(error.to_string())),
            Err(_) => Err(Denied::NoAnswer(format!("no answer within {REVIEW_LIMIT:?}"))),
        }
    }
}

fn identity(review: &TokenReview) -> Result<PodIdentity, Denied> {
    let invalid = |why: &str| Denied::Invalid(why.to_owned());
    let status = review.status.as_ref().ok_or_else(|| invalid("no answer"))?;
    if status.authenticated != Some(true) {
        return Err(invalid(status.error.as_deref().unwrap_or("it is not known")));
    }
    if !status.audiences.iter().flatten().any(|audience| audience == AUDIENCE) {
        return Err(invalid("it is for another audience"));
    }
    let user = status.user.as_ref().ok_or_else(|| invalid("it is nobody's"))?;
    let account = user.username.as_deref().and_then(|name| name.strip_prefix(SERVICE_ACCOUNT));
    let namespace = account.and_then(|account| account.split(':').next());
    let pods = user.extra.as_ref().and_then(|extra| extra.get(POD_NAME));
    match (namespace, pods.and_then(|pods| pods.first())) {
        (Some(namespace), Some(pod)) => {
            Ok(PodIdentity { namespace: namespace.to_owned(), pod: pod.clone() })
        }
        _ => Err(invalid("it is not bound to a pod")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::MockApi;

    fn review(status: &serde_json::Value) -> Result<PodIdentity, String> {
        let review = serde_json::json!({"spec": {}, "status": status});
        identity(&serde_json::from_value(review).expect("a review")).map_err(|e| e.to_string())
    }

    #[tokio::test]
    async fn a_known_pod_stays_known_while_the_api_server_is_away() {
        let path = || "/apis/authentication.k8s.io/v1/tokenreviews".to_owned();
        let (client, api) = MockApi::new();
        let user = serde_json::json!({
            "username": "system:serviceaccount:mq:orders-rocketmq",
            "extra": {POD_NAME: ["orders-0-1"]},
        });
        let status =
            serde_json::json!({"authenticated": true, "audiences": [AUDIENCE], "user": user});
        let review = serde_json::json!({"spec": {}, "metadata": {}, "status": status});
        let played = api.play(vec![
            ("POST", path(), 201, review),
            ("POST", path(), 500, serde_json::Value::Null),
            ("POST", path(), 500, serde_json::Value::Null),
        ]);
        let tokens = PodTokens::new(client);
        let first = tokens.identity("token").await.expect("the API server knows it");
        assert_eq!(tokens.identity("token").await.expect("it is not asked again"), first);
        for (_, at) in tokens.known.lock().values_mut() {
            *at = at.checked_sub(REVIEW_AGAIN).expect("this machine runs longer than that");
        }
        assert_eq!(tokens.identity("token").await.expect("it was known"), first);
        let error = tokens.identity("another").await.expect_err("it was never known");
        assert!(matches!(error, Denied::NoAnswer(_)), "{error}");
        played.await.expect("the exchanges");
    }

    #[test]
    fn a_token_is_its_pods_for_this_audience_only() {
        let good = serde_json::json!({
            "authenticated": true,
            "audiences": ["rocketmq-operator"],
            "user": {
                "username": "system:serviceaccount:mq:orders-rocketmq",
                "extra": {"authentication.kubernetes.io/pod-name": ["orders-0-1"]},
            },
        });
        let identity = review(&good).expect("good");
        assert_eq!((identity.namespace.as_str(), identity.pod.as_str()), ("mq", "orders-0-1"));
        for (pointer, value, says) in [
            ("/authenticated", serde_json::json!(false), "it is not known"),
            ("/audiences", serde_json::json!(["other"]), "another audience"),
            ("/user/extra", serde_json::json!({}), "not bound to a pod"),
            ("/user/username", serde_json::json!("jane"), "not bound to a pod"),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).expect("there") = value;
            let error = review(&bad).expect_err(pointer);
            assert!(error.contains(says), "{error}");
        }
    }
}
