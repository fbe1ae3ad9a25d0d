//! Figures of a name server.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Figures of a name server. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) topics: Gauge,
    pub(crate) broker_names: Gauge,
    pub(crate) brokers: Gauge,
    pub(crate) registrations: Counter,
    pub(crate) registrations_refused: Counter,
    pub(crate) brokers_expired: Counter,
    pub(crate) route_queries: Counter,
    pub(crate) route_misses: Counter,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("rocketmq_namesrv");
        registry.register("topics", "Topics with a route", self.topics.clone());
        registry.register("broker_names", "Broker names", self.broker_names.clone());
        registry.register("brokers", "Registered broker processes", self.brokers.clone());
        registry.register("registrations", "Registrations taken", self.registrations.clone());
        registry.register(
            "registrations_refused",
            "Registrations refused",
            self.registrations_refused.clone(),
        );
        registry.register(
            "brokers_expired",
            "Brokers taken out since they were silent or their connection broke",
            self.brokers_expired.clone(),
        );
        registry.register("route_queries", "Route queries", self.route_queries.clone());
        registry.register(
            "route_misses",
            "Route queries for topics without a route",
            self.route_misses.clone(),
        );
    }

    pub(crate) fn sizes(&self, (topics, broker_names, brokers): (usize, usize, usize)) {
        let gauge = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        self.topics.set(gauge(topics));
        self.broker_names.set(gauge(broker_names));
        self.brokers.set(gauge(brokers));
    }
}
