//! Reads from the API server that more than one controller needs.

use crate::child::Child;
use crate::diagnosis::quote;
use crate::error::Error;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

/// Objects with a label, always as they are now.
pub async fn list<K: Child>(
    client: &Client,
    namespace: &str,
    labels: &str,
) -> Result<Vec<K>, Error> {
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let listed = api.list(&ListParams::default().labels(labels)).await;
    Ok(listed.map_err(Error::api("list", K::plural(&())))?.items)
}

/// Why a StatefulSet has fewer pods than it should: a quota, an admission policy. Only its Events
/// tell.
pub async fn pods_refused(client: &Client, set: &StatefulSet) -> Result<Option<String>, Error> {
    let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    if set.status.as_ref().is_none_or(|status| status.replicas >= wanted) {
        return Ok(None);
    }
    let name = set.name_any();
    let events: Api<Event> = Api::namespaced(client.clone(), &set.namespace().unwrap_or_default());
    let fields = format!(
        "involvedObject.kind=StatefulSet,involvedObject.name={name},type=Warning,\
         reason=FailedCreate"
    );
    let listed = events.list(&ListParams::default().fields(&fields)).await;
    let mut found = listed.map_err(Error::api("list", "events"))?.items;
    found.sort_by_key(|event| event.last_timestamp.as_ref().map(|time| time.0));
    let said = found.pop().and_then(|event| event.message);
    Ok(said.map(|said| format!("Pods of {name} are refused: {}", quote(&said))))
}
