//! The CEL rules of the generated CRDs, evaluated as the API server does: a table of changes to a
//! good resource, each with what the refusal says.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use kube::CustomResourceExt;
use kube::core::cel::Validator;
use serde_json::{Value, json};

fn schema<K: CustomResourceExt>() -> Value {
    let crd = serde_json::to_value(K::crd()).unwrap();
    crd.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap().clone()
}

fn good() -> Value {
    serde_yaml::from_str(
        r#"
        apiVersion: rocketmq.rs/v1alpha1
        kind: RocketMQCluster
        metadata: {name: orders, namespace: mq}
        spec:
          nameServer:
            replicas: 2
            resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {cpu: 1, memory: 128Mi}}
            pod: {labels: {team: a}, annotations: {note: b}}
          brokers:
            groups: 2
            replicas: 3
            storage: {size: 20Gi, storageClassName: fast, reclaim: Retain}
            config: {fileReservedTime: "48"}
        "#,
    )
    .unwrap()
}

/// `good()` with the value at `pointer` replaced (`Null` removes it).
fn changed(pointer: &str, value: &Value) -> Value {
    let mut object = good();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    if value.is_null() {
        parent.remove(key);
    } else {
        parent.insert(key.to_owned(), value.clone());
    }
    object
}

fn refusal(object: &Value, old: Option<&Value>) -> String {
    let schema = schema::<crds::RocketMQCluster>();
    match Validator::new().validate(&schema, object, old) {
        Ok(()) => String::new(),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn good_resources_pass() {
    for (pointer, value) in [
        ("/spec/brokers/groups", json!(2)),
        ("/spec/nameServer", Value::Null),
        ("/spec/brokers/replicas", Value::Null),
        ("/spec/brokers/config", Value::Null),
        ("/spec/brokers/storage/storageClassName", Value::Null),
        ("/spec/brokers/resources", json!({"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}})),
        ("/spec/brokers/resources", json!({"requests": {"cpu": "900m"}, "limits": {"cpu": 1}})),
    ] {
        assert_eq!(refusal(&changed(pointer, &value), None), "", "{pointer} {value}");
    }
    assert_eq!(refusal(&good(), Some(&good())), "");
}

#[test]
fn wrong_resources_are_refused() {
    for (pointer, value, field, says) in [
        ("/metadata/name", json!("x".repeat(41)), "", "at most 40 characters"),
        ("/metadata/name", json!("a.b"), "", "must start with a lower case letter"),
        ("/metadata/name", json!("1a"), "", "must start with a lower case letter"),
        (
            "/spec/brokers/config",
            json!({"minInSyncReplicas": "4"}),
            "spec.brokers",
            "config.minInSyncReplicas must not be above replicas",
        ),
        ("/spec/brokers/storage/size", json!("20"), "spec.brokers.storage.size", "at least 64Mi"),
        ("/spec/brokers/storage/size", json!("9m"), "spec.brokers.storage.size", "at least 64Mi"),
        ("/spec/brokers/storage/size", json!("20GB"), "spec.brokers.storage.size", "as 20Gi"),
        (
            "/spec/brokers/config",
            json!({"brokerName": "x"}),
            "spec.brokers.config",
            "brokerName is set by the operator",
        ),
        (
            "/spec/brokers/config",
            json!({"flushDiskType": "SYNC_FLUSH"}),
            "spec.brokers.config",
            "flushDiskType is set by the operator: set spec.brokers.flush",
        ),
        ("/spec/brokers/config", json!({"a b": "x"}), "spec.brokers.config", "a key is at most"),
        (
            "/spec/brokers/resources",
            json!({"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}),
            "spec.brokers.resources",
            "requests.cpu must not be above limits.cpu",
        ),
        (
            "/spec/brokers/resources",
            json!({"requests": {"memory": "1Gi"}, "limits": {"memory": "1000M"}}),
            "spec.brokers.resources",
            "requests.memory must not be above limits.memory",
        ),
        (
            "/spec/nameServer/pod/labels",
            json!({"app.kubernetes.io/name": "x"}),
            "spec.nameServer.pod.labels",
            "labels that start with",
        ),
        (
            "/spec/nameServer/pod/annotations",
            json!({"rocketmq.rs/config-hash": "x"}),
            "spec.nameServer.pod.annotations",
            "annotations that start with",
        ),
    ] {
        let refusal = refusal(&changed(pointer, &value), None);
        assert!(refusal.contains(field) && refusal.contains(says), "{pointer} {value}: {refusal}");
    }
}

#[test]
fn wrong_changes_are_refused() {
    for (pointer, value, says) in [
        ("/spec/brokers/groups", json!(1), "groups must not become fewer"),
        ("/spec/brokers/replicas", json!(2), "replicas must not become fewer"),
        ("/spec/brokers/storage/size", json!("19Gi"), "size may only grow"),
        ("/spec/brokers/storage/storageClassName", json!("slow"), "cannot be changed"),
        ("/spec/brokers/storage/storageClassName", Value::Null, "cannot be changed"),
    ] {
        let refusal = refusal(&changed(pointer, &value), Some(&good()));
        assert!(refusal.contains(says), "{pointer} {value}: {refusal}");
    }
}

#[test]
fn good_changes_pass() {
    for (pointer, value) in [
        ("/spec/brokers/groups", json!(3)),
        ("/spec/brokers/replicas", json!(5)),
        ("/spec/brokers/storage/size", json!("20481Mi")),
        ("/spec/brokers/storage/reclaim", json!("Delete")),
        ("/spec/nameServer/replicas", json!(1)),
        ("/spec/brokers/config", json!({"fileReservedTime": "72"})),
    ] {
        assert_eq!(refusal(&changed(pointer, &value), Some(&good())), "", "{pointer} {value}");
    }
}

/// What CEL refuses, the check without an API server refuses with the same words.
#[test]
fn the_check_in_code_agrees() {
    assert_eq!(crds::problems(&serde_json::from_value(good()).unwrap()), []);
    for (pointer, value, says) in [
        ("/metadata/name", json!("x".repeat(41)), "metadata.name: metadata.name must be at most"),
        ("/metadata/name", json!("a.b"), "metadata.name: metadata.name must start with"),
        ("/spec/brokers/groups", json!(0), "spec.brokers.groups: must be between 1 and 64"),
        ("/spec/brokers/replicas", json!(6), "spec.brokers.replicas: must be between 1 and 5"),
        (
            "/spec/brokers/config",
            json!({"minInSyncReplicas": "4"}),
            "spec.brokers.config.minInSyncReplicas: config.minInSyncReplicas must not be above",
        ),
        ("/spec/brokers/storage/size", json!("20"), "spec.brokers.storage.size: size must be"),
        (
            "/spec/brokers/config",
            json!({"listenPort": "1"}),
            "spec.brokers.config.listenPort: listenPort is set by the operator: it is always 10911",
        ),
        (
            "/spec/brokers/resources",
            json!({"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}),
            "spec.brokers.resources: requests.cpu must not be above",
        ),
        (
            "/spec/brokers/resources",
            json!({"requests": {"cpu": "lots"}}),
            "spec.brokers.resources.requests.cpu: must be a quantity",
        ),
        ("/spec/nameServer/replicas", json!(10), "spec.nameServer.replicas: must be between"),
        ("/spec/nameServer/image", json!("a b"), "spec.nameServer.image: must be an image name"),
        ("/spec/nameServer/pod/labels", json!({"rocketmq.rs/x": "x"}), "labels that start with"),
    ] {
        let cluster = serde_json::from_value(changed(pointer, &value)).unwrap();
        let problems: Vec<_> = crds::problems(&cluster).iter().map(ToString::to_string).collect();
        assert!(problems.iter().any(|p| p.contains(says)), "{pointer} {value}: {problems:?}");
    }
}
