//! Conditions of a resource: put together, written when they change, told as Events.

use crate::child::{Child, describe};
use crate::context::Context;
use crate::error::Error;
use crate::event::Reason;
use crate::label::FIELD_MANAGER;
use crds::condition::{self, DEGRADED, Desired, PROGRESSING, READY};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

/// Something that a person has to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// One CamelCase word.
    pub reason: String,
    /// One sentence.
    pub sentence: String,
}

/// What a resource does, of which its conditions are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether everything serves.
    pub serves: bool,
    /// What serves, in one sentence.
    pub summary: String,
    /// What is on its way, in one sentence.
    pub progress: Option<String>,
    /// What is wrong.
    pub trouble: Option<Trouble>,
}

impl Verdict {
    /// Whether nothing is on its way and nothing wrong.
    pub fn is_settled(&self) -> bool {
        self.serves && self.progress.is_none() && self.trouble.is_none()
    }

    /// The three conditions. What is wrong is said in each that it explains.
    pub fn conditions(
        &self,
        old: &[Condition],
        generation: Option<i64>,
        now: Timestamp,
    ) -> Vec<Condition> {
        let condition = |type_, holds: bool, reason: &str, message: &str| Desired {
            type_,
            holds: Some(holds),
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        let progress = self.progress.as_deref();
        let ready = match (self.serves, &self.trouble) {
            (true, _) => condition(READY, true, "Serving", &self.summary),
            (false, Some(Trouble { reason, sentence })) => {
                condition(READY, false, reason, sentence)
            }
            (false, None) => condition(READY, false, "Starting", progress.unwrap_or(&self.summary)),
        };
        let progressing = match progress {
            Some(sentence) => condition(PROGRESSING, true, "Changing", sentence),
            None if self.trouble.is_some() => {
                condition(PROGRESSING, false, "Stuck", "Nothing happens until the trouble ends")
            }
            None => condition(PROGRESSING, false, "UpToDate", "What runs is what the spec says"),
        };
        let degraded = match &self.trouble {
            Some(Trouble { reason, sentence }) => condition(DEGRADED, true, reason, sentence),
            None => condition(DEGRADED, false, "AsExpected", "Nothing is wrong"),
        };
        condition::merge(old, &[ready, progressing, degraded], generation, now)
    }
}

/// Events about what changed from `old` to `new`, as (reason, note).
pub fn changes(old: &[Condition], new: &[Condition]) -> Vec<(Reason, String)> {
    let message = |conditions: &[Condition], type_| {
        condition::find(conditions, type_).map(|c| c.message.clone()).unwrap_or_default()
    };
    let reason = |conditions: &[Condition]| {
        condition::find(conditions, DEGRADED).map(|c| c.reason.clone()).unwrap_or_default()
    };
    let was = |type_| condition::holds(old, type_);
    let is = |type_| condition::holds(new, type_);
    let mut events = Vec::new();
    // The words of a trouble may change from one look to the next; its reason is what counts.
    if is(DEGRADED) && (!was(DEGRADED) || reason(old) != reason(new)) {
        events.push((Reason::Degraded, message(new, DEGRADED)));
    }
    if was(DEGRADED) && !is(DEGRADED) && was(READY) && is(READY) {
        events.push((Reason::Recovered, message(new, READY)));
    }
    if !was(READY) && is(READY) {
        events.push((Reason::Ready, message(new, READY)));
    }
    if was(READY) && !is(READY) && !is(DEGRADED) {
        events.push((Reason::NotReady, message(new, READY)));
    }
    events
}

/// Writes a status unless the resource has it already. Returns whether it was written.
pub async fn write<K: Child, S: Serialize>(
    context: &Context,
    kind: &'static str,
    resource: &K,
    status: &S,
) -> Result<bool, Error> {
    let json = |source| Error::Json { object: describe(resource), source };
    let wanted = serde_json::to_value(status).map_err(json)?;
    let has = serde_json::to_value(resource).map_err(json)?;
    // What elections write there is theirs; without it here, applying leaves it alone.
    let mut has = has.get("status").cloned().unwrap_or(Value::Null);
    if let Some(has) = has.as_object_mut() {
        has.remove("election");
    }
    if has == wanted {
        return Ok(false);
    }
    let name = resource.name_any();
    let body = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"name": name},
        "status": wanted,
    });
    let namespace = resource.namespace().unwrap_or_default();
    let api: Api<K> = Api::namespaced(context.client.clone(), &namespace);
    let params = PatchParams::apply(FIELD_MANAGER).force();
    match api.patch_status(&name, &params, &Patch::Apply(&body)).await {
        Ok(_) => {
            context.metrics.wrote_status(kind);
            Ok(true)
        }
        // Deleted meanwhile: nobody is left to be told.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(Error::api("write the status of", describe(resource))(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(serves: bool, progress: Option<&str>, trouble: Option<&str>) -> Verdict {
        Verdict {
            serves,
            summary: "all".to_owned(),
            progress: progress.map(str::to_owned),
            trouble: trouble.map(|sentence| Trouble {
                reason: "Crashing".to_owned(),
                sentence: sentence.to_owned(),
            }),
        }
    }

    fn conditions(verdict: &Verdict) -> Vec<Condition> {
        verdict.conditions(&[], Some(1), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn three_conditions_say_it() {
        for (verdict, expected) in [
            (
                verdict(true, None, None),
                "Ready=True all; Progressing=False What runs is what the spec says; \
                 Degraded=False Nothing is wrong",
            ),
            (
                verdict(true, Some("p"), None),
                "Ready=True all; Progressing=True p; Degraded=False Nothing is wrong",
            ),
            (
                verdict(false, Some("p"), None),
                "Ready=False p; Progressing=True p; Degraded=False Nothing is wrong",
            ),
            (
                verdict(false, None, Some("t")),
                "Ready=False t; Progressing=False Nothing happens until the trouble ends; \
                 Degraded=True t",
            ),
            (
                verdict(true, Some("p"), Some("t")),
                "Ready=True all; Progressing=True p; Degraded=True t",
            ),
        ] {
            let found: Vec<_> = conditions(&verdict)
                .iter()
                .map(|c| format!("{}={} {}", c.type_, c.status, c.message))
                .collect();
            assert_eq!(found.join("; "), expected);
        }
    }

    #[test]
    fn events_are_about_changes() {
        let good = conditions(&verdict(true, None, None));
        let starting = conditions(&verdict(false, Some("p"), None));
        let bad = conditions(&verdict(false, None, Some("t")));
        let limping = conditions(&verdict(true, None, Some("t")));
        let worse = conditions(&verdict(false, None, Some("t with other words")));
        for (old, new, expected) in [
            (&[][..], &starting[..], "[]"),
            (&starting, &good, r#"[(Ready, "all")]"#),
            (&good, &good, "[]"),
            (&good, &starting, r#"[(NotReady, "p")]"#),
            (&good, &bad, r#"[(Degraded, "t")]"#),
            (&bad, &worse, "[]"),
            (&bad, &good, r#"[(Ready, "all")]"#),
            (&bad, &starting, "[]"),
            (&limping, &good, r#"[(Recovered, "all")]"#),
        ] {
            assert_eq!(format!("{:?}", changes(old, new)), expected);
        }
    }
}
