//! Headless Services: they give each pod a DNS name that outlives it.

use super::Owner;
use super::pod::Port;
use crate::label::{self, Component};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The headless Service of a component.
///
/// Addresses are published before pods are ready: brokers find a new name server while it starts,
/// and a broker that has just registered is found by its clients at once.
pub fn headless(owner: &Owner, component: Component, ports: &[Port]) -> Service {
    let name = label::component_name(&owner.cluster, component);
    let labels = label::component_labels(&owner.cluster, component);
    let ports = ports
        .iter()
        .map(|port| ServicePort {
            name: Some(port.name.to_owned()),
            port: port.number,
            target_port: Some(IntOrString::Int(port.number)),
            protocol: Some("TCP".to_owned()),
            ..ServicePort::default()
        })
        .collect();
    Service {
        metadata: owner.metadata(name, labels),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(label::component_selector(&owner.cluster, component)),
            ports: Some(ports),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
