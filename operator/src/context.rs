//! What every reconcile is given. Nothing of it is about one cluster: what the operator knows of a
//! cluster is in the API server, so a restart of the operator forgets nothing.

use crate::election::Group;
use crate::event::{Events, Reason};
use crate::group_elections::GroupElections;
use crate::metrics::Metrics;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::error_boundary::InvalidObject;
use kube::{Client, Resource};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// First pause after an error; each further one in a row doubles it.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// Longest pause after an error.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Resources whose errors are counted; more than that in error at once share the longest pause.
const COUNTED_MAX: usize = 10_000;

/// Images of clusters that name none.
#[derive(Clone, Debug)]
pub struct Images {
    /// Image of name servers.
    pub namesrv: String,
    /// Image of brokers.
    pub broker: String,
}

/// What every reconcile is given.
pub struct Context {
    /// The API server.
    pub client: Client,
    /// Images of clusters that name none.
    pub images: Images,
    /// How long a pod must have been ready before the next one of its cluster is restarted.
    pub settle: Duration,
    /// Where brokers find this operator: `host:port`.
    pub controller_address: String,
    /// Elections of groups; none in tests of reconciles.
    pub elections: Option<Arc<GroupElections>>,
    /// Writes Events.
    pub events: Events,
    /// Measures.
    pub metrics: Metrics,
    /// Errors in a row of each resource.
    failures: Mutex<HashMap<(&'static str, String), u32>>,
}

impl Context {
    /// A context without any failures yet.
    pub fn new(
        client: Client,
        images: Images,
        settle: Duration,
        events: Events,
        metrics: Metrics,
    ) -> Self {
        Self {
            client,
            images,
            settle,
            controller_address: String::new(),
            elections: None,
            events,
            metrics,
            failures: Mutex::default(),
        }
    }

    /// This replica of the operator leads, or no more.
    pub fn leads(&self, leads: bool) {
        self.metrics.leads(leads);
        if let Some(elections) = &self.elections {
            elections.lead(leads);
        }
    }

    /// The group of a BrokerGroup whose master is elected.
    pub fn group(&self, namespace: &str, name: &str) -> Option<Group> {
        self.elections.as_ref()?.group(namespace, name)
    }

    /// Tells people about a resource that is not of the form that its kind has.
    pub async fn unreadable<K: Resource<DynamicType = ()>>(&self, invalid: &InvalidObject) {
        let InvalidObject { metadata, error } = invalid;
        let reference = ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            name: metadata.name.clone(),
            namespace: metadata.namespace.clone(),
            uid: metadata.uid.clone(),
            ..ObjectReference::default()
        };
        tracing::warn!(kind = %K::kind(&()), name = metadata.name, error, "cannot be read");
        self.events.publish_about(reference, Reason::Unreadable, error).await;
    }

    /// A reconcile of the resource went well.
    pub fn succeeded(&self, kind: &'static str, resource: &str) {
        self.failures.lock().remove(&(kind, resource.to_owned()));
    }

    /// Whether the last reconcile of the resource went well too.
    pub fn is_first_failure(&self, kind: &'static str, resource: &str) -> bool {
        !self.failures.lock().contains_key(&(kind, resource.to_owned()))
    }

    /// A reconcile of the resource failed: how long to wait before the next.
    pub fn failed(&self, kind: &'static str, resource: &str) -> Duration {
        let mut failures = self.failures.lock();
        let key = (kind, resource.to_owned());
        if failures.len() >= COUNTED_MAX && !failures.contains_key(&key) {
            return BACKOFF_MAX;
        }
        let count = failures.entry(key).or_default();
        let pause = backoff(*count, resource);
        *count = count.saturating_add(1);
        pause
    }
}

/// Doubles up to the maximum; up to a fifth is added by name, so that resources that failed
/// together do not come back together.
fn backoff(failures: u32, resource: &str) -> Duration {
    let doubled = BACKOFF_MIN.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX));
    let base = doubled.min(BACKOFF_MAX);
    let spread = resource.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte));
    base + base.mul_f64(f64::from(spread % 100) / 500.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_bounded() {
        for (failures, low, high) in
            [(0, 1.0, 1.2), (1, 2.0, 2.4), (5, 32.0, 38.4), (6, 60.0, 72.0), (99, 60.0, 72.0)]
        {
            let pause = backoff(failures, "mq/orders").as_secs_f64();
            assert!((low..=high).contains(&pause), "{failures}: {pause}");
        }
        assert_ne!(backoff(6, "mq/orders"), backoff(6, "mq/events"));
    }
}
