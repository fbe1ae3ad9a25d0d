//! Conditions: what of a resource is true, why, and since when.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// Everything serves as the spec says.
pub const READY: &str = "Ready";
/// What runs is on its way to what the spec says.
pub const PROGRESSING: &str = "Progressing";
/// Something is wrong that a person has to look at.
pub const DEGRADED: &str = "Degraded";

/// A condition as it should be, without the time since when it is so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// One of the names above.
    pub type_: &'static str,
    /// Whether it holds; `None` is Unknown.
    pub holds: Option<bool>,
    /// One CamelCase word.
    pub reason: String,
    /// One sentence for people.
    pub message: String,
}

impl Desired {
    /// The word that a condition has for it.
    pub fn status(&self) -> &'static str {
        match self.holds {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        }
    }
}

/// The condition of that type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition of that type is True.
pub fn holds(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "True")
}

/// Puts `desired` in the place of `old`; the time of a condition whose status stays is kept.
pub fn merge(
    old: &[Condition],
    desired: &[Desired],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    desired
        .iter()
        .map(|condition| {
            let since = find(old, condition.type_)
                .filter(|old| old.status == condition.status())
                .map_or(Time(now), |old| old.last_transition_time.clone());
            Condition {
                type_: condition.type_.to_owned(),
                status: condition.status().to_owned(),
                reason: condition.reason.clone(),
                message: condition.message.clone(),
                observed_generation: generation,
                last_transition_time: since,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired(holds: bool, message: &str) -> Desired {
        Desired {
            type_: READY,
            holds: Some(holds),
            reason: "R".to_owned(),
            message: message.to_owned(),
        }
    }

    #[test]
    fn time_changes_with_the_status_only() {
        let early = Timestamp::from_second(1000).unwrap();
        let late = Timestamp::from_second(2000).unwrap();
        let first = merge(&[], &[desired(false, "a")], Some(1), early);
        let second = merge(&first, &[desired(false, "b")], Some(2), late);
        assert_eq!(second[0].last_transition_time, Time(early));
        assert_eq!((second[0].message.as_str(), second[0].observed_generation), ("b", Some(2)));
        let third = merge(&second, &[desired(true, "c")], Some(2), late);
        assert_eq!(third[0].last_transition_time, Time(late));
        assert!(holds(&third, READY) && !holds(&second, READY) && !holds(&third, DEGRADED));
    }
}
