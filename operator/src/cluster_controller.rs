//! RocketMQCluster: its name servers, its Services and budgets, its BrokerGroups, and the restarts
//! of all its pods.

mod apply;
mod build;
mod fetch;
mod restart;
mod status;
mod validate;

use crate::context::Context;
use crate::error::Error;
use crate::reconcile::{guard, pause};
use crate::watch::{self, Scope};
use crds::{BrokerGroup, RocketMQCluster};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::DeserializeGuard;
use kube::runtime::Controller;
use kube::runtime::controller::Action;
use std::sync::Arc;

const KIND: &str = "RocketMQCluster";

type Guarded = DeserializeGuard<RocketMQCluster>;

/// Reconciles the clusters of a scope for as long as the stream is polled.
pub fn run(context: Arc<Context>, scope: &Scope) -> impl Stream<Item = ()> + use<> {
    let client = &context.client;
    let ours = watch::ours;
    Controller::new(scope.api::<Guarded>(client), watch::all())
        .owns(scope.api::<BrokerGroup>(client), ours())
        .owns(scope.api::<Service>(client), ours())
        .owns(scope.api::<ConfigMap>(client), ours())
        .owns(scope.api::<ServiceAccount>(client), ours())
        .owns(scope.api::<PodDisruptionBudget>(client), ours())
        // Those of the groups too: their pods are restarted here.
        .watches(scope.api::<StatefulSet>(client), ours(), |set| watch::cluster_of(&set))
        .watches(scope.api::<Pod>(client), ours(), |pod| watch::cluster_of(&pod))
        .with_config(watch::config())
        .run(reconcile, |cluster, error, context| pause(&context, KIND, &*cluster, error), context)
        .map(watch::log)
}

async fn reconcile(cluster: Arc<Guarded>, context: Arc<Context>) -> Result<Action, Error> {
    match &cluster.0 {
        Ok(cluster) => guard(&context, KIND, cluster, Box::pin(steps(cluster, &context))).await,
        Err(invalid) => {
            context.unreadable::<RocketMQCluster>(invalid).await;
            Ok(Action::await_change())
        }
    }
}

async fn steps(cluster: &RocketMQCluster, context: &Context) -> Result<Action, Error> {
    if cluster.metadata.deletion_timestamp.is_some() {
        // Everything has an owner reference, so Kubernetes removes it.
        return Ok(Action::await_change());
    }
    let fetched = fetch::fetch(cluster, &context.client).await?;
    let outcome = match validate::validate(cluster, &fetched, &context.images) {
        Err(problems) => apply::Outcome::Invalid(problems),
        Ok(valid) => {
            Box::pin(apply::apply(build::build(&valid), &fetched, &context.client)).await?
        }
    };
    let decision = restart::restart(cluster, &fetched, &outcome, context).await?;
    status::update(cluster, &fetched, &outcome, &decision, context).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::{self, Exchange, MockApi, list};
    use serde_json::{Value, json};

    const CORE: &str = "/api/v1/namespaces/mq";
    const SETS: &str = "/apis/apps/v1/namespaces/mq/statefulsets";
    const BUDGETS: &str = "/apis/policy/v1/namespaces/mq/poddisruptionbudgets";
    const OURS: &str = "/apis/rocketmq.rs/v1alpha1/namespaces/mq";
    const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/mq/events";

    fn cluster() -> Value {
        json!({
            "apiVersion": "rocketmq.rs/v1alpha1", "kind": "RocketMQCluster",
            "metadata": {"name": "o", "namespace": "mq", "uid": "c", "generation": 1},
            "spec": {
                "nameServer": {"replicas": 1},
                "brokers": {"groups": 1, "storage": {"size": "1Gi"}},
            },
        })
    }

    /// What there is of a cluster.
    #[derive(Clone, Default)]
    struct World {
        config_maps: Vec<Value>,
        accounts: Vec<Value>,
        services: Vec<Value>,
        budgets: Vec<Value>,
        sets: Vec<Value>,
        groups: Vec<Value>,
        pods: Vec<Value>,
    }

    impl World {
        fn reads(&self) -> Vec<Exchange> {
            let read = |path: &str, items: &Vec<Value>| -> Exchange {
                let items: Vec<_> = items.iter().collect();
                ("GET", format!("{path}?&labelSelector="), 200, list(&items))
            };
            vec![
                read(&format!("{CORE}/serviceaccounts"), &self.accounts),
                read(&format!("{CORE}/configmaps"), &self.config_maps),
                read(&format!("{CORE}/services"), &self.services),
                read(BUDGETS, &self.budgets),
                read(SETS, &self.sets),
                read(&format!("{OURS}/brokergroups"), &self.groups),
                read(&format!("{CORE}/pods"), &self.pods),
            ]
        }

        /// The world after a first reconcile, once Kubernetes has made the pods.
        async fn settled() -> (Self, Value) {
            let makes = |path: String| -> [Exchange; 2] {
                [("GET", path.clone(), 404, Value::Null), ("PATCH", path, 200, Value::Null)]
            };
            let mut exchanges = Self::default().reads();
            for path in [
                format!("{CORE}/serviceaccounts/o-rocketmq"),
                format!("{CORE}/configmaps/o-namesrv"),
                format!("{CORE}/services/o-namesrv"),
                format!("{CORE}/services/o-broker"),
                format!("{BUDGETS}/o-namesrv"),
                format!("{BUDGETS}/o-broker"),
                format!("{SETS}/o-namesrv"),
                format!("{OURS}/brokergroups/o-0"),
            ] {
                exchanges.extend(makes(path));
            }
            let path = format!("{OURS}/rocketmqclusters/o/status");
            exchanges.push(("PATCH", path, 200, cluster()));
            let written = play(&cluster(), exchanges).await;
            let made = |index: usize| written[8 + 2 * index].clone();
            let mut name_servers = made(6);
            name_servers["metadata"]["generation"] = json!(1);
            name_servers["status"] =
                json!({"observedGeneration": 1, "replicas": 1, "updateRevision": "r1"});
            let mut brokers = name_servers.clone();
            brokers["metadata"]["name"] = json!("o-0");
            brokers["metadata"]["ownerReferences"][0]["uid"] = json!("uid of the group");
            let mut group = made(7);
            group["metadata"]["generation"] = json!(1);
            group["status"] = json!({
                "observedGeneration": 1, "phase": "Serving", "master": "o-0-0",
                "conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "m",
                    "lastTransitionTime": "1970-01-01T00:00:00Z"}],
            });
            let world = Self {
                accounts: vec![made(0)],
                config_maps: vec![made(1)],
                services: vec![made(2), made(3)],
                budgets: vec![made(4), made(5)],
                sets: vec![name_servers, brokers],
                groups: vec![group],
                pods: vec![pod("o-namesrv-0", "r1"), pod("o-0-0", "r1")],
            };
            let mut cluster = cluster();
            cluster["status"] = written.last().unwrap()["status"].clone();
            (world, cluster)
        }
    }

    fn pod(name: &str, revision: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "mq", "uid": format!("uid of {name}"),
                "labels": {"controller-revision-hash": revision}},
            "spec": {"containers": [{"name": "c", "image": "old"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True",
                "lastTransitionTime": "1970-01-01T00:00:00Z"}]},
        })
    }

    async fn play(cluster: &Value, exchanges: Vec<Exchange>) -> Vec<Value> {
        let (client, api) = MockApi::new();
        let scenario = api.play(exchanges);
        let cluster: RocketMQCluster = serde_json::from_value(cluster.clone()).unwrap();
        Box::pin(steps(&cluster, &mock::context(client))).await.unwrap();
        scenario.await.unwrap()
    }

    fn writes_status() -> Exchange {
        ("PATCH", format!("{OURS}/rocketmqclusters/o/status?"), 200, cluster())
    }

    fn message<'a>(written: &'a Value, type_: &str) -> &'a str {
        let conditions = written["status"]["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|condition| condition["type"] == type_);
        found.unwrap()["message"].as_str().unwrap()
    }

    #[tokio::test]
    async fn an_idle_cluster_is_only_read() {
        let (world, mut cluster) = World::settled().await;
        let mut exchanges = world.reads();
        exchanges.extend([writes_status(), ("POST", EVENTS.to_owned(), 201, Value::Null)]);
        let written = play(&cluster, exchanges).await;
        let status = &written[7]["status"];
        assert_eq!(
            message(&written[7], "Ready"),
            "1 of 1 name servers and 1 of 1 broker groups serve"
        );
        assert_eq!(status["nameServers"]["address"], "o-namesrv.mq.svc:9876");
        assert_eq!(status["nameServers"]["addresses"], "o-namesrv-0.o-namesrv.mq.svc:9876");
        assert_eq!(status["brokers"]["groups"], "1/1");
        assert_eq!(status["brokers"]["masters"], "1/1");
        assert_eq!(written[8]["reason"], "Ready");
        cluster["status"] = status.clone();
        play(&cluster, world.reads()).await;
    }

    #[tokio::test]
    async fn an_outdated_pod_is_restarted_by_its_uid() {
        let (mut world, cluster) = World::settled().await;
        world.pods = vec![pod("o-namesrv-0", "r1"), pod("o-0-0", "r0")];
        let mut exchanges = world.reads();
        exchanges.extend([
            ("DELETE", format!("{CORE}/pods/o-0-0"), 200, world.pods[1].clone()),
            ("POST", EVENTS.to_owned(), 201, Value::Null),
            writes_status(),
            ("POST", EVENTS.to_owned(), 201, Value::Null),
        ]);
        let written = play(&cluster, exchanges).await;
        assert_eq!(written[7]["preconditions"]["uid"], "uid of o-0-0");
        assert_eq!(written[8]["reason"], "RestartingForImage");
        assert_eq!(message(&written[9], "Progressing"), "Pod o-0-0 restarts: its image changed");
    }

    #[tokio::test]
    async fn fewer_groups_than_there_are_touch_nothing() {
        let (mut world, cluster) = World::settled().await;
        let mut second = world.groups[0].clone();
        second["metadata"]["name"] = json!("o-1");
        world.groups.push(second);
        let mut exchanges = world.reads();
        exchanges.extend([
            writes_status(),
            ("POST", EVENTS.to_owned(), 201, Value::Null),
            ("POST", EVENTS.to_owned(), 201, Value::Null),
        ]);
        let written = play(&cluster, exchanges).await;
        assert_eq!(
            message(&written[7], "Degraded"),
            "spec.brokers.groups: groups must not become fewer: o-1 would be lost, with its \
             messages"
        );
    }

    #[tokio::test]
    async fn what_an_older_operator_made_is_removed() {
        let (mut world, mut cluster) = World::settled().await;
        let mut old = world.services[0].clone();
        old["metadata"]["name"] = json!("o-old");
        let mut theirs = old.clone();
        theirs["metadata"]["name"] = json!("theirs");
        theirs["metadata"]["ownerReferences"][0]["uid"] = json!("another");
        world.services.extend([old.clone(), theirs]);
        let mut exchanges = world.reads();
        exchanges.extend([
            ("DELETE", format!("{CORE}/services/o-old"), 200, old),
            writes_status(),
            ("POST", EVENTS.to_owned(), 201, Value::Null),
        ]);
        play(&cluster, exchanges).await;
        cluster["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
        play(&cluster, Vec::new()).await;
    }

    #[tokio::test]
    async fn what_the_api_server_refuses_is_said() {
        let mut exchanges = World::default().reads();
        let account = format!("{CORE}/serviceaccounts/o-rocketmq");
        exchanges.extend([
            ("GET", account.clone(), 404, Value::Null),
            ("PATCH", account, 403, Value::Null),
            writes_status(),
            ("POST", EVENTS.to_owned(), 201, Value::Null),
        ]);
        let written = play(&cluster(), exchanges).await;
        assert_eq!(
            message(&written[9], "Degraded"),
            "Cannot apply ServiceAccount o-rocketmq: the test says Forbidden"
        );
        assert_eq!(message(&written[9], "Ready"), message(&written[9], "Degraded"));
    }
}
