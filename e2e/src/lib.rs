//! What the end-to-end tests share: the project's own binaries as processes or in a real
//! Kubernetes, and stock clients as the peers that judge them.
//!
//! The tests print each step. They need a release build of the servers, Java 17 and Maven, Go, and
//! for Kubernetes root on Linux; what they fetch or build themselves is kept under
//! `~/.cache/rocketmq-rs`. Nothing here touches a cluster or a process that it did not start.

pub mod consumption;
pub mod java;
pub mod kubernetes;
pub mod ledger;
pub mod load;
pub mod local;
pub mod process;
pub mod programs;
pub mod queue_reader;
pub mod random;
pub mod scenario;
pub mod server;
pub mod site;

use std::sync::OnceLock;
use std::time::Instant;

/// Prints a line about what a test does, with the seconds since the first one.
pub fn say(text: &str) {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let seconds = BEGAN.get_or_init(Instant::now).elapsed().as_secs_f64();
    println!("[{seconds:6.1}s] {text}");
}
