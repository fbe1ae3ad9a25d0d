//! The twenty-five scenarios of the specification of failover (docs/failover.md has their
//! outcomes). Broker 0 is the first master. Safety and liveness are checked in each of them; what
//! is asserted here comes on top.

use sim::fault::{Death, Direction, Endpoint, Fault, Planned};
use sim::oracle::Coverage;
use sim::{Scenario, run};

const AT: u64 = 10_000;
const SEEDS: u64 = 10;

fn at(at: u64, fault: Fault) -> Planned {
    Planned { at, fault }
}

fn crash(broker: usize, death: Death, back_after: u64) -> Fault {
    Fault::Crash { broker, death, back_after }
}

/// Both ways between one endpoint and some others.
fn apart(one: Endpoint, others: &[Endpoint], length: u64) -> Vec<Planned> {
    let pair = |other: &Endpoint| {
        let there = Fault::Cut { from: one, to: *other, length };
        let back = Fault::Cut { from: *other, to: one, length };
        [at(AT, there), at(AT, back)]
    };
    others.iter().flat_map(pair).collect()
}

const OPERATORS: [Endpoint; 3] = [Endpoint::Operator(0), Endpoint::Operator(1), Endpoint::Store];

/// Runs the faults with some seeds and change of the calm scenario; `holds` says what must be.
#[track_caller]
fn check_with(
    change: impl Fn(&mut Scenario),
    faults: &[Planned],
    holds: impl Fn(&Coverage) -> bool,
) {
    for seed in 1..=SEEDS {
        let mut scenario = Scenario::calm(seed);
        faults.clone_into(&mut scenario.faults);
        change(&mut scenario);
        let outcome = run(&scenario);
        assert_eq!(outcome.failure, None, "seed {seed}");
        assert!(holds(&outcome.coverage), "seed {seed}: {:?}", outcome.coverage);
    }
}

#[track_caller]
fn check(faults: &[Planned], holds: impl Fn(&Coverage) -> bool) {
    check_with(|_| {}, faults, holds);
}

fn is_undisturbed(c: &Coverage) -> bool {
    c.elections == 1 && c.longest_gap < 2_000
}

#[test]
fn s01_master_process_killed() {
    check(&[at(AT, crash(0, Death::Kill, 5_000))], |c| c.elections == 2 && c.longest_gap <= 2_000);
}

#[test]
fn s02_master_node_loses_power() {
    check(&[at(AT, crash(0, Death::Power, 15_000))], |c| {
        c.elections == 2 && c.longest_gap <= 7_000 && c.losses == 0
    });
}

#[test]
fn s03_disk_of_the_master_stalls() {
    let stall = Fault::DiskStall { broker: 0, length: 30_000 };
    check_with(
        |s| s.flush = replication::replica::FlushMode::Sync,
        &[at(AT, stall)],
        |c| c.elections >= 2 && c.losses == 0,
    );
}

#[test]
fn s04_master_cut_from_the_operator_only() {
    check(&apart(Endpoint::Broker(0), &OPERATORS, 20_000), is_undisturbed);
}

#[test]
fn s05_master_cut_from_operator_and_slaves() {
    let slaves = [Endpoint::Broker(1), Endpoint::Broker(2)];
    let all = [&OPERATORS[..], &slaves[..]].concat();
    check(&apart(Endpoint::Broker(0), &all, 15_000), |c| c.elections == 2 && c.cuts <= 1);
}

#[test]
fn s06_two_brokers_apart_from_the_third_and_the_operator() {
    let side = vec![Endpoint::Broker(0), Endpoint::Broker(1)];
    let parts = Fault::Partition { side, direction: Direction::Both, length: 15_000 };
    check(&[at(AT, parts.clone())], |c| c.elections == 2 && c.longest_gap > 10_000);
    // With one member enough, the third goes on alone.
    check_with(
        |s| s.min_in_sync = 1,
        &[at(AT, parts)],
        |c| c.elections == 2 && c.longest_gap < 10_000,
    );
}

fn operators_down() -> Vec<Planned> {
    (0..2).map(|operator| at(AT, Fault::CrashOperator { operator, back_after: 20_000 })).collect()
}

#[test]
fn s07_and_s08_all_operator_replicas_down() {
    check(&operators_down(), is_undisturbed);
    // A slave that dies meanwhile stops writes until an operator is back.
    let mut faults = operators_down();
    faults.push(at(AT + 2_000, crash(2, Death::Kill, 30_000)));
    check(&faults, |c| c.elections == 1 && c.longest_gap > 10_000);
}

#[test]
fn s09_record_store_down() {
    check(&[at(AT, Fault::StoreOutage { length: 20_000 })], is_undisturbed);
}

#[test]
fn s10_record_store_down_and_master_dies() {
    let outage = at(AT, Fault::StoreOutage { length: 15_000 });
    check(&[outage, at(AT + 1_000, crash(0, Death::Kill, 20_000))], |c| {
        c.elections == 2 && c.longest_gap > 10_000
    });
}

#[test]
fn s11_two_operators_believe_they_lead() {
    let all_lead = at(AT - 1_000, Fault::AllLead { length: 20_000 });
    check(&[all_lead, at(AT, crash(0, Death::Kill, 5_000))], |c| c.elections == 2);
}

#[test]
fn s12_operator_paused_and_resumed() {
    let pause = |operator| at(AT, Fault::PauseOperator { operator, length: 20_000 });
    check(&[pause(0)], is_undisturbed);
    check(&[pause(0), pause(1)], is_undisturbed);
}

#[test]
fn s13_master_paused_and_resumed() {
    check(&[at(AT, Fault::Pause { broker: 0, length: 20_000 })], |c| c.elections == 2);
}

#[test]
fn s14_clocks_differ() {
    // Every process has a clock of its own, with another zero and another speed.
    let kills = [at(AT, crash(0, Death::Kill, 3_000)), at(25_000, crash(1, Death::Kill, 3_000))];
    check(&kills, |c| c.elections >= 2 && c.elections <= 3);
}

#[test]
fn s15_pods_restarted_in_order() {
    check(&[at(AT, Fault::Upgrade)], |c| c.hand_overs >= 1 && c.longest_gap < 2_000);
}

#[test]
fn s16_slave_with_a_wiped_disk() {
    check(&[at(AT, crash(1, Death::Wipe, 1_000))], |c| c.elections == 1 && c.longest_gap < 5_000);
}

#[test]
fn s17_master_with_a_wiped_disk() {
    check(&[at(AT, crash(0, Death::Wipe, 1_000))], |c| c.elections == 2 && c.losses == 0);
    // It was the only one: nobody decides for people.
    let all = Fault::CrashAll { death: Death::Wipe, back_after: 1_000 };
    let alone = |s: &mut Scenario| (s.replicas, s.min_in_sync) = (1, 1);
    check_with(alone, &[at(AT, all)], |c| c.data_lost == 1);
}

#[test]
fn s18_whole_group_restarted() {
    let all = |death| at(AT, Fault::CrashAll { death, back_after: 1_000 });
    check(&[all(Death::Kill)], |c| c.elections >= 2 && c.losses == 0);
    check(&[all(Death::Stop)], |c| c.elections >= 2 && c.losses == 0);
    check(&[all(Death::Power)], |c| c.elections >= 2 && c.losses == 1);
    let synced = |s: &mut Scenario| s.flush = replication::replica::FlushMode::Sync;
    check_with(synced, &[all(Death::Power)], |c| c.elections >= 2 && c.losses == 0);
}

#[test]
fn s19_record_deleted_or_put_back() {
    for is_gone in [true, false] {
        let faults =
            [at(AT, crash(1, Death::Kill, 500)), at(20_000, Fault::StoreRestored { is_gone })];
        check(&faults, |c| c.rebuilds == 1 && c.losses == 0 && c.longest_gap < 5_000);
    }
}

#[test]
fn s20_slave_joins_while_the_master_dies() {
    for later in (0..2_000).step_by(100) {
        let slave = at(AT, crash(1, Death::Power, 3_000));
        let master = at(AT + 3_000 + later, crash(0, Death::Power, 5_000));
        check(&[slave, master], |c| c.elections >= 2 && c.losses == 0);
    }
}

#[test]
fn s21_shrink_request_lost() {
    let noise = Fault::Noise { loss: 400, double: 200, delay_max: 1_000, length: 15_000 };
    check(&[at(AT, noise), at(AT + 500, crash(2, Death::Power, 20_000))], |c| c.losses == 0);
}

#[test]
fn s22_new_master_dies_at_once() {
    for later in (0..2_000).step_by(100) {
        let faults =
            [at(AT, crash(0, Death::Kill, 20_000)), at(AT + later, crash(1, Death::Kill, 6_000))];
        check(&faults, |c| c.elections >= 2 && c.losses == 0);
    }
}

#[test]
fn s23_late_registrations_at_name_servers() {
    let noise = Fault::Noise { loss: 100, double: 300, delay_max: 5_000, length: 20_000 };
    let faults = [
        at(AT, noise),
        at(AT + 1_000, Fault::HandOver { target: Some(1) }),
        at(AT + 4_000, Fault::HandOver { target: Some(2) }),
    ];
    check(&faults, |c| c.elections >= 1);
}

#[test]
fn s24_reads_from_a_stale_master() {
    let side = vec![Endpoint::Broker(0), Endpoint::Client(0)];
    let parts = Fault::Partition { side, direction: Direction::Both, length: 15_000 };
    check(&[at(AT, parts)], |c| c.elections == 2 && c.losses == 0);
}
