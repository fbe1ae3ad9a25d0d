//! One object that belongs to a resource: apply it when it differs, delete it when it is no longer
//! wanted.

use crate::build::config_map::hash;
use crate::drift;
use crate::error::Error;
use crate::label::{APPLIED_HASH, FIELD_MANAGER};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;

/// What can be a child: any namespaced object.
pub trait Child:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
{
}

impl<K> Child for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
{
}

/// Kind and name of an object, for people.
pub fn describe<K: Child>(object: &K) -> String {
    format!("{} {}", K::kind(&()), object.name_any())
}

fn api_of<K: Child>(client: &Client, object: &K) -> Api<K> {
    let namespace = object.namespace().unwrap_or_default();
    Api::namespaced(client.clone(), &namespace)
}

/// The object as it was applied before, if `live` has it so; else applies it.
///
/// `live` is what the API server has under our labels. An object that it has without them, and
/// that our owner does not control, belongs to somebody else and is left alone.
pub async fn apply<K: Child>(client: &Client, wanted: &K, live: Option<&K>) -> Result<K, Error> {
    let what = describe(wanted);
    let mut wanted_json = to_json(wanted)?;
    let hash = hash(wanted_json.to_string().as_bytes());
    set_annotation(&mut wanted_json, APPLIED_HASH, &hash);
    if let Some(live) = live
        && drift::contains(&to_json(live)?, &wanted_json)
    {
        return Ok(live.clone());
    }
    let api = api_of(client, wanted);
    let name = wanted.name_any();
    if live.is_none() {
        let existing = api.get_metadata_opt(&name).await.map_err(Error::api("get", &what))?;
        if let Some(existing) = existing
            && !controlled_by_same(&existing, wanted)
        {
            return Err(Error::Foreign { object: what, owner: owner_of(wanted) });
        }
    }
    tracing::debug!(object = what, "applying");
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let applied = api.patch(&name, &params, &Patch::Apply(&wanted_json)).await;
    applied.map_err(Error::api("apply", what))
}

/// Deletes an object of ours that is no longer wanted.
pub async fn delete<K: Child>(client: &Client, object: &K) -> Result<(), Error> {
    delete_with(client, object, PropagationPolicy::Background).await
}

/// Deletes an object and leaves what belongs to it alone.
pub async fn delete_alone<K: Child>(client: &Client, object: &K) -> Result<(), Error> {
    delete_with(client, object, PropagationPolicy::Orphan).await
}

async fn delete_with<K: Child>(
    client: &Client,
    object: &K,
    propagation: PropagationPolicy,
) -> Result<(), Error> {
    // By uid: an object of the same name that was made since is not meant.
    let params = DeleteParams {
        propagation_policy: Some(propagation),
        preconditions: Some(Preconditions { uid: object.uid(), resource_version: None }),
        ..DeleteParams::default()
    };
    match api_of(client, object).delete(&object.name_any(), &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(Error::api("delete", describe(object))(error)),
    }
}

/// The object of that name.
pub fn named<'a, K: Child>(objects: &'a [K], name: &str) -> Option<&'a K> {
    objects.iter().find(|object| object.name_any() == name)
}

/// Objects that `owner_uid` controls and whose names are not in `wanted`.
pub fn orphans<'a, K: Child>(live: &'a [K], owner_uid: &str, wanted: &[String]) -> Vec<&'a K> {
    let controlled = |object: &K| {
        let owners = object.owner_references();
        owners.iter().any(|owner| owner.uid == owner_uid && owner.controller == Some(true))
    };
    live.iter()
        .filter(|object| controlled(object) && !wanted.contains(&object.name_any()))
        .filter(|object| object.meta().deletion_timestamp.is_none())
        .collect()
}

fn controlled_by_same(existing: &impl ResourceExt, wanted: &impl ResourceExt) -> bool {
    let owners = wanted.owner_references();
    existing.owner_references().iter().any(|owner| {
        owner.controller == Some(true) && owners.iter().any(|wanted| wanted.uid == owner.uid)
    })
}

fn owner_of(wanted: &impl ResourceExt) -> String {
    let owners = wanted.owner_references();
    owners.first().map(|o| format!("{} {}", o.kind, o.name)).unwrap_or_default()
}

fn to_json<K: Child>(object: &K) -> Result<Value, Error> {
    serde_json::to_value(object).map_err(|source| Error::Json { object: describe(object), source })
}

fn set_annotation(object: &mut Value, key: &str, value: &str) {
    let annotations = object
        .as_object_mut()
        .and_then(|object| object.get_mut("metadata")?.as_object_mut())
        .map(|metadata| metadata.entry("annotations").or_insert_with(|| json!({})));
    if let Some(Value::Object(annotations)) = annotations {
        annotations.insert(key.to_owned(), Value::String(value.to_owned()));
    }
}
