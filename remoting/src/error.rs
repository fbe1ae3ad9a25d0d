//! Why a request got no answer.

use std::time::Duration;

use protocol::frame::FrameError;
use thiserror::Error;

/// Why a request got no answer.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum RemotingError {
    #[error("cannot connect to {addr}: {source}")]
    Connect { addr: String, source: std::io::Error },
    #[error("no connection to {addr} within {timeout:?}")]
    ConnectTimeout { addr: String, timeout: Duration },
    #[error("no answer from {addr} within {timeout:?}")]
    Timeout { addr: String, timeout: Duration },
    #[error("the connection to {addr} was closed")]
    Closed { addr: String },
    #[error("too many frames wait to be sent to {addr} or answered by it")]
    Overloaded { addr: String },
    #[error("the frame for {addr} cannot be written: {source}")]
    Frame { addr: String, source: FrameError },
}
