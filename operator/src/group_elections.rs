//! Elections of the groups on Kubernetes: every replica of the operator answers brokers, the one
//! that leads begins elections and points the groups' Services to their masters.
//!
//! Not part of a reconcile, because a failover must not wait for one.

use crate::build::service::master_name;
use crate::child::describe;
use crate::election::{
    Authority, Endpoint, EndpointConfig, Group, GroupId, GroupView, KubeStore, PodTokens,
};
use crate::error::Error;
use crate::event::{Events, Reason};
use crate::label;
use crate::port;
use crate::watch::{self, Scope};
use crds::BrokerGroup;
use daemon::shutdown::Shutdown;
use futures::StreamExt as _;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::{
    Endpoint as SliceEndpoint, EndpointConditions, EndpointPort, EndpointSlice,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource as _, ResourceExt};
use parking_lot::Mutex;
use remoting::RemotingMetrics;
use replication::{ControllerConfig, ReplicaId};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch as channel;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Connections of brokers: three replicas of a thousand groups, and some more.
const CONNECTIONS_MAX: usize = 4_096;
/// Pause before another try to tell Kubernetes who is master.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// One that cannot be read must not hide the others.
type Guarded = DeserializeGuard<BrokerGroup>;

struct Running {
    group: Group,
    config: ControllerConfig,
    stop: CancellationToken,
}

/// See the module.
pub struct GroupElections {
    client: Client,
    endpoint: Endpoint,
    groups: Mutex<BTreeMap<GroupId, Running>>,
    leads: channel::Sender<bool>,
    /// Groups in which a person's wish is being carried out.
    promoting: Mutex<BTreeSet<GroupId>>,
    events: Events,
    shutdown: Shutdown,
}

impl GroupElections {
    /// Binds the port for brokers and begins to answer; groups come with [`Self::run`].
    ///
    /// # Errors
    /// When the port cannot be bound.
    pub fn start(
        client: Client,
        listen: SocketAddr,
        address: String,
        events: Events,
        shutdown: Shutdown,
    ) -> std::io::Result<Arc<Self>> {
        let config = EndpointConfig {
            listen,
            cluster: "kubernetes".to_owned(),
            peers: vec![address],
            broker_version: env!("CARGO_PKG_VERSION").to_owned(),
            connections_max: CONNECTIONS_MAX,
            authority: Authority::Pods(Arc::new(PodTokens::new(client.clone()))),
        };
        let endpoint = Endpoint::start(config, RemotingMetrics::default())?;
        Ok(Arc::new(Self {
            client,
            endpoint,
            groups: Mutex::default(),
            leads: channel::Sender::new(false),
            promoting: Mutex::default(),
            events,
            shutdown,
        }))
    }

    /// Whether this replica of the operator leads.
    pub fn lead(&self, leads: bool) {
        self.leads.send_replace(leads);
    }

    /// A group whose master is elected.
    pub fn group(&self, namespace: &str, name: &str) -> Option<Group> {
        let id = GroupId { namespace: namespace.to_owned(), name: name.to_owned() };
        self.groups.lock().get(&id).map(|running| running.group.clone())
    }

    /// Follows the BrokerGroups of these scopes for as long as it is polled.
    pub async fn run(self: Arc<Self>, scopes: Vec<Scope>) {
        join_all(scopes.iter().map(|scope| self.follow(scope))).await;
    }

    async fn follow(self: &Arc<Self>, scope: &Scope) {
        let api: Api<Guarded> = scope.api(&self.client);
        let mut events = watcher(api, watch::all()).default_backoff().boxed();
        // Those of a list that is being read: what is not among them was deleted unseen.
        let mut listed = BTreeSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Init) => listed.clear(),
                Ok(watcher::Event::InitApply(group)) => {
                    listed.insert(id_of(&group));
                    self.seen(&group).await;
                }
                Ok(watcher::Event::InitDone) => self.keep_only(scope, &listed),
                Ok(watcher::Event::Apply(group)) => self.seen(&group).await,
                Ok(watcher::Event::Delete(group)) => self.removed(&id_of(&group)),
                Err(error) => tracing::debug!(%error, "BrokerGroups cannot be watched"),
            }
        }
    }

    /// A resource that cannot be read, about which its controller tells people, stays as it was.
    async fn seen(self: &Arc<Self>, group: &Guarded) {
        if let Ok(group) = &group.0 {
            self.applied(group).await;
        }
    }

    fn keep_only(&self, scope: &Scope, listed: &BTreeSet<GroupId>) {
        let known: Vec<_> = self.groups.lock().keys().cloned().collect();
        for id in known.iter().filter(|id| scope.has(&id.namespace) && !listed.contains(id)) {
            self.removed(id);
        }
    }

    async fn applied(self: &Arc<Self>, resource: &BrokerGroup) {
        let id = id_of(resource);
        let replicas = resource.spec.replicas();
        if replicas < 2 || resource.metadata.deletion_timestamp.is_some() {
            return self.removed(&id);
        }
        let ids = 1..=ReplicaId::from(replicas);
        let config = ControllerConfig::new(ids.collect(), resource.spec.min_in_sync());
        let known = {
            let groups = self.groups.lock();
            groups.get(&id).map(|running| (running.group.clone(), running.config == config))
        };
        let group = match known {
            Some((group, true)) => group,
            Some((group, false)) => {
                group.configure(config.clone()).await;
                if let Some(running) = self.groups.lock().get_mut(&id) {
                    running.config = config;
                }
                group
            }
            None => self.add(&id, config, resource),
        };
        self.promote(resource, group);
    }

    fn add(
        self: &Arc<Self>,
        id: &GroupId,
        config: ControllerConfig,
        resource: &BrokerGroup,
    ) -> Group {
        let store = Arc::new(KubeStore::new(self.client.clone(), id));
        let stop = self.shutdown.token().child_token();
        let name = format!("{}/{}", id.namespace, id.name);
        let (group, run) = Group::start(name, config.clone(), store, stop.clone());
        self.shutdown.spawn("election driver", run);
        let (leads, led) = (self.leads.subscribe(), group.clone());
        let until = stop.clone();
        self.shutdown.spawn("election leadership", async move {
            until.run_until_cancelled(pass_on(leads, led)).await;
        });
        let service = MasterService {
            client: self.client.clone(),
            id: id.clone(),
            labels: label::group_labels(&resource.spec.cluster, &id.name),
            owner: resource.controller_owner_ref(&()),
            events: self.events.clone(),
            resource: resource.clone(),
        };
        let (leads, views, until) = (self.leads.subscribe(), group.view().clone(), stop.clone());
        self.shutdown.spawn("master service", async move {
            until.run_until_cancelled(Box::pin(service.keep(leads, views))).await;
        });
        self.endpoint.add(id.clone(), group.clone());
        self.groups.lock().insert(id.clone(), Running { group: group.clone(), config, stop });
        group
    }

    fn removed(&self, id: &GroupId) {
        if let Some(running) = self.groups.lock().remove(id) {
            running.stop.cancel();
            self.endpoint.remove(id);
        }
    }

    /// Moves the mastership where a person says, and takes the wish off.
    fn promote(self: &Arc<Self>, resource: &BrokerGroup, group: Group) {
        let Some(wish) = resource.annotations().get(label::PROMOTE) else { return };
        let id = id_of(resource);
        // The resource changes while the mastership moves, and is seen again with the wish.
        if !*self.leads.borrow() || !self.promoting.lock().insert(id.clone()) {
            return;
        }
        let (elections, resource, wish) = (Arc::clone(self), resource.clone(), wish.clone());
        tokio::spawn(async move {
            let number = wish.rsplit('-').next().and_then(|pod| pod.parse::<ReplicaId>().ok());
            let note = match number {
                None => format!("{} must name a pod, not {wish:?}", label::PROMOTE),
                Some(pod) if group.view().borrow().record.master == Some(pod + 1) => {
                    format!("{wish} is master already")
                }
                Some(pod) => match group.hand_over(Some(pod + 1)).await {
                    Ok(_) => format!("{wish} is master, as {} says", label::PROMOTE),
                    Err(refusal) => format!("{wish} cannot become master: {refusal:?}"),
                },
            };
            elections.events.publish(&resource, Reason::Promoted, &note).await;
            let namespace = resource.namespace().unwrap_or_default();
            let api: Api<BrokerGroup> = Api::namespaced(elections.client.clone(), &namespace);
            let patch = json!({"metadata": {"annotations": {label::PROMOTE: null}}});
            let name = resource.name_any();
            let patched = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
            if let Err(error) = patched {
                tracing::warn!(%error, name, "the annotation cannot be taken off");
            }
            elections.promoting.lock().remove(&id);
        });
    }
}

fn id_of(group: &impl ResourceExt) -> GroupId {
    GroupId { namespace: group.namespace().unwrap_or_default(), name: group.name_any() }
}

async fn pass_on(mut leads: channel::Receiver<bool>, group: Group) {
    loop {
        let leading = *leads.borrow_and_update();
        group.lead(leading).await;
        if leads.changed().await.is_err() {
            return;
        }
    }
}

/// The Service of a group's master: its address never changes, but where it leads does.
struct MasterService {
    client: Client,
    id: GroupId,
    labels: BTreeMap<String, String>,
    owner: Option<OwnerReference>,
    events: Events,
    resource: BrokerGroup,
}

impl MasterService {
    async fn keep(
        self,
        mut leads: channel::Receiver<bool>,
        mut views: channel::Receiver<GroupView>,
    ) {
        loop {
            let leading = *leads.borrow_and_update();
            let view = views.borrow_and_update().clone();
            if leading && let Some(master) = view.record.master {
                match self.point_to(master).await {
                    Ok(true) => self.tell(&view).await,
                    Ok(false) => {}
                    Err(error) => {
                        tracing::warn!(group = self.id.name, %error, "the Service stays for now");
                        sleep(RETRY_PAUSE).await;
                        views.mark_changed();
                    }
                }
            }
            tokio::select! {
                changed = leads.changed() => if changed.is_err() { return },
                changed = views.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn tell(&self, view: &GroupView) {
        let Some(election) = view.record.last_election() else { return };
        let (pod, epoch) = (self.pod(election.master), election.epoch);
        let note = format!("{pod} is master of epoch {epoch}: {}", election.reason.name());
        self.events.publish(&self.resource, Reason::MasterElected, &note).await;
    }

    fn pod(&self, id: ReplicaId) -> String {
        format!("{}-{}", self.id.name, id - 1)
    }

    /// Whether the Service led elsewhere before.
    async fn point_to(&self, master: ReplicaId) -> Result<bool, Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.id.namespace);
        let name = self.pod(master);
        let pod = pods.get(&name).await.map_err(Error::api("get", format!("Pod {name}")))?;
        let ip = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        let Some(ip) = ip.and_then(|ip| ip.parse::<IpAddr>().ok()) else {
            return Err(Error::NoAddress(name));
        };
        let wanted = self.slice(&name, ip);
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &self.id.namespace);
        let what = describe(&wanted);
        let slice = wanted.name_any();
        let has = slices.get_opt(&slice).await.map_err(Error::api("get", &what))?;
        let leads_there =
            |has: EndpointSlice| has.endpoints == wanted.endpoints && has.ports == wanted.ports;
        let is_other = !has.is_some_and(leads_there);
        if is_other {
            let params = PatchParams::apply(label::FIELD_MANAGER).force();
            let applied = slices.patch(&slice, &params, &Patch::Apply(&wanted)).await;
            applied.map_err(Error::api("apply", &what))?;
        }
        self.label(&pods, &name).await?;
        Ok(is_other)
    }

    /// Says at each pod whether it is master, for people and their selectors.
    async fn label(&self, api: &Api<Pod>, master: &str) -> Result<(), Error> {
        let cluster = &self.resource.spec.cluster;
        let ours = ListParams::default().labels(&label::in_group(cluster, &self.id.name));
        let pods = api.list(&ours).await.map_err(Error::api("list", "pods"))?;
        for pod in pods {
            let name = pod.name_any();
            let role = if name == master { "master" } else { "slave" };
            if pod.labels().get(label::ROLE).is_some_and(|has| has == role) {
                continue;
            }
            let patch = json!({"metadata": {"labels": {label::ROLE: role}}});
            let patched = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
            match patched {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                patched => {
                    patched.map_err(Error::api("label", format!("Pod {name}")))?;
                }
            }
        }
        Ok(())
    }

    fn slice(&self, pod: &str, ip: IpAddr) -> EndpointSlice {
        let mut labels = self.labels.clone();
        let service = master_name(&self.id.name);
        labels.insert("kubernetes.io/service-name".to_owned(), service.clone());
        labels.insert(
            "endpointslice.kubernetes.io/managed-by".to_owned(),
            label::FIELD_MANAGER.to_owned(),
        );
        let ports = port::MASTER.map(|(name, number)| EndpointPort {
            name: Some(name.to_owned()),
            port: Some(number),
            protocol: Some("TCP".to_owned()),
            app_protocol: None,
        });
        EndpointSlice {
            metadata: ObjectMeta {
                name: Some(service),
                namespace: Some(self.id.namespace.clone()),
                labels: Some(labels),
                owner_references: self.owner.clone().map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            address_type: if ip.is_ipv4() { "IPv4" } else { "IPv6" }.to_owned(),
            endpoints: vec![SliceEndpoint {
                addresses: vec![ip.to_string()],
                conditions: Some(EndpointConditions {
                    ready: Some(true),
                    ..EndpointConditions::default()
                }),
                target_ref: Some(k8s_openapi::api::core::v1::ObjectReference {
                    kind: Some("Pod".to_owned()),
                    name: Some(pod.to_owned()),
                    namespace: Some(self.id.namespace.clone()),
                    ..Default::default()
                }),
                ..SliceEndpoint::default()
            }],
            ports: Some(ports.to_vec()),
        }
    }
}
