//! Which replica of the operator reconciles: the holder of a Lease.
//!
//! A standby takes the Lease over when it has seen it unchanged for the whole lease duration by
//! its own clock; what time others write into it is for people only. Every write names the
//! resourceVersion that was read, so of two that try at once one fails. Holding the Lease keeps two
//! replicas from doing the same work twice; correctness does not rest on it, since every write of
//! a reconcile is idempotent or names the version or uid that it is about.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// Seconds written when the Lease is given up: nobody has to wait for it.
const RELEASED_SECONDS: i32 = 1;

/// Whose Lease, and for how long.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// This replica.
    pub identity: String,
    /// How long a standby waits after the last change that it saw.
    pub duration: Duration,
}

impl Settings {
    /// The holder that could not renew for so long stops reconciling, well before others begin.
    fn renew_deadline(&self) -> Duration {
        self.duration.mul_f64(2.0 / 3.0)
    }

    /// How often the Lease is renewed, or looked at; also the limit of a single request.
    fn period(&self) -> Duration {
        self.duration.mul_f64(2.0 / 15.0)
    }
}

/// What a look at the Lease leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It is free, forgotten or ours: write our name.
    Write,
    /// Somebody holds it.
    Wait,
}

/// A candidate for the Lease.
pub struct Candidate {
    api: Api<Lease>,
    settings: Settings,
    /// The record that was last seen, and when it was first seen so.
    seen: Option<(LeaseSpec, Instant)>,
    contact: Arc<watch::Sender<Instant>>,
}

impl Candidate {
    /// A candidate that has not looked yet.
    pub fn new(client: Client, settings: Settings) -> Self {
        let api = Api::namespaced(client, &settings.namespace);
        let contact = Arc::new(watch::Sender::new(Instant::now()));
        Self { api, settings, seen: None, contact }
    }

    /// When the API server last answered about the Lease.
    pub fn contact(&self) -> watch::Receiver<Instant> {
        self.contact.subscribe()
    }

    /// Returns when this replica holds the Lease.
    pub async fn acquire(&mut self) {
        let mut said = None;
        while !self.look_and_write().await {
            let holder = self.holder();
            if said.as_ref() != Some(&holder) {
                tracing::info!(holder, "standing by");
                said = Some(holder);
            }
            sleep(self.settings.period()).await;
        }
        tracing::info!(identity = self.settings.identity, "leading");
    }

    /// Renews the Lease; returns when it is lost.
    pub async fn hold(&mut self) {
        let mut renewed = Instant::now();
        while renewed.elapsed() < self.settings.renew_deadline() {
            sleep(self.settings.period()).await;
            if self.look_and_write().await {
                renewed = Instant::now();
            } else if self.holder() != self.settings.identity {
                break;
            }
        }
        tracing::warn!(holder = self.holder(), "the Lease is lost");
    }

    /// Gives the Lease up, so that a standby need not wait for it.
    pub async fn release(&mut self) {
        let released = timeout(self.settings.period(), async {
            let Some(mut lease) = self.api.get_opt(&self.settings.name).await? else {
                return Ok(());
            };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(&self.settings.identity) {
                return Ok(());
            }
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(RELEASED_SECONDS);
            spec.renew_time = Some(MicroTime(Timestamp::now()));
            self.api.replace(&self.settings.name, &PostParams::default(), &lease).await.map(|_| ())
        });
        match released.await {
            Ok(Ok(())) => tracing::info!("the Lease is released"),
            Ok(Err(error)) => tracing::warn!(%error, "the Lease could not be released"),
            Err(_) => tracing::warn!("the Lease could not be released in time"),
        }
    }

    fn holder(&self) -> String {
        let spec = self.seen.as_ref().map(|(spec, _)| spec);
        spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default()
    }

    /// One round: whether this replica holds the Lease after it.
    async fn look_and_write(&mut self) -> bool {
        match timeout(self.settings.period(), self.try_once()).await {
            Ok(Ok(held)) => {
                self.contact.send_replace(Instant::now());
                held
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => false,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the Lease cannot be read or written");
                false
            }
            Err(_) => {
                tracing::warn!("the API server did not answer about the Lease in time");
                false
            }
        }
    }

    async fn try_once(&mut self) -> Result<bool, kube::Error> {
        let lease = self.api.get_opt(&self.settings.name).await?;
        let spec = lease.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        if self.see(spec, Instant::now()) == Step::Wait {
            return Ok(false);
        }
        let written = match lease {
            Some(mut lease) => {
                lease.spec = Some(self.record());
                self.api.replace(&self.settings.name, &PostParams::default(), &lease).await?
            }
            None => {
                let metadata =
                    ObjectMeta { name: Some(self.settings.name.clone()), ..Default::default() };
                let lease = Lease { metadata, spec: Some(self.record()) };
                self.api.create(&PostParams::default(), &lease).await?
            }
        };
        self.seen = Some((written.spec.unwrap_or_default(), Instant::now()));
        Ok(true)
    }

    /// What to do about a record that is seen at `now`.
    fn see(&mut self, spec: LeaseSpec, now: Instant) -> Step {
        let since = match &self.seen {
            Some((seen, since)) if *seen == spec => *since,
            _ => now,
        };
        let holder = spec.holder_identity.clone().unwrap_or_default();
        // The holder says how long it may be silent; it may have been started with another value.
        let seconds = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok());
        let duration = seconds.map_or(self.settings.duration, Duration::from_secs);
        self.seen = Some((spec, since));
        let forgotten = now.duration_since(since) >= duration;
        if holder.is_empty() || holder == self.settings.identity || forgotten {
            Step::Write
        } else {
            Step::Wait
        }
    }

    /// The record of this replica as holder.
    fn record(&self) -> LeaseSpec {
        let old = self.seen.as_ref().map(|(spec, _)| spec.clone()).unwrap_or_default();
        let ours = old.holder_identity.as_deref() == Some(&self.settings.identity);
        let now = MicroTime(Timestamp::now());
        let seconds = i32::try_from(self.settings.duration.as_secs()).unwrap_or(i32::MAX);
        LeaseSpec {
            holder_identity: Some(self.settings.identity.clone()),
            lease_duration_seconds: Some(seconds),
            acquire_time: if ours { old.acquire_time } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_transitions: match (ours, old.lease_transitions) {
                (true, transitions) => transitions,
                (false, Some(transitions)) => Some(transitions.saturating_add(1)),
                (false, None) => Some(0),
            },
            ..LeaseSpec::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::MockApi;
    use serde_json::json;

    fn candidate(client: Client, identity: &str) -> Candidate {
        let settings = Settings {
            namespace: "system".to_owned(),
            name: "rocketmq-operator".to_owned(),
            identity: identity.to_owned(),
            duration: Duration::from_secs(15),
        };
        Candidate::new(client, settings)
    }

    fn record(holder: &str, renewed: i64, seconds: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: (!holder.is_empty()).then(|| holder.to_owned()),
            renew_time: Some(MicroTime(Timestamp::from_second(renewed).unwrap())),
            lease_duration_seconds: Some(seconds),
            ..LeaseSpec::default()
        }
    }

    #[tokio::test]
    async fn a_lease_is_taken_when_it_was_silent_by_our_own_clock() {
        let (client, _api) = MockApi::new();
        let mut us = candidate(client, "a");
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        // What the other wrote as its time does not matter, only that it does not change.
        for (second, spec, expected) in [
            (0, record("b", 1, 15), Step::Wait),
            (14, record("b", 1, 15), Step::Wait),
            (14, record("b", 2, 15), Step::Wait),
            (28, record("b", 2, 15), Step::Wait),
            (29, record("b", 2, 15), Step::Write),
            (30, record("b", 3, 15), Step::Wait),
            (31, record("", 4, 1), Step::Write),
            (32, record("a", 5, 15), Step::Write),
            (33, record("b", 6, 30), Step::Wait),
            (62, record("b", 6, 30), Step::Wait),
            (63, record("b", 6, 30), Step::Write),
        ] {
            assert_eq!(us.see(spec, at(second)), expected, "second {second}");
        }
    }

    #[tokio::test]
    async fn the_first_makes_the_lease_and_the_loser_of_a_race_waits() {
        let (client, api) = MockApi::new();
        let mut us = candidate(client, "a");
        let path = "/apis/coordination.k8s.io/v1/namespaces/system/leases";
        let scenario = api.play(vec![
            ("GET", format!("{path}/rocketmq-operator"), 404, json!({})),
            ("POST", path.to_owned(), 409, json!({})),
            ("GET", format!("{path}/rocketmq-operator"), 404, json!({})),
            ("POST", path.to_owned(), 201, json!({"spec": {"holderIdentity": "a"}})),
        ]);
        assert!(!us.look_and_write().await);
        assert!(us.look_and_write().await);
        assert_eq!(us.holder(), "a");
        let requests = scenario.await.unwrap();
        assert_eq!(requests[3]["spec"]["holderIdentity"], "a");
        assert_eq!(requests[3]["spec"]["leaseTransitions"], 0);
    }

    #[tokio::test]
    async fn a_released_lease_has_no_holder() {
        let (client, api) = MockApi::new();
        let mut us = candidate(client, "a");
        let path = "/apis/coordination.k8s.io/v1/namespaces/system/leases/rocketmq-operator";
        let lease = json!({
            "metadata": {"name": "rocketmq-operator", "resourceVersion": "7"},
            "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15},
        });
        let scenario = api.play(vec![
            ("GET", path.to_owned(), 200, lease),
            ("PUT", path.to_owned(), 200, json!({})),
        ]);
        us.release().await;
        let requests = scenario.await.unwrap();
        assert_eq!(requests[1]["metadata"]["resourceVersion"], "7");
        assert_eq!(requests[1]["spec"].get("holderIdentity"), None);
        assert_eq!(requests[1]["spec"]["leaseDurationSeconds"], 1);
    }
}
