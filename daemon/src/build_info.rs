//! What was built: shown by `--version` and as a metric.

use std::sync::LazyLock;

use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// Version of the workspace; all its binaries share it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that was built, if whoever built it set `BUILD_COMMIT`.
pub const COMMIT: &str = match option_env!("BUILD_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// `0.1.0 (commit unknown)`, for `--version`.
pub fn long_version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| format!("{VERSION} (commit {COMMIT})"));
    &TEXT
}

/// Registers `rocketmq_build_info{program,version,commit} 1`.
pub fn register(registry: &mut Registry, program: &'static str) {
    let info = Info::new([("program", program), ("version", VERSION), ("commit", COMMIT)]);
    registry.register("rocketmq_build", "What is running here", info);
}
