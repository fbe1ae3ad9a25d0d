//! The stock Java and Go clients and the admin tool against local mode: a name server and a broker
//! as processes. `cargo test -p e2e --test java_local`
//!
//! With `E2E_APACHE=1` the same runs against Apache's own servers, to check the test itself.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::java::{SendConsume, Target, VERSIONS, client_state, run_scenarios};
use e2e::local::LocalMode;
use e2e::process::output;
use e2e::scenario::Scenarios;
use e2e::{programs, say};

const RATE: u32 = 200;
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn stock_clients_cannot_tell_it_from_apache() -> Result<()> {
    let directory = tempfile::tempdir()?;
    if std::env::var_os("E2E_APACHE").is_some() {
        return against_apache(directory.path());
    }
    say("starting local mode");
    let local = LocalMode::start(directory.path())?;
    let outcome = scenarios(&local.target())
        .and_then(|()| a_killed_broker_loses_nothing(&local))
        .and_then(|()| a_killed_name_server_is_not_noticed(&local));
    if outcome.is_err() {
        println!("--- local mode printed:\n{}", local.log());
    }
    outcome?;
    say("stopping local mode");
    local.stop()
}

fn against_apache(directory: &Path) -> Result<()> {
    say("starting Apache's name server and broker");
    let peer = |action: &str| {
        let script = programs::root().join("e2e/peers/apache/peer.sh");
        let mut command = Command::new(script);
        output(command.arg(action).env("STATE", directory))
    };
    let target = Target {
        namesrv: peer("start")?.trim().to_owned(),
        broker: "127.0.0.1:20911".to_owned(),
        broker_name: "broker-a".to_owned(),
        cluster: "DefaultCluster".to_owned(),
        dns: None,
        state: client_state(directory),
    };
    let outcome = scenarios(&target);
    peer("stop")?;
    outcome
}

fn scenarios(target: &Target) -> Result<()> {
    let list = Scenarios::read()?;
    say("making the topics with mqadmin");
    output(target.java(VERSIONS[0], "AdminCommands").arg(peers("setup.txt")))?;
    for version in VERSIONS {
        say(&format!("scenarios of the Java client {version}"));
        let clients: &[&str] =
            if version.starts_with('5') { &["java", "java5"] } else { &["java"] };
        let offered = output(target.java(version, "Main").arg("--list"))?;
        run_scenarios(target.java(version, "Main"), &list.chosen(clients, &offered)?)?;
    }
    say("scenarios of the Go client");
    let offered = output(target.script("go/run.sh").arg("--list"))?;
    run_scenarios(target.script("go/run.sh"), &list.chosen(&["go"], &offered)?)?;
    say("commands of mqadmin");
    let mut command = target.java(VERSIONS[0], "AdminCommands");
    print!("{}", output(command.arg(peers("commands.txt")).env("LIVE", "1"))?);
    Ok(())
}

fn a_killed_broker_loses_nothing(local: &LocalMode) -> Result<()> {
    say("killing the broker while messages flow: local mode starts it again");
    let flow = SendConsume::start(&local.target(), "Killed", 0, RATE)?;
    flow.wait_for_flow(LIMIT)?;
    local.kill("rocketmq-broker")?;
    flow.wait_for_flow(LIMIT)?;
    let report = flow.finish()?;
    ensure!(report.lost == 0, "acknowledged messages were lost: {report:?}");
    Ok(())
}

fn a_killed_name_server_is_not_noticed(local: &LocalMode) -> Result<()> {
    say("killing the name server while messages flow");
    let flow = SendConsume::start(&local.target(), "Killed", 0, RATE)?;
    flow.wait_for_flow(LIMIT)?;
    local.kill("rocketmq-namesrv")?;
    flow.wait_for_flow(LIMIT)?;
    let report = flow.finish()?;
    ensure!(report.lost == 0 && report.failed == 0, "{report:?}");
    Ok(())
}

fn peers(file: &str) -> std::path::PathBuf {
    programs::root().join("e2e/peers").join(file)
}
