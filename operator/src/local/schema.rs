//! A value against the schema of a CRD, as the API server checks it: types, unknown and missing
//! fields, bounds, allowed words. Patterns and CEL rules are [`crds::problems`]'s.

use crds::Problem;
use serde_json::Value;

/// Everything in `value` that `schema` (an OpenAPI v3 schema as a CRD has it) does not allow.
pub(super) fn problems(schema: &Value, value: &Value, at: &str) -> Vec<Problem> {
    let mut check = Check { found: Vec::new() };
    check.value(schema, value, at);
    check.found
}

struct Check {
    found: Vec<Problem>,
}

impl Check {
    fn problem(&mut self, at: &str, message: impl Into<String>) {
        self.found.push(Problem { field: at.to_owned(), message: message.into() });
    }

    fn value(&mut self, schema: &Value, value: &Value, at: &str) {
        if value.is_null() && flag(schema, "nullable") {
            return;
        }
        if flag(schema, "x-kubernetes-int-or-string") {
            if !value.is_string() && !value.is_i64() {
                self.problem(at, format!("must be a quantity, not {}", shown(value)));
            }
            return;
        }
        let wanted = schema.get("type").and_then(Value::as_str).unwrap_or_default();
        match (wanted, value) {
            ("object", Value::Object(fields)) => self.object(schema, fields, at),
            ("array", Value::Array(items)) => self.array(schema, items, at),
            ("string", Value::String(text)) => self.text(schema, text, at),
            ("integer", number) if number.is_i64() => self.number(schema, number, at),
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) | ("", _) => {}
            ("string", Value::Number(_) | Value::Bool(_)) => {
                self.problem(at, format!("must be text: put it in quotes, \"{value}\""));
            }
            (wanted, value) => {
                self.problem(at, format!("must be {}, not {}", kind(wanted), shown(value)));
            }
        }
    }

    fn object(&mut self, schema: &Value, fields: &serde_json::Map<String, Value>, at: &str) {
        let required = schema.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if fields.get(name).is_none_or(Value::is_null) {
                self.problem(&join(at, name), "is missing");
            }
        }
        self.count(schema, "maxProperties", fields.len(), at);
        let properties = schema.get("properties").and_then(Value::as_object);
        let of_any_name = schema.get("additionalProperties").filter(|schema| schema.is_object());
        for (name, value) in fields {
            let at = join(at, name);
            match properties.and_then(|properties| properties.get(name)).or(of_any_name) {
                Some(schema) if !value.is_null() || !is_required(required, name) => {
                    self.value(schema, value, &at);
                }
                Some(_) => {}
                None if flag(schema, "x-kubernetes-preserve-unknown-fields") => {}
                None => {
                    let known = properties.into_iter().flatten().map(|(name, _)| name.as_str());
                    let message = unknown(name, &known.collect::<Vec<_>>());
                    self.problem(&at, message);
                }
            }
        }
    }

    fn array(&mut self, schema: &Value, items: &[Value], at: &str) {
        self.count(schema, "maxItems", items.len(), at);
        let Some(of_items) = schema.get("items") else { return };
        for (index, item) in items.iter().enumerate() {
            self.value(of_items, item, &format!("{at}[{index}]"));
        }
    }

    fn count(&mut self, schema: &Value, limit: &str, count: usize, at: &str) {
        let max = schema.get(limit).and_then(Value::as_u64);
        if let Some(max) = max.filter(|max| usize::try_from(*max).is_ok_and(|max| count > max)) {
            self.problem(at, format!("must have at most {max} entries, not {count}"));
        }
    }

    fn text(&mut self, schema: &Value, text: &str, at: &str) {
        let words = schema.get("enum").and_then(Value::as_array);
        let words: Vec<_> = words.into_iter().flatten().filter_map(Value::as_str).collect();
        if !words.is_empty() && !words.contains(&text) {
            self.problem(at, format!("must be one of {}, not \"{text}\"", words.join(", ")));
        }
        let chars = text.chars().count() as u64;
        let bound = |name| schema.get(name).and_then(Value::as_u64);
        if bound("minLength").is_some_and(|min| chars < min) {
            self.problem(at, "must not be empty");
        }
        if let Some(max) = bound("maxLength").filter(|max| chars > *max) {
            self.problem(at, format!("must have at most {max} characters, not {chars}"));
        }
    }

    fn number(&mut self, schema: &Value, value: &Value, at: &str) {
        let bound = |name| schema.get(name).and_then(Value::as_f64);
        let (min, max) = (bound("minimum"), bound("maximum"));
        let number = value.as_f64().unwrap_or_default();
        if min.is_none_or(|min| number >= min) && max.is_none_or(|max| number <= max) {
            return;
        }
        let allowed = match (min, max) {
            (Some(min), Some(max)) => format!("must be between {min} and {max}"),
            (Some(min), None) => format!("must be at least {min}"),
            (_, max) => format!("must be at most {}", max.unwrap_or_default()),
        };
        self.problem(at, format!("{allowed}, not {value}"));
    }
}

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or_default()
}

fn is_required(required: Option<&Vec<Value>>, name: &str) -> bool {
    required.is_some_and(|required| required.iter().any(|known| known.as_str() == Some(name)))
}

fn join(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}

fn kind(wanted: &str) -> &'static str {
    match wanted {
        "object" => "fields with values",
        "array" => "a list",
        "integer" => "a whole number",
        "boolean" => "true or false",
        "number" => "a number",
        _ => "text",
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Object(_) => "fields with values".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        value => value.to_string(),
    }
}

fn unknown(name: &str, known: &[&str]) -> String {
    match daemon::config::nearest(name, known.iter().copied()) {
        Some(nearest) => format!("there is no such field; did you mean `{nearest}`?"),
        None => format!("there is no such field; there are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn example() -> Value {
        json!({"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 5},
            "groups": {"type": "integer", "minimum": 1.0, "maximum": 64.0},
            "least": {"type": "integer", "minimum": 0.0},
            "flush": {"type": "string", "enum": ["Async", "Sync", null], "nullable": true},
            "config": {"type": "object", "additionalProperties": {"type": "string"},
                       "maxProperties": 2, "nullable": true},
            "list": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
            "cpu": {"x-kubernetes-int-or-string": true},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }})
    }

    #[track_caller]
    fn check(value: &Value, expected: &[&str]) {
        let found = problems(&example(), value, "spec");
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn right_values() {
        check(&json!({"name": "a"}), &[]);
        check(
            &json!({"name": "a", "groups": 64, "flush": null, "config": {"a": "1"}, "cpu": "1",
                   "list": [true], "any": {"x": [1]}}),
            &[],
        );
    }

    #[test]
    fn wrong_values() {
        check(&json!([]), &["spec: must be fields with values, not a list"]);
        check(&json!({}), &["spec.name: is missing"]);
        check(&json!({"name": null}), &["spec.name: is missing"]);
        check(&json!({"name": ""}), &["spec.name: must not be empty"]);
        check(&json!({"name": "abcdef"}), &["spec.name: must have at most 5 characters, not 6"]);
        check(&json!({"name": 5}), &["spec.name: must be text: put it in quotes, \"5\""]);
        check(
            &json!({"name": "a", "groups": "2", "least": -1, "cpu": true}),
            &[
                "spec.groups: must be a whole number, not \"2\"",
                "spec.least: must be at least 0, not -1",
                "spec.cpu: must be a quantity, not true",
            ],
        );
        check(
            &json!({"name": "a", "groups": 0}),
            &["spec.groups: must be between 1 and 64, not 0"],
        );
        check(
            &json!({"name": "a", "flush": "sync"}),
            &["spec.flush: must be one of Async, Sync, not \"sync\""],
        );
        check(
            &json!({"name": "a", "config": {"a": 1, "b": "", "c": ""}}),
            &[
                "spec.config: must have at most 2 entries, not 3",
                "spec.config.a: must be text: put it in quotes, \"1\"",
            ],
        );
        check(
            &json!({"name": "a", "list": [true, 1]}),
            &["spec.list[1]: must be true or false, not 1"],
        );
    }

    #[test]
    fn unknown_fields() {
        check(
            &json!({"name": "a", "group": 1}),
            &["spec.group: there is no such field; did you mean `groups`?"],
        );
        let known = "name, groups, least, flush, config, list, cpu, any";
        check(
            &json!({"name": "a", "zzzzzz": 1}),
            &[&format!("spec.zzzzzz: there is no such field; there are {known}")],
        );
    }
}
