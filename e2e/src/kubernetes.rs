//! A real Kubernetes cluster for the tests: our own without a container engine (root on Linux),
//! kind where a Docker engine answers, or the one of an explicitly named kubeconfig. Never whatever
//! the current context happens to be.

mod cluster;
mod kind;
mod kit;

pub use cluster::{Cluster, Nodes};
