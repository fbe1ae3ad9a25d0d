//! What every server of this workspace needs and none should write twice: configuration, logs,
//! the health endpoint, an orderly end.
//!
//! Knows nothing of RocketMQ's protocol: a server declares its keys with [`config!`], registers
//! its metrics and checks, and hands over its drain steps. Deliberately absent: dynamic plug-ins,
//! remote configuration sources, a second log back end.

pub mod build_info;
pub mod cli;
pub mod config;
pub mod health;
pub mod process_metrics;
pub mod properties;
pub mod shutdown;
pub mod telemetry;

/// Exit code of a process that was started with a wrong configuration or wrong flags
/// (`EX_USAGE` of BSD's `sysexits.h`). No port has been bound when a server ends with it.
pub const EXIT_CONFIG: u8 = 64;

/// Exit code of a process that ended itself because one of its tasks panicked
/// (`EX_SOFTWARE` of BSD's `sysexits.h`).
pub const EXIT_SOFTWARE: u8 = 70;
