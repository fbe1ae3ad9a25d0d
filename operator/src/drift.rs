//! Whether an object in the API server still is as it was applied.
//!
//! A server-side apply that changes nothing is still a request, and an idle cluster should cause
//! none. An object is left alone when the hash of what is wanted is the one it was applied with
//! (so nothing was added to or removed from what is wanted) and everything that is wanted is there
//! with the same value (so nobody else changed it).

use crds::quantity::Quantity;
use serde_json::Value;

/// Whether everything in `wanted` is in `live`. What `live` has beyond it (defaults, fields of
/// others) does not matter.
pub fn contains(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| {
            let live = live.get(key).unwrap_or(&Value::Null);
            if key == "ownerReferences" { has_all(live, wanted) } else { contains(live, wanted) }
        }),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(l, w)| contains(l, w))
        }
        (Value::String(live), Value::String(wanted)) => live == wanted || same(live, wanted),
        // The API server keeps no empty maps and lists.
        (Value::Null, wanted) => is_empty(wanted),
        (live, wanted) => live == wanted,
    }
}

/// Lists to which others may add.
fn has_all(live: &Value, wanted: &Value) -> bool {
    let live = live.as_array().map(Vec::as_slice).unwrap_or_default();
    let wanted = wanted.as_array().map(Vec::as_slice).unwrap_or_default();
    wanted.iter().all(|wanted| live.iter().any(|live| contains(live, wanted)))
}

/// The API server writes quantities its own way: `1024Mi` becomes `1Gi`.
fn same(live: &str, wanted: &str) -> bool {
    let (live, wanted) = (Quantity::parse(live), Quantity::parse(wanted));
    live.is_some() && live == wanted
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_empty),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_drift() {
        for (live, wanted, same) in [
            (json!({"a": 1, "b": 2}), json!({"a": 1}), true),
            (json!({"a": 1}), json!({"a": 1, "b": 2}), false),
            (json!({"a": 2}), json!({"a": 1}), false),
            (json!({"a": {"x": 1, "y": 2}}), json!({"a": {"x": 1}}), true),
            (json!({"l": [{"n": 1, "d": 0}]}), json!({"l": [{"n": 1}]}), true),
            (json!({"l": [1, 2]}), json!({"l": [1]}), false),
            (json!({"l": [1, 2]}), json!({"l": [2, 1]}), false),
            (json!({"m": "1Gi"}), json!({"m": "1024Mi"}), true),
            (json!({"m": "1Gi"}), json!({"m": "1G"}), false),
            (json!({}), json!({"e": {}, "l": [], "s": {"t": {}}}), true),
            (json!({}), json!({"e": {"x": 1}}), false),
            (
                json!({"ownerReferences": [{"uid": "b"}, {"uid": "a", "x": 1}]}),
                json!({"ownerReferences": [{"uid": "a"}]}),
                true,
            ),
            (json!({}), json!({"ownerReferences": [{"uid": "a"}]}), false),
        ] {
            assert_eq!(contains(&live, &wanted), same, "{live} {wanted}");
        }
    }
}
