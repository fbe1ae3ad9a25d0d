//! What the operator measures of itself.

use crate::roll::Reason;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

/// Upper bounds of the reconcile time buckets, in seconds.
const SECONDS: [f64; 9] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Restart {
    reason: &'static str,
}

/// The operator's metrics; clones share their values.
#[derive(Clone)]
pub struct Metrics {
    reconciles: Family<Outcome, Counter>,
    seconds: Family<Kind, Histogram, fn() -> Histogram>,
    restarts: Family<Restart, Counter>,
    status_writes: Family<Kind, Counter>,
    leader: Gauge,
}

impl Metrics {
    /// Registers all of them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            reconciles: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            restarts: Family::default(),
            status_writes: Family::default(),
            leader: Gauge::default(),
        };
        let registry = registry.sub_registry_with_prefix("rocketmq_operator");
        registry.register(
            "reconciles",
            "Reconciles by kind of resource and outcome",
            metrics.reconciles.clone(),
        );
        registry.register(
            "reconcile_seconds",
            "Time that reconciles take",
            metrics.seconds.clone(),
        );
        registry.register(
            "pod_restarts",
            "Pods that the operator restarted, by reason",
            metrics.restarts.clone(),
        );
        registry.register(
            "status_writes",
            "Writes of the status of resources",
            metrics.status_writes.clone(),
        );
        registry.register(
            "leader",
            "1 when this replica holds the Lease and reconciles",
            metrics.leader.clone(),
        );
        metrics
    }

    /// A reconcile of `kind` ended: `ok`, or the kind of its error.
    pub fn reconciled(&self, kind: &'static str, outcome: &'static str, took: Duration) {
        self.reconciles.get_or_create(&Outcome { kind, outcome }).inc();
        self.seconds.get_or_create(&Kind { kind }).observe(took.as_secs_f64());
    }

    /// A pod is restarted.
    pub fn restarted(&self, reason: Reason) {
        self.restarts.get_or_create(&Restart { reason: reason.as_str() }).inc();
    }

    /// A status was written.
    pub fn wrote_status(&self, kind: &'static str) {
        self.status_writes.get_or_create(&Kind { kind }).inc();
    }

    /// Whether this replica leads.
    pub fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }
}
