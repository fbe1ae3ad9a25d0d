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
