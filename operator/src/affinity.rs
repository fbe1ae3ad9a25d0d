//! Affinity as people write it: kept without a schema in the CRD, so read strictly here.

use k8s_openapi::api::core::v1::Affinity;
use serde_json::Value;

/// Reads an affinity. The error names the field that Kubernetes does not know or cannot read.
pub fn parse(raw: &Value) -> Result<Affinity, String> {
    let affinity: Affinity =
        serde_json::from_value(raw.clone()).map_err(|error| error.to_string())?;
    let known = serde_json::to_value(&affinity).map_err(|error| error.to_string())?;
    match unknown(raw, &known) {
        None => Ok(affinity),
        Some(path) => Err(format!("unknown field {path}")),
    }
}

/// Path of the first thing in `raw` that is not in `known`.
fn unknown(raw: &Value, known: &Value) -> Option<String> {
    match (raw, known) {
        (Value::Object(raw), Value::Object(known)) => raw.iter().find_map(|(key, value)| {
            let deeper = known.get(key).map(|known| unknown(value, known));
            match deeper {
                None => (!value.is_null()).then(|| key.clone()),
                Some(path) => path.map(|path| format!("{key}.{path}")),
            }
        }),
        (Value::Array(raw), Value::Array(known)) => {
            raw.iter().zip(known).enumerate().find_map(|(index, (raw, known))| {
                unknown(raw, known).map(|path| format!("{index}.{path}"))
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn typing_mistakes_are_named() {
        let term = |key: &str| {
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {key: "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
            ]}})
        };
        assert!(parse(&term("topologyKey")).is_ok());
        let path = "podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.0.topologykey";
        let mut both = term("topologyKey");
        both["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["topologykey"] =
            json!("x");
        assert_eq!(parse(&both), Err(format!("unknown field {path}")));
        assert!(parse(&json!({"nodeAffinity": 1})).is_err());
        assert_eq!(parse(&json!({"nodeAfinity": {}})), Err("unknown field nodeAfinity".to_owned()));
        assert!(parse(&json!({})).is_ok());
    }
}
