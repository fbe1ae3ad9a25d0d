//! Runs of scenarios, and the search for the shortest list of faults that still fails.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::oracle::Coverage;
use crate::scenario::Scenario;
use crate::world::{Outcome, World};

/// Runs a scenario. A panic is a failure like another.
#[must_use]
pub fn run(scenario: &Scenario) -> Outcome {
    run_with(scenario, false)
}

/// Runs a scenario and prints what happens.
#[must_use]
pub fn replay(scenario: &Scenario) -> Outcome {
    run_with(scenario, true)
}

fn run_with(scenario: &Scenario, is_verbose: bool) -> Outcome {
    let scenario = scenario.clone();
    let result = catch_unwind(AssertUnwindSafe(|| World::new(scenario, is_verbose).run()));
    result.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let failure = Some(format!("panic: {}", text.unwrap_or_default()));
        Outcome { failure, trace: 0, coverage: Coverage::default() }
    })
}

/// The scenario with as few faults as still make it fail.
#[must_use]
pub fn shrink(scenario: &Scenario) -> Scenario {
    let mut best = scenario.clone();
    let mut index = 0;
    while index < best.faults.len() {
        let mut fewer = best.clone();
        fewer.faults.remove(index);
        if run(&fewer).failure.is_some() {
            best = fewer;
        } else {
            index += 1;
        }
    }
    best
}
