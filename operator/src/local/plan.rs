//! From a manifest to processes: which programs with which files and ports. Pure but for one look
//! whether the programs are there.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crds::rocketmq_cluster::GROUPS_MAX;
use crds::{Flush, RocketMQClusterSpec};
use replication::ReplicaId;
use serde::{Deserialize, Serialize};

use super::manifest::Manifest;
use crate::label::{self, Component};
use crate::port;

/// The key of broker.conf with the replicas that must have a message before it is acknowledged.
const MIN_IN_SYNC: &str = "minInSyncReplicas";
/// Distance between the ports of one server and those of the next of its kind: room for the
/// ports beside the main one (two below, one above).
const PORT_STEP: i32 = 10;

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(
        "{name} would need port {port}, above 65535: the cluster is too large for --port-offset \
         {offset}"
    )]
    PortTooHigh { name: String, port: i32, offset: u16 },
    #[error(
        "{} is not there: build it (`cargo build --release`) or say where it is with --bin-dir DIR",
        path.display()
    )]
    NoProgram { path: PathBuf },
}

/// Where things are on this machine.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Absolute, so that it means the same to every process.
    pub(super) data: PathBuf,
    pub(super) programs: PathBuf,
    pub(super) port_offset: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    #[serde(rename = "name server")]
    NameServer,
    #[serde(rename = "broker")]
    Broker,
}

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::NameServer => "name server",
            Self::Broker => "broker",
        }
    }

    fn program(self) -> &'static str {
        match self {
            Self::NameServer => "rocketmq-namesrv",
            Self::Broker => "rocketmq-broker",
        }
    }
}

/// One process. Two equal specs need no restart between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProcessSpec {
    pub(super) kind: Kind,
    /// As the pod would be called on Kubernetes.
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) config_file: PathBuf,
    pub(super) config_text: String,
    /// What it listens on, its main port first.
    pub(super) ports: Vec<u16>,
    pub(super) address: SocketAddr,
    pub(super) health: SocketAddr,
    pub(super) log_file: PathBuf,
    /// Which replica of which group, if masters are elected there.
    pub(super) replica: Option<(String, ReplicaId)>,
}

impl ProcessSpec {
    /// `broker orders-0`, for messages.
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.kind.as_str(), self.name)
    }
}

/// Every process of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) cluster: String,
    /// What clients give as `namesrvAddr`.
    pub(super) namesrv_addr: String,
    pub(super) name_servers: Vec<Arc<ProcessSpec>>,
    pub(super) brokers: Vec<Arc<ProcessSpec>>,
    pub(super) groups: usize,
    pub(super) replicas: usize,
    /// Replicas that must have a message before it is acknowledged.
    pub(super) min_in_sync: usize,
    /// Where elections are made.
    pub(super) controller: SocketAddr,
}

impl Plan {
    pub(super) fn processes(&self) -> impl Iterator<Item = &Arc<ProcessSpec>> {
        self.name_servers.iter().chain(&self.brokers)
    }

    /// The programs that it runs are there.
    pub(super) fn check_programs(&self) -> Result<(), PlanError> {
        match self.processes().find(|spec| !spec.program.is_file()) {
            Some(spec) => Err(PlanError::NoProgram { path: spec.program.clone() }),
            None => Ok(()),
        }
    }
}

pub(super) fn plan(manifest: &Manifest, place: &Place) -> Result<Plan, PlanError> {
    let Manifest { name: cluster, cluster: resource, .. } = manifest;
    let spec = &resource.spec;
    let name_servers: Vec<_> = (0..spec.name_servers())
        .map(|index| name_server(cluster, index, place))
        .collect::<Result<_, _>>()?;
    let addresses: Vec<_> = name_servers.iter().map(|spec| spec.address.to_string()).collect();
    let namesrv_addr = addresses.join(";");
    let controller = place.port(port::CONTROLLER, 0, "the controller")?;
    let controller = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, controller));
    let mut brokers = Vec::new();
    for (group, replica) in replicas(spec) {
        let name = label::group_name(cluster, group);
        let mut entries = broker_conf(cluster, &name, spec, &namesrv_addr);
        if spec.replicas() > 1 {
            let master_port = place.port(port::BROKER_REMOTING, group, &name)?;
            entries.extend(replica_conf(replica, controller, master_port));
        }
        brokers.push(broker(&name, (group, replica), spec.replicas(), entries, place)?);
    }
    let size = |number: i32| usize::try_from(number).unwrap_or(0);
    let (groups, replicas) = (size(spec.brokers.groups), size(spec.replicas()));
    let min_in_sync = spec.brokers.config.as_ref().and_then(|config| config.get(MIN_IN_SYNC));
    let min_in_sync = min_in_sync.and_then(|value| value.parse().ok()).unwrap_or(1);
    let cluster = cluster.clone();
    Ok(Plan {
        cluster,
        namesrv_addr,
        name_servers,
        brokers,
        groups,
        replicas,
        min_in_sync,
        controller,
    })
}

/// Every broker, by the numbers of its group and of itself there.
fn replicas(spec: &RocketMQClusterSpec) -> impl Iterator<Item = (i32, i32)> {
    let replicas = spec.replicas();
    (0..spec.brokers.groups)
        .flat_map(move |group| (0..replicas).map(move |replica| (group, replica)))
}

/// What a broker needs whose master is elected.
fn replica_conf(replica: i32, controller: SocketAddr, master_port: u16) -> [(String, String); 5] {
    [
        // Whoever is master has the same address, so that a failover changes no route.
        ("masterAddress", format!("{}:{master_port}", Ipv4Addr::LOCALHOST)),
        ("masterListenPort", master_port.to_string()),
        ("enableControllerMode", "true".to_owned()),
        ("controllerAddr", controller.to_string()),
        ("brokerId", replica_id(replica).to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
}

/// Replicas are numbered from 1 on, as Apache's controller does.
fn replica_id(replica: i32) -> ReplicaId {
    ReplicaId::from(replica) + 1
}

fn name_server(cluster: &str, index: i32, place: &Place) -> Result<Arc<ProcessSpec>, PlanError> {
    let name = format!("{}-{index}", label::component_name(cluster, Component::Namesrv));
    let port = |first: i32| place.port(first, index, &name);
    let (remoting, health) = (port(port::NAMESRV_REMOTING)?, port(port::NAMESRV_HEALTH)?);
    let folder = place.data.join(&name);
    let entries = BTreeMap::from([
        ("bindAddress".to_owned(), Ipv4Addr::LOCALHOST.to_string()),
        ("listenPort".to_owned(), remoting.to_string()),
        ("healthPort".to_owned(), health.to_string()),
        ("kvConfigPath".to_owned(), folder.join("kvConfig.json").display().to_string()),
    ]);
    Ok(Arc::new(place.process(Kind::NameServer, name, &entries, &[remoting, health])))
}

fn broker(
    group: &str,
    (group_index, replica): (i32, i32),
    replicas: i32,
    mut entries: BTreeMap<String, String>,
    place: &Place,
) -> Result<Arc<ProcessSpec>, PlanError> {
    let name = format!("{group}-{replica}");
    // More groups or replicas leave the ports of others as they are. Where there are several
    // replicas, the first ports are those of the masters.
    let rank = if replicas > 1 { replica + 1 } else { replica };
    let index = rank * GROUPS_MAX + group_index;
    let port = |first: i32| place.port(first, index, &name);
    let remoting = port(port::BROKER_REMOTING)?;
    let (vip, ha) = (port(port::BROKER_REMOTING - 2)?, port(port::BROKER_REMOTING + 1)?);
    let health = port(port::BROKER_HEALTH)?;
    let folder = place.data.join(&name);
    for (key, value) in [
        ("listenPort", remoting.to_string()),
        ("metricsPromExporterPort", health.to_string()),
        ("storePathRootDir", folder.join("store").display().to_string()),
    ] {
        entries.insert(key.to_owned(), value);
    }
    let spec = place.process(Kind::Broker, name, &entries, &[remoting, vip, ha, health]);
    let replica = (replicas > 1).then(|| (group.to_owned(), replica_id(replica)));
    Ok(Arc::new(ProcessSpec { replica, ..spec }))
}

/// What is the same for a broker on any machine: what people say, then what follows from other
/// fields.
fn broker_conf(
    cluster: &str,
    name: &str,
    spec: &RocketMQClusterSpec,
    namesrv_addr: &str,
) -> BTreeMap<String, String> {
    let flush = match spec.brokers.flush.unwrap_or_default() {
        Flush::Async => "ASYNC_FLUSH",
        Flush::Sync => "SYNC_FLUSH",
    };
    let mut entries = spec.brokers.config.clone().unwrap_or_default();
    for (key, value) in [
        ("brokerClusterName", cluster),
        ("brokerName", name),
        ("brokerId", "0"),
        ("brokerRole", "ASYNC_MASTER"),
        ("namesrvAddr", namesrv_addr),
        ("bindAddress", "127.0.0.1"),
        ("brokerIP1", "127.0.0.1"),
        ("flushDiskType", flush),
    ] {
        entries.insert(key.to_owned(), value.to_owned());
    }
    entries
}

impl Place {
    fn port(&self, first: i32, index: i32, name: &str) -> Result<u16, PlanError> {
        let port = first + i32::from(self.port_offset) + index * PORT_STEP;
        u16::try_from(port).map_err(|_| PlanError::PortTooHigh {
            name: name.to_owned(),
            port,
            offset: self.port_offset,
        })
    }

    /// `ports` has the main one first and that of health checks last.
    fn process(
        &self,
        kind: Kind,
        name: String,
        entries: &BTreeMap<String, String>,
        ports: &[u16],
    ) -> ProcessSpec {
        let local = |port: Option<&u16>| {
            let port = port.copied().unwrap_or_default();
            SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
        };
        let config_name = match kind {
            Kind::NameServer => "namesrv.conf",
            Kind::Broker => "broker.conf",
        };
        ProcessSpec {
            kind,
            program: self.programs.join(kind.program()),
            config_file: self.data.join(&name).join(config_name),
            config_text: config_text(entries),
            address: local(ports.first()),
            health: local(ports.last()),
            ports: ports.to_vec(),
            log_file: log_folder(&self.data).join(format!("{name}.log")),
            name,
            replica: None,
        }
    }
}

pub(super) fn log_folder(data: &Path) -> PathBuf {
    data.join("logs")
}

fn config_text(entries: &BTreeMap<String, String>) -> String {
    let lines = entries.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let lines = daemon::properties::print(lines);
    format!(
        "# Written by `rocketmq-operator local up` from the manifest; changes are undone.\n{lines}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::manifest::{self, tests::MINIMAL};

    fn plan_of(text: &str, port_offset: u16) -> Result<Plan, PlanError> {
        let manifest = manifest::parse(Path::new("c.yaml"), text).expect("a right manifest");
        plan(&manifest, &Place { data: "/data".into(), programs: "/bin-dir".into(), port_offset })
    }

    #[test]
    fn the_least_cluster() {
        let plan = plan_of(MINIMAL, 0).expect("planned");
        assert_eq!(plan.namesrv_addr, "127.0.0.1:9876");
        let [name_server] = plan.name_servers.as_slice() else { panic!("{plan:?}") };
        assert_eq!(name_server.title(), "name server local-namesrv-0");
        assert_eq!(name_server.ports, [9876, 9877]);
        assert_eq!(name_server.program, Path::new("/bin-dir/rocketmq-namesrv"));
        assert_eq!(name_server.config_file, Path::new("/data/local-namesrv-0/namesrv.conf"));
        assert_eq!(
            name_server.config_text.lines().skip(1).collect::<Vec<_>>(),
            [
                "bindAddress=127.0.0.1",
                "healthPort=9877",
                "kvConfigPath=/data/local-namesrv-0/kvConfig.json",
                "listenPort=9876",
            ]
        );
        let [broker] = plan.brokers.as_slice() else { panic!("{plan:?}") };
        assert_eq!(broker.title(), "broker local-0-0");
        assert_eq!(broker.ports, [10911, 10909, 10912, 5557]);
        assert_eq!(broker.health.to_string(), "127.0.0.1:5557");
        assert_eq!(broker.log_file, Path::new("/data/logs/local-0-0.log"));
        assert_eq!(
            broker.config_text.lines().skip(1).collect::<Vec<_>>(),
            [
                "bindAddress=127.0.0.1",
                "brokerClusterName=local",
                "brokerIP1=127.0.0.1",
                "brokerId=0",
                "brokerName=local-0",
                "brokerRole=ASYNC_MASTER",
                "flushDiskType=ASYNC_FLUSH",
                "listenPort=10911",
                "metricsPromExporterPort=5557",
                "namesrvAddr=127.0.0.1:9876",
                "storePathRootDir=/data/local-0-0/store",
            ]
        );
    }

    #[test]
    fn every_field_reaches_a_process() {
        let text = MINIMAL.replace("replicas: 1", "replicas: 3").replace(
            "groups: 1",
            "groups: 2\n    flush: Sync\n    config: {fileReservedTime: \"48\"}",
        );
        let plan = plan_of(&text, 1000).expect("planned");
        assert_eq!(plan.namesrv_addr, "127.0.0.1:10876;127.0.0.1:10886;127.0.0.1:10896");
        let second = &plan.brokers[1];
        assert_eq!(second.ports, [11921, 11919, 11922, 6567]);
        for line in ["flushDiskType=SYNC_FLUSH", "fileReservedTime=48", "brokerName=local-1"] {
            assert!(second.config_text.contains(line), "{}", second.config_text);
        }
    }

    #[test]
    fn replicas_know_their_controller() {
        let text = MINIMAL.replace(
            "groups: 1",
            "groups: 2\n    replicas: 3\n    config: {minInSyncReplicas: \"2\"}",
        );
        let plan = plan_of(&text, 0).expect("planned");
        assert_eq!((plan.groups, plan.replicas, plan.min_in_sync), (2, 3, 2));
        let names: Vec<_> = plan.brokers.iter().map(|spec| spec.name.as_str()).collect();
        let expected =
            ["local-0-0", "local-0-1", "local-0-2", "local-1-0", "local-1-1", "local-1-2"];
        assert_eq!(names, expected);
        let last = &plan.brokers[5];
        assert_eq!(last.replica, Some(("local-1".to_owned(), 3)));
        assert_eq!(last.ports[0], 10911 + 3 * 640 + 10);
        assert!(last.config_text.contains("masterAddress=127.0.0.1:10921"));
        for line in ["brokerId=3", "enableControllerMode=true", "controllerAddr=127.0.0.1:9878"] {
            assert!(last.config_text.contains(line), "{}", last.config_text);
        }
    }

    #[test]
    fn ports_do_not_collide() {
        let text = MINIMAL.replace("replicas: 1", "replicas: 9").replace("groups: 1", "groups: 64");
        let text = text.replace("groups: 64", "groups: 64\n    replicas: 5");
        let plan = plan_of(&text, 0).expect("planned");
        let mut ports: Vec<_> = plan.processes().flat_map(|spec| spec.ports.clone()).collect();
        let count = ports.len();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!((ports.len(), count), (count, 9 * 2 + 5 * 64 * 4));
        let error = plan_of(&text, 60_000).expect_err("too high").to_string();
        assert!(error.contains("local-namesrv-0 would need port 69876, above 65535"), "{error}");
    }

    #[test]
    fn missing_programs_are_named() {
        let error = plan_of(MINIMAL, 0).expect("planned").check_programs().expect_err("missing");
        assert!(error.to_string().starts_with("/bin-dir/rocketmq-namesrv is not there: "));
    }
}
