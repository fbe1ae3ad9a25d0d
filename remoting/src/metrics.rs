//! Figures about connections and frames.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Figures of one end. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RemotingMetrics {
    pub(crate) connections: Gauge,
    pub(crate) connections_refused: Counter,
    pub(crate) requests_in_flight: Gauge,
    pub(crate) requests: Counter,
    pub(crate) requests_refused: Counter,
    pub(crate) bad_frames: Counter,
    pub(crate) bytes_read: Counter,
    pub(crate) bytes_written: Counter,
}

impl RemotingMetrics {
    /// Adds the figures to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("rocketmq_remoting");
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register(
            "connections_refused",
            "Connections closed at once since there were too many",
            self.connections_refused.clone(),
        );
        registry.register(
            "requests_in_flight",
            "Requests that are worked on or held",
            self.requests_in_flight.clone(),
        );
        registry.register("requests", "Requests read", self.requests.clone());
        registry.register(
            "requests_refused",
            "Requests refused since their connection had too many in flight",
            self.requests_refused.clone(),
        );
        registry.register(
            "bad_frames",
            "Connections closed since a frame could not be read",
            self.bad_frames.clone(),
        );
        registry.register("read_bytes", "Bytes read", self.bytes_read.clone());
        registry.register("written_bytes", "Bytes written", self.bytes_written.clone());
    }
}
