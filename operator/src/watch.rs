//! What the controllers watch, and how.

use crate::label;
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::controller::{self, Action};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use std::time::Duration;

/// Events of one resource within this time cause one reconcile.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Resources of a kind that are reconciled at the same time.
const CONCURRENCY: u16 = 8;

/// Where resources are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In every namespace.
    All,
    /// In one.
    Namespace(String),
}

impl Scope {
    /// One scope for each namespace; none named means all.
    pub fn of(namespaces: &[String]) -> Vec<Self> {
        // An empty environment variable is one empty name.
        let named = namespaces.iter().map(|name| name.trim()).filter(|name| !name.is_empty());
        let scopes: Vec<_> = named.map(|name| Self::Namespace(name.to_owned())).collect();
        if scopes.is_empty() { vec![Self::All] } else { scopes }
    }

    /// Whether the objects of a namespace are in this scope.
    pub fn has(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(named) => named == namespace,
        }
    }

    /// The objects of a kind in this scope.
    pub fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match self {
            Self::All => Api::all(client.clone()),
            Self::Namespace(namespace) => Api::namespaced(client.clone(), namespace),
        }
    }
}

/// Watch all objects of a kind.
pub fn all() -> watcher::Config {
    watcher::Config::default().any_semantic()
}

/// Watch what the operator made.
pub fn ours() -> watcher::Config {
    all().labels(&label::managed_selector())
}

/// How reconciles are scheduled.
pub fn config() -> controller::Config {
    controller::Config::default().debounce(DEBOUNCE).concurrency(CONCURRENCY)
}

/// The BrokerGroup that an object belongs to.
pub fn group_of<K, G>(object: &K) -> Option<ObjectRef<G>>
where
    K: ResourceExt,
    G: Resource<DynamicType = ()>,
{
    named_by(object, label::BROKER_GROUP)
}

/// The RocketMQCluster that an object belongs to.
pub fn cluster_of<K, C>(object: &K) -> Option<ObjectRef<C>>
where
    K: ResourceExt,
    C: Resource<DynamicType = ()>,
{
    named_by(object, label::CLUSTER)
}

fn named_by<K, R>(object: &K, label: &str) -> Option<ObjectRef<R>>
where
    K: ResourceExt,
    R: Resource<DynamicType = ()>,
{
    let name = object.labels().get(label)?;
    Some(ObjectRef::new(name).within(&object.namespace()?))
}

/// Logs what a controller says. Errors of reconciles are logged where their pause is chosen.
pub fn log<K, E, Q>(said: Result<(ObjectRef<K>, Action), controller::Error<E, Q>>)
where
    K: Resource<DynamicType = ()>,
    E: std::error::Error + 'static,
    Q: std::error::Error + 'static,
{
    match said {
        Ok((resource, _)) => tracing::debug!(%resource, "reconciled"),
        Err(controller::Error::QueueError(error)) => tracing::warn!(%error, "a watch failed"),
        Err(error) => tracing::debug!(%error, "not reconciled"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes() {
        let of = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            Scope::of(&names)
        };
        let named = |name: &str| Scope::Namespace(name.to_owned());
        assert_eq!(of(&[]), [Scope::All]);
        assert_eq!(of(&[""]), [Scope::All]);
        assert_eq!(of(&["a", " b", ""]), [named("a"), named("b")]);
    }
}
