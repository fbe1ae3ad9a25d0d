//! Bugs that are planted to prove that the simulator finds them.

use replication::rules::{Rule, Rules};

use crate::run::run;
use crate::scenario::{DriverBug, Scenario};

/// Seeds in which every bug must be found.
pub const FOUND_WITHIN: u64 = 5_000;

/// What is broken.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// A rule of `replication`.
    Rule(Rule),
    /// Something around it.
    Driver(DriverBug),
}

/// A planted bug.
#[derive(Debug, Clone, Copy)]
pub struct Bug {
    /// Its name.
    pub name: &'static str,
    place: Place,
}

const fn rule(name: &'static str, rule: Rule) -> Bug {
    Bug { name, place: Place::Rule(rule) }
}

const fn driver(name: &'static str, bug: DriverBug) -> Bug {
    Bug { name, place: Place::Driver(bug) }
}

impl Bug {
    /// All of them.
    pub const ALL: &[Self] = &[
        rule("proposals-not-counted", Rule::CountProposals),
        rule("one-slave-is-enough", Rule::WaitForAll),
        rule("min-in-sync-ignored", Rule::MinInSync),
        rule("lower-epoch-obeyed", Rule::RefuseLowerEpoch),
        rule("promise-not-persisted", Rule::PersistPromise),
        rule("cut-at-shorter-end", Rule::CutAtCommonPoint),
        rule("epoch-start-not-persisted", Rule::PersistEpochStart),
        rule("unconfirmed-is-read", Rule::ReadConfirmedOnly),
        rule("joins-too-early", Rule::JoinCaughtUp),
        rule("elected-from-outside", Rule::ElectFromSet),
        rule("other-disk-not-noticed", Rule::CheckStoreId),
        rule("roll-back-not-noticed", Rule::CheckOpenCount),
        rule("lost-tail-elected", Rule::CheckTail),
        rule("alter-without-epochs", Rule::CheckAlterEpochs),
        rule("alter-without-runs", Rule::CheckAlterRuns),
        rule("restart-keeps-mastership", Rule::RestartEndsMastership),
        rule("regression-not-noticed", Rule::DetectRegression),
        rule("promise-not-waited-out", Rule::WaitOutPromise),
        rule("acknowledges-without-promises", Rule::NeedPromises),
        driver("acknowledged-before-flush", DriverBug::AckBeforeFlush),
        driver("route-by-arrival", DriverBug::RouteByArrival),
        driver("blind-writes", DriverBug::BlindWrites),
        driver("mixed-links", DriverBug::MixedLinks),
    ];

    /// Plants it.
    pub fn plant(&self, scenario: &mut Scenario) {
        match self.place {
            Place::Rule(rule) => scenario.rules = Rules { broken: Some(rule) },
            Place::Driver(bug) => scenario.driver_bug = Some(bug),
        }
    }

    /// The first seed up to `seeds` that finds it, and how.
    #[must_use]
    pub fn find(&self, seeds: u64) -> Option<(u64, String)> {
        (1..=seeds).find_map(|seed| {
            let mut scenario = Scenario::new(seed);
            self.plant(&mut scenario);
            run(&scenario).failure.map(|failure| (seed, failure))
        })
    }
}
