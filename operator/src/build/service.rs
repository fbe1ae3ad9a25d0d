//! Services: headless ones, which give each pod a DNS name that outlives it, and those of masters.

use super::Owner;
use super::pod::Port;
use crate::label::{self, Component};
use crate::port;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Name of the Service that leads to a group's master.
pub fn master_name(group: &str) -> String {
    format!("{group}-master")
}

/// The Service that leads to a group's master. Nothing selects its pods: elections say where it
/// leads.
pub fn master(owner: &Owner, group: &str) -> Service {
    let labels = label::group_labels(&owner.cluster, group);
    Service {
        metadata: owner.metadata(master_name(group), labels),
        spec: Some(ServiceSpec {
            ports: Some(ports(&port::MASTER.map(|(name, number)| Port { name, number }))),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

fn ports(ports: &[Port]) -> Vec<ServicePort> {
    let port = |port: &Port| ServicePort {
        name: Some(port.name.to_owned()),
        port: port.number,
        target_port: Some(IntOrString::Int(port.number)),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    };
    ports.iter().map(port).collect()
}

/// The headless Service of a component.
///
/// Addresses are published before pods are ready: brokers find a new name server while it starts,
/// and a broker that has just registered is found by its clients at once.
pub fn headless(owner: &Owner, component: Component, named: &[Port]) -> Service {
    let name = label::component_name(&owner.cluster, component);
    let labels = label::component_labels(&owner.cluster, component);
    Service {
        metadata: owner.metadata(name, labels),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(label::component_selector(&owner.cluster, component)),
            ports: Some(ports(named)),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
