//! A RocketMQCluster on a real Kubernetes, from the operator's installation to the cluster's
//! deletion, judged by the stock Java client. `cargo test -p e2e --test kubernetes`
//!
//! Takes about 12 minutes: a restarted broker must have been ready for 35 s before the next one.
//! With E2E_ONLY_ELECTION only the steps of an elected group, a minute and a half.

mod bed;
mod change;
mod election;
mod failure;
mod install;
mod removal;

use anyhow::Result;
use bed::Bed;

#[test]
fn a_cluster_from_apply_to_delete() -> Result<()> {
    let bed = Bed::new()?;
    let outcome = steps(&bed);
    if outcome.is_err() {
        bed.show_state();
    }
    outcome
}

fn steps(bed: &Bed) -> Result<()> {
    if std::env::var_os("E2E_ONLY_ELECTION").is_some() {
        install::operator(bed)?;
        return election::while_messages_flow(bed);
    }
    install::operator(bed)?;
    install::wrong_resources_are_refused(bed)?;
    install::sample(bed)?;
    install::ten_thousand_messages_once_each(bed)?;
    install::mqadmin_agrees(bed)?;
    install::idle_cluster_writes_nothing(bed)?;
    change::while_messages_flow(bed)?;
    failure::while_messages_flow(bed)?;
    election::while_messages_flow(bed)?;
    removal::keeps_the_claims(bed)?;
    removal::deletes_the_claims(bed)?;
    install::nothing_was_forbidden(bed)
}
