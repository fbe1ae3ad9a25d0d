//! A controller driven by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use replication::controller::{
    AlterRequest, Condition, Heartbeat, ProbeAnswer, Refusal, alter, register,
};
use replication::group_record::Version;
use replication::identity::{LogPosition, Registration};
use replication::{
    Controller, ControllerConfig, ControllerEffect, ControllerInput, ElectionReason, GroupRecord,
    Phase, Rules, RunIdentity,
};

fn run(id: i64, open_count: u64) -> RunIdentity {
    let store_id = format!("disk-{id}");
    RunIdentity { store_id, open_count, incarnation: format!("{id}/{open_count}") }
}

fn registration(id: i64, open_count: u64) -> Registration {
    Registration {
        id,
        address: format!("b{id}:10911"),
        ha_address: format!("b{id}:10912"),
        run: run(id, open_count),
        is_whole: true,
        log: LogPosition::default(),
    }
}

fn beat(id: i64, end: i64) -> Heartbeat {
    let mut registration = registration(id, 1);
    registration.log.end = end;
    Heartbeat {
        registration,
        heard_master: None,
        disk_stall: 0,
        priority: i32::MAX,
        is_target_version: true,
    }
}

/// A record of three replicas in sync, of which 1 is master of epoch 1.
fn record() -> GroupRecord {
    let mut record = GroupRecord::default();
    for id in 1..=3 {
        let next = register(&record, &registration(id, 1), None, Rules::default());
        record = next.expect("a new replica");
    }
    record.master_epoch = 1;
    record.master = Some(1);
    record.sync_state_set = BTreeSet::from([1, 2, 3]);
    record.phase = Phase::Serving;
    record
}

/// A leading controller and the record's store.
struct Group {
    controller: Controller,
    record: Arc<GroupRecord>,
    version: u64,
    now: u64,
    effects: Vec<ControllerEffect>,
}

impl Group {
    fn new(record: GroupRecord) -> Self {
        let config = ControllerConfig::new(BTreeSet::from([1, 2, 3]), 2);
        let controller = Controller::new(config);
        let record = Arc::new(record);
        let mut group = Self { controller, record, version: 1, now: 0, effects: Vec::new() };
        group.give(ControllerInput::Leading(true));
        group
    }

    fn version(&self) -> Version {
        Version(self.version.to_string())
    }

    fn give(&mut self, input: ControllerInput) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for effect in self.controller.handle(self.now, input) {
                match &effect {
                    ControllerEffect::Read => inputs.push(ControllerInput::Record {
                        version: self.version(),
                        record: GroupRecord::clone(&self.record),
                    }),
                    ControllerEffect::Write { expected, record } if *expected == self.version() => {
                        self.version += 1;
                        self.record = Arc::clone(record);
                        inputs.push(ControllerInput::Written { version: self.version() });
                    }
                    ControllerEffect::Write { .. } => inputs.push(ControllerInput::Conflict),
                    _ => {}
                }
                self.effects.push(effect);
            }
        }
    }

    /// Lets time pass, in which these replicas are heard.
    fn pass(&mut self, milliseconds: u64, heard: &[Heartbeat]) {
        let until = self.now + milliseconds;
        while self.now < until {
            self.now += 500;
            for beat in heard {
                self.give(ControllerInput::Heartbeat(beat.clone()));
            }
            self.give(ControllerInput::Tick);
        }
    }
}

#[test]
fn the_first_election_needs_all_replicas() {
    let mut group = Group::new(GroupRecord::default());
    group.pass(10_000, &[beat(1, 0), beat(2, 0)]);
    assert_eq!(group.record.master, None);
    group.pass(1_000, &[beat(1, 0), beat(2, 0), beat(3, 0)]);
    assert_eq!((group.record.master, group.record.master_epoch), (Some(1), 1));
    assert_eq!(group.record.sync_state_set, BTreeSet::from([1, 2, 3]));
}

#[test]
fn a_refused_connection_is_proof_and_silence_is_not_at_once() {
    let mut group = Group::new(record());
    group.pass(1_000, &[beat(1, 10), beat(2, 10), beat(3, 12)]);
    group.give(ControllerInput::Disconnected { id: 1 });
    assert!(group.effects.contains(&ControllerEffect::Probe { id: 1 }));
    group.give(ControllerInput::Probed { id: 1, answer: ProbeAnswer::Silent });
    assert_eq!(group.record.master, Some(1));
    group.give(ControllerInput::Probed { id: 1, answer: ProbeAnswer::Refused });
    // The longest log of the in-sync set.
    assert_eq!((group.record.master, group.record.master_epoch), (Some(3), 2));
    assert_eq!(group.record.sync_state_set, BTreeSet::from([2, 3]));
    let election = group.record.last_election().copied().expect("an election");
    assert_eq!((election.reason, election.former), (ElectionReason::ProcessGone, Some(1)));
}

#[test]
fn slaves_that_hear_the_master_prevent_an_election() {
    let mut group = Group::new(record());
    let mut hearing = beat(2, 10);
    hearing.registration.log.promised = 1;
    hearing.heard_master = Some(100);
    group.pass(1_000, &[beat(1, 10), beat(2, 10), beat(3, 10)]);
    group.pass(60_000, &[hearing, beat(3, 10)]);
    assert_eq!(group.record.master, Some(1));
    let cut_off = ControllerEffect::Raise(Condition::MasterUnreachableFromOperator);
    assert!(group.effects.contains(&cut_off));
    group.pass(4_000, &[beat(2, 10), beat(3, 10)]);
    assert_eq!(group.record.master, Some(2));
}

#[test]
fn a_controller_that_stood_still_blames_nobody() {
    let mut group = Group::new(record());
    let all = [beat(1, 10), beat(2, 10), beat(3, 10)];
    group.pass(2_000, &all);
    group.now += 60_000;
    group.give(ControllerInput::Tick);
    group.pass(2_000, &all);
    assert_eq!((group.record.master, group.record.master_epoch), (Some(1), 1));
}

#[test]
fn the_target_version_is_preferred_among_equals() {
    let mut group = Group::new(record());
    let old = |id| Heartbeat { is_target_version: false, ..beat(id, 10) };
    group.pass(1_000, &[old(1), old(2), beat(3, 10)]);
    group.pass(5_000, &[old(2), beat(3, 10)]);
    assert_eq!(group.record.master, Some(3));
}

#[test]
fn a_drained_master_hands_over() {
    let mut group = Group::new(record());
    let all = [beat(1, 10), beat(2, 10), beat(3, 10)];
    group.pass(1_000, &all);
    group.give(ControllerInput::Leaving { id: 1, is_leaving: true });
    let freezes = |effect: &&ControllerEffect| matches!(effect, ControllerEffect::Freeze { .. });
    assert_eq!(group.effects.iter().filter(freezes).count(), 1);
    group.give(ControllerInput::Frozen { epoch: 1, result: Ok(10) });
    assert_eq!((group.record.master, group.record.master_epoch), (Some(2), 2));
    assert_eq!(group.record.sync_state_set, BTreeSet::from([1, 2, 3]));
}

#[test]
fn registrations() {
    let known = record();
    let check = |id, change: &dyn Fn(&mut Registration)| {
        let mut registration = registration(id, 2);
        change(&mut registration);
        let replaces = run(id, 1);
        register(&known, &registration, Some(&replaces), Rules::default()).expect("accepted")
    };
    let restarted = check(2, &|_| {});
    assert_eq!(restarted.sync_state_set, known.sync_state_set);
    assert_eq!(restarted.sync_state_set_epoch, known.sync_state_set_epoch + 1);
    assert!(!restarted.replicas[&2].tail_in_doubt);
    let unclean = check(2, &|r| r.is_whole = false);
    assert!(unclean.replicas[&2].tail_in_doubt);
    let put_back = check(2, &|r| r.run.open_count = 1);
    assert!(put_back.replicas[&2].tail_in_doubt);
    let wiped = check(2, &|r| r.run.store_id = "new".to_owned());
    assert_eq!(wiped.sync_state_set, BTreeSet::from([1, 3]));
    let master = check(1, &|_| {});
    assert_eq!((master.master, master.phase), (None, Phase::NoMaster));
    let late = register(&known, &registration(2, 2), None, Rules::default());
    assert_eq!(late, Err(Refusal::OutdatedRun));
    let mut alone = known.clone();
    alone.sync_state_set = BTreeSet::from([1]);
    let new_disk = Registration { run: run(9, 1), ..registration(1, 1) };
    let lost = register(&alone, &new_disk, Some(&run(1, 1)), Rules::default()).expect("accepted");
    assert_eq!((lost.phase, lost.master), (Phase::DataLost, None));
}

#[test]
fn changes_of_the_in_sync_set() {
    let known = record();
    let number = known.sync_state_set_epoch;
    let request = AlterRequest {
        master: 1,
        master_epoch: 1,
        sync_state_set_epoch: number,
        set: BTreeSet::from([1, 2]),
        runs: BTreeMap::from([(1, run(1, 1)), (2, run(2, 1))]),
        confirm: 7,
    };
    let check = |change: &dyn Fn(&mut AlterRequest), expected: Result<i32, Refusal>| {
        let mut request = request.clone();
        change(&mut request);
        let found = alter(&known, &request, |_| true, Rules::default());
        assert_eq!(found.map(|record| record.sync_state_set_epoch), expected, "{request:?}");
    };
    check(&|_| {}, Ok(number + 1));
    check(&|r| r.set = BTreeSet::from([1, 2, 3]), Ok(number + 1));
    check(&|r| r.master = 2, Err(Refusal::InvalidMaster));
    check(&|r| r.master_epoch = 2, Err(Refusal::FencedMasterEpoch));
    check(&|r| r.sync_state_set_epoch -= 1, Err(Refusal::FencedSyncStateSetEpoch));
    check(&|r| r.set = BTreeSet::from([2]), Err(Refusal::AlterFailed));
    check(&|r| r.set = BTreeSet::from([1, 4]), Err(Refusal::InvalidReplicas));
    check(&|r| r.runs = BTreeMap::from([(2, run(2, 9))]), Err(Refusal::InvalidReplicas));
    // The answer was lost, and the request comes again.
    let done = alter(&known, &request, |_| true, Rules::default()).expect("accepted");
    assert_eq!(alter(&done, &request, |_| true, Rules::default()), Ok(done));
}
