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
        Ok(valid) => apply::apply(group, build::build(&valid), &fetched, context).await?,
    };
    status::update(group, &fetched, &applied, context).await
}
