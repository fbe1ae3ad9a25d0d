//! Plain tables of text.

use std::collections::BTreeMap;

use super::body;

body! {
    /// Key-value settings and run-time figures.
    pub struct KvTable {
        table: BTreeMap<String, String>,
    }
}
