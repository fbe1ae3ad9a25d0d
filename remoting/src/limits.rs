//! Limits of connections.

use std::time::Duration;

/// What a connection, and a server as a whole, may use at most.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest frame that is read, its length field included.
    pub frame_bytes_max: usize,
    /// Connections of a server; more are closed at once.
    pub connections_max: usize,
    /// Requests of one connection that are being worked on or held; more are answered with
    /// `SYSTEM_BUSY`.
    pub requests_in_flight_max: usize,
    /// Bytes of all requests that a server works on; beyond them it stops reading.
    pub request_bytes_in_flight_max: usize,
    /// Frames that wait to be written to one peer. Answers wait for room, what we send unasked is
    /// refused.
    pub outbound_frames_max: usize,
    /// Requests of ours that wait for an answer of one peer.
    pub pending_requests_max: usize,
    /// A connection on which nothing was read or written for this long is closed.
    pub idle: Duration,
    /// A peer that takes no byte for this long while we have some for it is cut off.
    pub write_stall: Duration,
    /// How long a client waits for a connection.
    pub connect_timeout: Duration,
    /// How long a stopping server lets requests finish.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: protocol::frame::DEFAULT_MAX_FRAME_BYTES,
            connections_max: 50_000,
            requests_in_flight_max: 8_192,
            request_bytes_in_flight_max: 256 * 1024 * 1024,
            outbound_frames_max: 1_024,
            pending_requests_max: 8_192,
            idle: Duration::from_secs(120),
            write_stall: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(3),
            drain: Duration::from_millis(1_500),
        }
    }
}
