//! The manifest: a YAML file with one `RocketMQCluster`.

use std::fmt;
use std::path::{Path, PathBuf};

use crds::{Problem, RocketMQCluster};
use kube::{CustomResourceExt as _, Resource as _};
use serde_json::Value;

use super::schema;

const KIND: &str = "RocketMQCluster";

/// A valid manifest.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Manifest {
    pub(super) name: String,
    pub(super) cluster: RocketMQCluster,
    /// Fields of the spec that nothing on a single machine obeys.
    pub(super) without_effect: Vec<&'static str>,
    /// Kinds of other resources in the file.
    pub(super) others: Vec<String>,
}

/// Why a manifest is refused.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{} is not YAML: {reason}", path.display())]
    Syntax { path: PathBuf, reason: String },
    #[error("{} has no {KIND}{}", path.display(), besides(.found))]
    NoCluster { path: PathBuf, found: Vec<String> },
    #[error(
        "{} has {count} {KIND}s; local mode runs one: put them into a file each and run \
         `local up` for each (with --port-offset for the second)",
        path.display()
    )]
    ManyClusters { path: PathBuf, count: usize },
    #[error("{} is refused:{problems}", path.display())]
    Refused { path: PathBuf, problems: Problems },
}

fn besides(found: &[String]) -> String {
    if found.is_empty() { String::new() } else { format!(" (it has: {})", found.join(", ")) }
}

/// Problems, one a line.
#[derive(Debug)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

/// Reads and judges a file.
pub(super) fn read(path: &Path) -> Result<Manifest, ManifestError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ManifestError::Unreadable { path: path.to_owned(), source })?;
    parse(path, &text)
}

/// Judges a text; `path` is for messages.
pub(super) fn parse(path: &Path, text: &str) -> Result<Manifest, ManifestError> {
    let path = path.to_owned();
    let documents: Vec<Value> = match serde_saphyr::from_multiple(text) {
        Ok(documents) => documents,
        Err(error) => return Err(ManifestError::Syntax { path, reason: error.to_string() }),
    };
    let kind = |document: &Value| document.get("kind").and_then(Value::as_str).map(str::to_owned);
    let (mut clusters, others): (Vec<_>, Vec<_>) =
        documents.into_iter().partition(|document| kind(document).as_deref() == Some(KIND));
    let others: Vec<String> = others
        .iter()
        .filter(|document| !document.is_null())
        .map(|document| kind(document).unwrap_or_else(|| "a document without `kind`".to_owned()))
        .collect();
    let document = match (clusters.pop(), clusters.len()) {
        (None, _) => return Err(ManifestError::NoCluster { path, found: others }),
        (Some(document), 0) => document,
        (Some(_), more) => return Err(ManifestError::ManyClusters { path, count: more + 1 }),
    };
    let cluster = cluster(&document)
        .map_err(|problems| ManifestError::Refused { path, problems: Problems(problems) })?;
    let name = cluster.metadata.name.clone().unwrap_or_default();
    Ok(Manifest { name, without_effect: without_effect(&document), cluster, others })
}

fn cluster(document: &Value) -> Result<RocketMQCluster, Vec<Problem>> {
    let mut problems = head_problems(document);
    let nothing = Value::Null;
    let spec = document.get("spec").unwrap_or(&nothing);
    problems.extend(schema::problems(&spec_schema(), spec, "spec"));
    if !problems.is_empty() {
        return Err(problems);
    }
    let cluster: RocketMQCluster = serde_json::from_value(document.clone())
        .map_err(|error| vec![Problem { field: KIND.to_owned(), message: error.to_string() }])?;
    let problems = crds::problems(&cluster);
    if problems.is_empty() { Ok(cluster) } else { Err(problems) }
}

fn head_problems(document: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut problem = |field: &str, message: String| {
        problems.push(Problem { field: field.to_owned(), message });
    };
    let version = RocketMQCluster::api_version(&());
    if document.get("apiVersion").and_then(Value::as_str) != Some(&version) {
        problem("apiVersion", format!("must be {version}"));
    }
    if document.pointer("/metadata/name").and_then(Value::as_str).is_none_or(str::is_empty) {
        problem("metadata.name", "is missing".to_owned());
    }
    for field in document.as_object().into_iter().flatten().map(|(field, _)| field.as_str()) {
        if !["apiVersion", "kind", "metadata", "spec", "status"].contains(&field) {
            problem(field, "there is no such field; settings are below `spec`".to_owned());
        }
    }
    problems
}

fn spec_schema() -> Value {
    let crd = serde_json::to_value(RocketMQCluster::crd()).unwrap_or_default();
    let schema = crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec");
    schema.cloned().expect("the CRD has a schema for its spec")
}

/// What only a Kubernetes cluster can do.
const KUBERNETES_ONLY: &[(&str, &str)] = &[
    ("/spec/imagePullPolicy", "spec.imagePullPolicy"),
    ("/spec/imagePullSecrets", "spec.imagePullSecrets"),
    ("/spec/nameServer/image", "spec.nameServer.image"),
    ("/spec/nameServer/resources", "spec.nameServer.resources"),
    ("/spec/nameServer/pod", "spec.nameServer.pod"),
    ("/spec/brokers/image", "spec.brokers.image"),
    ("/spec/brokers/resources", "spec.brokers.resources"),
    ("/spec/brokers/pod", "spec.brokers.pod"),
    ("/spec/brokers/storage/storageClassName", "spec.brokers.storage.storageClassName"),
    ("/spec/brokers/storage/reclaim", "spec.brokers.storage.reclaim"),
];

fn without_effect(document: &Value) -> Vec<&'static str> {
    KUBERNETES_ONLY
        .iter()
        .filter(|(pointer, _)| document.pointer(pointer).is_some_and(|value| !value.is_null()))
        .map(|(_, field)| *field)
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) const MINIMAL: &str = "\
apiVersion: rocketmq.rs/v1alpha1
kind: RocketMQCluster
metadata: {name: local}
spec:
  nameServer: {replicas: 1}
  brokers:
    groups: 1
    storage: {size: 1Gi}
";

    fn parse_text(text: &str) -> Result<Manifest, ManifestError> {
        parse(Path::new("c.yaml"), text)
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let error = parse_text(text).expect_err(text).to_string();
        assert_eq!(error, expected);
    }

    #[test]
    fn a_right_manifest() {
        let manifest = parse_text(MINIMAL).expect("right");
        assert_eq!(manifest.name, "local");
        assert_eq!(manifest.cluster.spec.brokers.groups, 1);
        assert_eq!(manifest.without_effect, Vec::<&str>::new());
        let with_others = format!("kind: Namespace\n---\n{MINIMAL}---\n");
        assert_eq!(parse_text(&with_others).expect("right").others, ["Namespace"]);
        let text = MINIMAL.replace("size: 1Gi", "size: 1Gi, reclaim: Delete");
        let manifest = parse_text(&text).expect("right");
        assert_eq!(manifest.without_effect, ["spec.brokers.storage.reclaim"]);
    }

    #[test]
    fn wrong_files() {
        refused("kind: Service", "c.yaml has no RocketMQCluster (it has: Service)");
        refused("", "c.yaml has no RocketMQCluster");
        let twice = format!("{MINIMAL}---\n{MINIMAL}");
        let error = parse_text(&twice).expect_err("two").to_string();
        assert!(error.starts_with("c.yaml has 2 RocketMQClusters; local mode runs one"), "{error}");
        let error = parse_text("a: [").expect_err("not YAML").to_string();
        assert!(error.starts_with("c.yaml is not YAML: "), "{error}");
        let error = read(Path::new("/nowhere/c.yaml")).expect_err("missing").to_string();
        assert!(error.starts_with("cannot read /nowhere/c.yaml"), "{error}");
    }

    #[test]
    fn wrong_fields_are_all_named() {
        let text = MINIMAL
            .replace("v1alpha1", "v1")
            .replace("groups: 1", "group: 1")
            .replace("replicas: 1", "replicas: ten");
        refused(
            &text,
            "c.yaml is refused:\n  \
             apiVersion: must be rocketmq.rs/v1alpha1\n  \
             spec.nameServer.replicas: must be a whole number, not \"ten\"\n  \
             spec.brokers.groups: is missing\n  \
             spec.brokers.group: there is no such field; did you mean `groups`?",
        );
        refused(
            "kind: RocketMQCluster\napiVersion: rocketmq.rs/v1alpha1\nbrokers: 1\n",
            "c.yaml is refused:\n  metadata.name: is missing\n  \
             brokers: there is no such field; settings are below `spec`\n  \
             spec: must be fields with values, not nothing",
        );
    }

    #[test]
    fn rules_of_the_operator_hold() {
        let error = parse_text(&MINIMAL.replace("groups: 1", "groups: 1\n    replicas: 6"));
        let error = error.expect_err("six replicas").to_string();
        assert!(error.contains("spec.brokers.replicas: must be between 1 and 5"), "{error}");
        let text = MINIMAL.replace("groups: 1", "groups: 1\n    config: {listenPort: \"1\"}");
        let error = parse_text(&text).expect_err("an owned key").to_string();
        assert!(error.contains("spec.brokers.config.listenPort"), "{error}");
    }
}
