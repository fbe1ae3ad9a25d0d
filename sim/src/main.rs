//! `sim`: runs seeds, repeats one, or looks for planted bugs.

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use sim::oracle::Coverage;
use sim::planted::{Bug, FOUND_WITHIN};
use sim::{Scenario, run, shrink};

/// Simulates BrokerName groups with faults.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run many seeds
    Seeds {
        /// How many
        #[arg(default_value_t = 2_000)]
        count: u64,
        /// The first
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Stop after so many that fail
        #[arg(long, default_value_t = 1)]
        failures: usize,
    },
    /// Run one seed and print everything
    Replay {
        /// Which one
        seed: u64,
        /// With this planted bug
        #[arg(long)]
        bug: Option<String>,
        /// Drop the faults that are not needed before
        #[arg(long)]
        shrink: bool,
    },
    /// Look for planted bugs
    Bugs {
        /// Their names; all if none is given
        names: Vec<String>,
    },
}

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    match Args::parse().command {
        Command::Seeds { count, from, failures } => seeds(from, count, failures),
        Command::Replay { seed, bug, shrink: is_shrunk } => {
            let mut scenario = Scenario::new(seed);
            if let Some(bug) = bug {
                let bug = Bug::ALL.iter().find(|known| known.name == bug).expect("a known bug");
                bug.plant(&mut scenario);
            }
            if is_shrunk {
                scenario = shrink(&scenario);
            }
            println!("{scenario:#?}");
            let outcome = sim::run::replay(&scenario);
            println!("{outcome:?}");
            ExitCode::from(u8::from(outcome.failure.is_some()))
        }
        Command::Bugs { names } => bugs(&names),
    }
}

fn seeds(from: u64, count: u64, failures_max: usize) -> ExitCode {
    let begin = Instant::now();
    let mut coverage = Coverage::default();
    let mut failures = 0;
    for seed in from..from.saturating_add(count) {
        let scenario = Scenario::new(seed);
        let outcome = run(&scenario);
        coverage.add(&outcome.coverage);
        let Some(failure) = outcome.failure else { continue };
        report(&scenario, &failure);
        failures += 1;
        if failures >= failures_max {
            return ExitCode::FAILURE;
        }
    }
    println!("{count} seeds from {from}: {failures} failures after {:?}", begin.elapsed());
    println!("{coverage:?}");
    ExitCode::from(u8::from(failures > 0))
}

fn report(scenario: &Scenario, failure: &str) {
    let seed = scenario.seed;
    println!("seed {seed} fails: {failure}");
    let shortest = shrink(scenario);
    if let Some(failure) = run(&shortest).failure {
        println!("with fewer faults: {failure}");
    }
    for planned in &shortest.faults {
        println!("  {:>6} ms: {:?}", planned.at, planned.fault);
    }
    let Scenario { replicas, min_in_sync, profile, flush, operators, .. } = shortest;
    println!("{replicas} replicas, {min_in_sync} needed, {operators} operators");
    println!("{profile:?} profile, {flush:?} flush");
    println!("repeat it with: cargo run -p sim -- replay {seed} --shrink");
}

fn bugs(names: &[String]) -> ExitCode {
    let mut is_all_found = true;
    let is_wanted = |bug: &&Bug| names.is_empty() || names.iter().any(|name| name == bug.name);
    for bug in Bug::ALL.iter().filter(is_wanted) {
        let found = bug.find(FOUND_WITHIN);
        match &found {
            Some((seed, failure)) => println!("{}: seed {seed}: {failure:.200}", bug.name),
            None => println!("{}: not found in {FOUND_WITHIN} seeds", bug.name),
        }
        is_all_found &= found.is_some();
    }
    ExitCode::from(u8::from(!is_all_found))
}
