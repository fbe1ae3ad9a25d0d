//! Kubernetes Events: what people need to know, once.
//!
//! Events are made when something changes (a condition, a restart), never because a reconcile
//! came by, so an idle cluster has none.

use crate::roll::Reason as RestartReason;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client, Resource};

/// Longest note that the API server takes, in bytes.
const NOTE_BYTES_MAX: usize = 1000;

/// Everything that the operator has Events about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The resource serves as its spec says.
    Ready,
    /// It does not, though nothing is wrong yet.
    NotReady,
    /// Something is wrong that a person has to look at.
    Degraded,
    /// Nothing is wrong any more, of what did not keep it from serving.
    Recovered,
    /// A pod is restarted.
    Restarting(RestartReason),
    /// A volume claim grows.
    GrowingVolume,
    /// A group has another master.
    MasterElected,
    /// What came of a person's wish for another master.
    Promoted,
    /// The resource cannot be read.
    Unreadable,
}

impl Reason {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::NotReady => "NotReady",
            Self::Degraded => "Degraded",
            Self::Recovered => "Recovered",
            Self::Restarting(RestartReason::Image) => "RestartingForImage",
            Self::Restarting(RestartReason::Config) => "RestartingForConfig",
            Self::Restarting(RestartReason::Resources) => "RestartingForResources",
            Self::Restarting(RestartReason::Template) => "RestartingForTemplate",
            Self::GrowingVolume => "GrowingVolume",
            Self::MasterElected => "MasterElected",
            Self::Promoted => "Promoted",
            Self::Unreadable => "Unreadable",
        }
    }

    fn type_(self) -> &'static str {
        match self {
            Self::Degraded | Self::Unreadable => "Warning",
            _ => "Normal",
        }
    }
}

/// Writes Events. Failing to is logged and no more: they serve people, not the operator.
#[derive(Clone)]
pub struct Events {
    client: Client,
    replica: String,
}

impl Events {
    /// Events by this replica of the operator.
    pub fn new(client: Client, replica: String) -> Self {
        Self { client, replica }
    }

    /// Says `note` about a resource.
    pub async fn publish<K>(&self, about: &K, reason: Reason, note: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        self.publish_about(about.object_ref(&()), reason, note).await;
    }

    /// Says `note` about what a reference points to. Each is an Event of its own: kube's recorder
    /// would count those of one reason as one and keep the note of the first.
    pub async fn publish_about(&self, about: ObjectReference, reason: Reason, note: &str) {
        let namespace = about.namespace.clone().unwrap_or_default();
        let now = Timestamp::now();
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!(
                    "{}.{:x}",
                    about.name.as_deref().unwrap_or_default(),
                    now.as_nanosecond()
                )),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some(reason.type_().to_owned()),
            reason: Some(reason.as_str().to_owned()),
            note: Some(shorten(note)),
            action: Some("Reconcile".to_owned()),
            regarding: Some(about),
            reporting_controller: Some("rocketmq.rs/operator".to_owned()),
            reporting_instance: Some(self.replica.clone()),
            ..Event::default()
        };
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            tracing::warn!(%error, reason = reason.as_str(), note, "an Event could not be written");
        }
    }
}

fn shorten(note: &str) -> String {
    let mut end = NOTE_BYTES_MAX.min(note.len());
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    note.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_fit() {
        assert_eq!(shorten("short"), "short");
        assert_eq!(shorten(&"x".repeat(2000)).len(), 1000);
        assert_eq!(shorten(&"日".repeat(500)).len(), 999);
    }
}
