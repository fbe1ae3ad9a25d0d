//! BrokerGroup: its ConfigMap, StatefulSet and volume claims.
//!
//! It restarts nothing: the controller of the RocketMQCluster does, because only it sees all pods.

mod apply;
mod build;
mod fetch;
mod status;
mod validate;

use crate::context::Context;
use crate::error::Error;
use crate::reconcile::{guard, pause};
use crate::watch::{self, Scope};
use crds::BrokerGroup;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use kube::Client;
use kube::core::DeserializeGuard;
use kube::runtime::Controller;
use kube::runtime::controller::Action;
use std::sync::Arc;

const KIND: &str = "BrokerGroup";

type Guarded = DeserializeGuard<BrokerGroup>;

/// Reconciles the groups of a scope for as long as the stream is polled.
pub fn run(context: Arc<Context>, scope: &Scope) -> impl Stream<Item = ()> + use<> {
    let client: &Client = &context.client;
    let ours = watch::ours;
    Controller::new(scope.api::<Guarded>(client), watch::all())
        .owns(scope.api::<StatefulSet>(client), ours())
        .owns(scope.api::<ConfigMap>(client), ours())
        .watches(scope.api::<Pod>(client), ours(), |pod| watch::group_of(&pod))
        .watches(scope.api::<PersistentVolumeClaim>(client), ours(), |claim| {
            watch::group_of(&claim)
        })
        .with_config(watch::config())
        .run(reconcile, |group, error, context| pause(&context, KIND, &*group, error), context)
        .map(watch::log)
}

async fn reconcile(group: Arc<Guarded>, context: Arc<Context>) -> Result<Action, Error> {
    match &group.0 {
        Ok(group) => guard(&context, KIND, group, Box::pin(steps(group, &context))).await,
        Err(invalid) => {
            context.unreadable::<BrokerGroup>(invalid).await;
            Ok(Action::await_change())
        }
    }
}

async fn steps(group: &BrokerGroup, context: &Context) -> Result<Action, Error> {
    if group.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let fetched = fetch::fetch(group, &context.client).await?;
    let applied = match validate::validate(group, &fetched) {
        Err(problems) => apply::Outcome::Invalid(problems),
        Ok(valid) => {
            let objects = build::build(&valid, &context.controller_address);
            Box::pin(apply::apply(group, objects, &fetched, context)).await?
        }
    };
    status::update(group, &fetched, &applied, context).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::{self, Exchange, MockApi, list};
    use serde_json::{Value, json};

    const CORE: &str = "/api/v1/namespaces/mq";
    const SETS: &str = "/apis/apps/v1/namespaces/mq/statefulsets";
    const GROUPS: &str = "/apis/rocketmq.rs/v1alpha1/namespaces/mq/brokergroups";

    fn group() -> Value {
        serde_yaml::from_str(
            "apiVersion: rocketmq.rs/v1alpha1
kind: BrokerGroup
metadata:
  name: o-0
  namespace: mq
  uid: g
  generation: 3
  ownerReferences:
  - {apiVersion: rocketmq.rs/v1alpha1, kind: RocketMQCluster, name: o, uid: c, controller: true}
spec:
  cluster: o
  nameServerAddress: o-namesrv.mq.svc:9876
  image: broker:1
  flush: Async
  storage: {size: 1Gi}
",
        )
        .unwrap()
    }

    /// The reads that each reconcile begins with.
    fn reads(config_map: &[&Value], set: &[&Value], claim: &[&Value]) -> Vec<Exchange> {
        let label = "?&labelSelector=app.kubernetes.io";
        vec![
            ("GET", format!("{CORE}/configmaps{label}"), 200, list(config_map)),
            ("GET", format!("{SETS}{label}"), 200, list(set)),
            ("GET", format!("{CORE}/persistentvolumeclaims{label}"), 200, list(claim)),
            ("GET", format!("{CORE}/pods{label}"), 200, list(&[])),
        ]
    }

    async fn play(group: &Value, exchanges: Vec<Exchange>) -> Vec<Value> {
        let (client, api) = MockApi::new();
        let scenario = api.play(exchanges);
        let group: BrokerGroup = serde_json::from_value(group.clone()).unwrap();
        Box::pin(steps(&group, &mock::context(client))).await.unwrap();
        scenario.await.unwrap()
    }

    fn makes() -> Vec<Exchange> {
        vec![
            ("GET", format!("{CORE}/configmaps/o-0"), 404, Value::Null),
            ("PATCH", format!("{CORE}/configmaps/o-0?&force=true"), 200, Value::Null),
            ("GET", format!("{SETS}/o-0"), 404, Value::Null),
            ("PATCH", format!("{SETS}/o-0?&force=true"), 200, Value::Null),
            ("PATCH", format!("{GROUPS}/o-0/status?&force=true"), 200, group()),
        ]
    }

    /// What a first reconcile made: ConfigMap, StatefulSet, the group with its status.
    async fn made() -> (Value, Value, Value) {
        let exchanges = [reads(&[], &[], &[]), makes()].concat();
        let written = play(&group(), exchanges).await;
        let mut group = group();
        group["status"] = written[8]["status"].clone();
        (written[5].clone(), written[7].clone(), group)
    }

    fn condition<'a>(written: &'a Value, type_: &str) -> &'a Value {
        let conditions = written["status"]["conditions"].as_array().unwrap();
        conditions.iter().find(|condition| condition["type"] == type_).unwrap()
    }

    #[tokio::test]
    async fn what_is_there_is_not_written_again() {
        let (config_map, mut set, group) = made().await;
        assert_eq!(group["status"]["phase"], "Starting");
        assert_eq!(group["status"]["observedGeneration"], 3);
        // What the API server adds changes nothing.
        set["spec"]["template"]["spec"]["dnsPolicy"] = json!("ClusterFirst");
        let claims = &mut set["spec"]["volumeClaimTemplates"][0];
        claims["spec"]["volumeMode"] = json!("Filesystem");
        claims["spec"]["resources"]["requests"]["storage"] = json!("1024Mi");
        play(&group, reads(&[&config_map], &[&set], &[])).await;
    }

    #[tokio::test]
    async fn what_somebody_changed_is_changed_back() {
        let (mut config_map, set, group) = made().await;
        config_map["data"]["broker.conf"] = json!("listenPort=1");
        let mut exchanges = reads(&[&config_map], &[&set], &[]);
        exchanges.push(("PATCH", format!("{CORE}/configmaps/o-0?"), 200, Value::Null));
        let written = play(&group, exchanges).await;
        assert!(written[4]["data"]["broker.conf"].as_str().unwrap().contains("listenPort=10911"));
    }

    #[tokio::test]
    async fn what_belongs_to_others_is_left_alone() {
        let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "o-0"}});
        let mut exchanges = reads(&[], &[], &[]);
        exchanges.extend([
            ("GET", format!("{CORE}/configmaps/o-0"), 200, theirs),
            ("PATCH", format!("{GROUPS}/o-0/status?"), 200, group()),
            ("POST", "/apis/events.k8s.io/v1/namespaces/mq/events".to_owned(), 201, Value::Null),
        ]);
        let written = play(&group(), exchanges).await;
        let degraded = condition(&written[5], "Degraded");
        assert_eq!(
            degraded["message"],
            "ConfigMap o-0 already exists and does not belong to BrokerGroup o-0: rename or \
             delete it"
        );
        assert_eq!(written[6]["note"], degraded["message"]);
    }

    fn claim(size: &str) -> Value {
        json!({
            "metadata": {"name": "data-o-0-0", "namespace": "mq"},
            "spec": {"resources": {"requests": {"storage": size}}},
            "status": {"phase": "Bound", "capacity": {"storage": size}},
        })
    }

    #[tokio::test]
    async fn volumes_grow() {
        let (config_map, mut set, mut group) = made().await;
        set["metadata"]["uid"] = json!("s");
        group["spec"]["storage"]["size"] = json!("2Gi");
        let mut exchanges = reads(&[&config_map], &[&set], &[&claim("1Gi")]);
        let events = "/apis/events.k8s.io/v1/namespaces/mq/events".to_owned();
        exchanges.extend([
            ("PATCH", format!("{CORE}/persistentvolumeclaims/data-o-0-0"), 200, claim("2Gi")),
            ("POST", events, 201, Value::Null),
            ("DELETE", format!("{SETS}/o-0"), 200, set.clone()),
            ("PATCH", format!("{GROUPS}/o-0/status?"), 200, group.clone()),
        ]);
        let written = play(&group, exchanges).await;
        assert_eq!(written[4]["spec"]["resources"]["requests"]["storage"], "2Gi");
        assert_eq!(written[6]["propagationPolicy"], "Orphan");
        assert_eq!(written[6]["preconditions"]["uid"], "s");
        assert_eq!(written[7]["status"]["volume"], "1Gi");
    }

    #[tokio::test]
    async fn a_volume_that_cannot_grow_stops_no_other_change() {
        let (config_map, set, mut group) = made().await;
        group["spec"]["storage"]["size"] = json!("2Gi");
        group["spec"]["image"] = json!("broker:2");
        let mut exchanges = reads(&[&config_map], &[&set], &[&claim("1Gi")]);
        let events = "/apis/events.k8s.io/v1/namespaces/mq/events".to_owned();
        exchanges.extend([
            ("PATCH", format!("{CORE}/persistentvolumeclaims/data-o-0-0"), 403, Value::Null),
            ("PATCH", format!("{SETS}/o-0?"), 200, Value::Null),
            ("PATCH", format!("{GROUPS}/o-0/status?"), 200, group.clone()),
            ("POST", events, 201, Value::Null),
        ]);
        let written = play(&group, exchanges).await;
        let spec = &written[5]["spec"];
        assert_eq!(spec["template"]["spec"]["containers"][0]["image"], "broker:2");
        let claim = &spec["volumeClaimTemplates"][0]["spec"];
        assert_eq!(claim["resources"]["requests"]["storage"], "1Gi");
        assert_eq!(condition(&written[6], "Degraded")["reason"], "VolumeCannotGrow");
    }

    #[tokio::test]
    async fn a_wrong_spec_touches_nothing() {
        for (pointer, value, says) in [
            ("/spec/storage/size", json!("512Mi"), "spec.storage.size: size may only grow"),
            (
                "/spec/storage/storageClassName",
                json!("slow"),
                "spec.storage.storageClassName: storageClassName cannot be changed",
            ),
            ("/spec/pod", json!({"affinity": {"nodeAfinity": {}}}), "spec.pod.affinity: unknown"),
            ("/metadata/ownerReferences", json!([]), "it was not made by RocketMQCluster o"),
        ] {
            let (config_map, set, mut group) = made().await;
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            group.pointer_mut(parent).unwrap()[key] = value;
            let mut exchanges = reads(&[&config_map], &[&set], &[]);
            let events = "/apis/events.k8s.io/v1/namespaces/mq/events".to_owned();
            exchanges.extend([
                ("PATCH", format!("{GROUPS}/o-0/status?"), 200, group.clone()),
                ("POST", events, 201, Value::Null),
            ]);
            let written = play(&group, exchanges).await;
            let message = condition(&written[4], "Degraded")["message"].as_str().unwrap();
            assert!(message.starts_with(says) || message.contains(says), "{message}");
        }
    }
}
