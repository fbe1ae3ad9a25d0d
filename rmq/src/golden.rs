//! Outputs as files, to be read by people and compared by tests.

/// Compares with `tests/golden/NAME`; with `RMQ_GOLDEN=write` in the environment, writes it. Cargo
/// runs tests in the folder of their crate.
pub(crate) fn check(name: &str, text: &str) {
    let path = format!("tests/golden/{name}");
    if std::env::var_os("RMQ_GOLDEN").is_some_and(|mode| mode == "write") {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{name} differs; RMQ_GOLDEN=write writes it anew");
}
