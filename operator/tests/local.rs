//! Local mode with servers that only pretend: they read their configuration, listen on its ports
//! and say that they are ready. This program plays all roles: the test, `local up`, the servers.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::health::{Checks, Health, HealthServer};
use daemon::shutdown::Shutdown;
use operator::local::{self, Phase, Status};
use rustix::process::{Pid, Signal, kill_process};

const ROLE: &str = "LOCAL_TEST_ROLE";
/// What a role is told: the configuration file, or the flags of `local up`, one a line.
const TOLD: &str = "LOCAL_TEST_TOLD";
const LIMIT: Duration = Duration::from_secs(60);

const MANIFEST: &str = "\
apiVersion: rocketmq.rs/v1alpha1
kind: RocketMQCluster
metadata: {name: test}
spec:
  nameServer: {replicas: 1}
  brokers:
    groups: 1
    storage: {size: 1Gi}
    config: {fileReservedTime: \"48\"}
";

/// Not a test by itself: what this program does when it was started as something else.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let told = std::env::var(TOLD).expect("a role is told something");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let code = match role.as_str() {
        "server" => runtime.block_on(pretend(Path::new(&told))),
        _ => runtime.block_on(run_up(&told)),
    };
    std::process::exit(code);
}

async fn run_up(flags: &str) -> i32 {
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        args: local::Args,
    }

    let words = std::iter::once("program").chain(flags.lines());
    match local::run(&Program::parse_from(words).args).await {
        Ok(_) => 0,
        Err(error) => {
            println!("{error}");
            1
        }
    }
}

async fn pretend(config_file: &Path) -> i32 {
    let text = std::fs::read(config_file).expect("a configuration");
    let entries = daemon::properties::parse(&text).expect("properties");
    let get =
        |key: &str| entries.iter().find(|entry| entry.key == key).map(|entry| entry.value.clone());
    if get("fileReservedTime").as_deref() == Some("wrong") {
        eprintln!("broker.conf:3: `fileReservedTime` is `wrong`");
        return daemon::EXIT_CONFIG.into();
    }
    let shutdown = Shutdown::on_signals().expect("signals");
    let port = |key| get(key).and_then(|port| port.parse::<u16>().ok());
    let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let listen = local(port("listenPort").expect("a port"));
    let _listener = TcpListener::bind(listen).expect("a free port");
    let health_port = port("healthPort").or(port("metricsPromExporterPort")).expect("a port");
    let (live, ready) = (Checks::new(), Checks::new());
    let health = Health { registry: Arc::default(), live, ready, log_level: None };
    let health = HealthServer::bind(local(health_port), health).await.expect("a free port");
    health.serve(shutdown.token().clone()).await;
    let folder = config_file.parent().expect("a folder");
    let name = folder.file_name().expect("a name").to_string_lossy();
    let log = folder.parent().expect("a folder").join("stopped");
    let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log).expect("a log");
    writeln!(log, "{name}").expect("written");
    0
}

struct Bed {
    dir: tempfile::TempDir,
    port_offset: u16,
}

impl Bed {
    /// `number` tells the tests of this file apart: each has its own ports.
    fn new(number: u16) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let own = std::env::current_exe().expect("this program");
        let script = format!(
            "#!/bin/sh\n{ROLE}=server {TOLD}=\"$2\" exec '{}' --exact role --nocapture\n",
            own.display()
        );
        for program in ["rocketmq-namesrv", "rocketmq-broker"] {
            let path = dir.path().join(program);
            std::fs::write(&path, &script).expect("written");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&path, mode).expect("executable");
        }
        let spread = u16::try_from(std::process::id() % 60).expect("small");
        let bed = Self { dir, port_offset: 1000 + spread * 300 + number * 100 };
        bed.write(MANIFEST);
        bed
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("cluster.yaml")
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn write(&self, manifest: &str) {
        std::fs::write(self.file(), manifest).expect("written");
    }

    fn up(&self, log: &str) -> Up {
        let log = self.dir.path().join(log);
        let file = std::fs::File::create(&log).expect("a log");
        let flags = [
            "up".to_owned(),
            self.file().display().to_string(),
            format!("--data={}", self.data().display()),
            format!("--bin-dir={}", self.dir.path().display()),
            format!("--port-offset={}", self.port_offset),
        ];
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "role", "--nocapture"])
            .env(ROLE, "up")
            .env(TOLD, flags.join("\n"))
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a log"))
            .stderr(file)
            .spawn()
            .expect("started");
        Up { child, log }
    }

    fn status(&self) -> Option<Status> {
        serde_json::from_slice(&std::fs::read(self.data().join("status.json")).ok()?).ok()
    }

    #[track_caller]
    fn wait_for_status(&self, what: &str, is: impl Fn(&Status) -> bool) -> Status {
        wait_for(what, || self.status().filter(|status| is(status)))
    }

    fn broker_port(&self) -> u16 {
        10911 + self.port_offset
    }
}

struct Up {
    child: Child,
    log: PathBuf,
}

impl Up {
    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    #[track_caller]
    fn wait_to_say(&self, text: &str) {
        let said = || self.said().contains(text).then_some(());
        let deadline = Instant::now() + LIMIT;
        while said().is_none() {
            assert!(Instant::now() < deadline, "not said: {text}\n{}", self.said());
            pause();
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, signal).expect("signalled");
    }

    #[track_caller]
    fn ended(&mut self) -> Option<i32> {
        let child = &mut self.child;
        let status = wait_for("local up to end", || child.try_wait().expect("a child"));
        status.code()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[track_caller]
fn wait_for<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(found) = get() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited too long for {what}");
        pause();
    }
}

fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}

fn is_open(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

fn pid_of(status: &Status, name: &str) -> Option<u32> {
    status.processes.iter().find(|process| process.name == name)?.pid
}

fn kill(pid: Option<u32>) {
    let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    kill_process(pid.expect("a process"), Signal::KILL).expect("killed");
}

#[test]
fn a_cluster_follows_its_manifest_and_stops_in_order() {
    let bed = Bed::new(0);
    let mut up = bed.up("log");
    up.wait_to_say("cluster test is ready");
    assert!(is_open(bed.broker_port()));
    let status = bed.wait_for_status("ready", Status::is_ready);
    let broker = pid_of(&status, "test-0-0");

    kill(broker);
    let back = |status: &Status| {
        status.is_ready() && status.processes.iter().any(|process| process.restarts == 1)
    };
    let status = bed.wait_for_status("the broker to be back", back);
    assert_ne!(pid_of(&status, "test-0-0"), broker);
    assert!(up.said().contains("broker test-0-0 ended (signal: 9"), "{}", up.said());

    bed.write(&MANIFEST.replace("groups: 1", "groups: 2"));
    let two = |status: &Status| status.is_ready() && pid_of(status, "test-1-0").is_some();
    let grown = bed.wait_for_status("a second group", two);
    assert_eq!(pid_of(&grown, "test-0-0"), pid_of(&status, "test-0-0"), "not restarted by growth");
    std::fs::create_dir_all(bed.data().join("test-1-0/store")).expect("messages");

    let changed = MANIFEST.replace("groups: 1", "groups: 2").replace("48", "24");
    bed.write(&changed);
    bed.wait_for_status("both brokers restarted", |status| {
        status.is_ready()
            && ["test-0-0", "test-1-0"]
                .iter()
                .all(|name| pid_of(status, name) != pid_of(&grown, name))
    });
    let config = std::fs::read_to_string(bed.data().join("test-1-0/broker.conf")).expect("a file");
    assert!(config.contains("fileReservedTime=24"), "{config}");

    bed.write(MANIFEST);
    up.wait_to_say("spec.brokers.groups: must not become fewer");
    bed.write(&changed.replace("groups: 2", "groups: two"));
    up.wait_to_say("spec.brokers.groups: must be a whole number, not \"two\"");
    let status = bed.wait_for_status("the problem shown", |status| !status.problem.is_empty());
    assert!(status.processes.iter().all(|process| process.phase == Phase::Ready), "{status:?}");

    bed.write(&changed);
    up.wait_to_say("nothing to do");
    let mut second = bed.up("second");
    assert_eq!(second.ended(), Some(1));
    let holder = format!("in use by process {}", up.child.id());
    assert!(second.said().contains(&holder), "{}", second.said());

    let _ = std::fs::remove_file(bed.data().join("stopped"));
    up.signal(Signal::TERM);
    assert_eq!(up.ended(), Some(0), "{}", up.said());
    up.wait_to_say("the data is kept in");
    let stopped = std::fs::read_to_string(bed.data().join("stopped")).expect("servers stopped");
    assert_eq!(stopped.lines().last(), Some("test-namesrv-0"), "{stopped}");
    assert_eq!(stopped.lines().count(), 3, "{stopped}");
}

#[test]
fn a_refused_configuration_waits_for_a_better_one() {
    let bed = Bed::new(1);
    bed.write(&MANIFEST.replace("48", "wrong"));
    let mut up = bed.up("log");
    up.wait_to_say("broker test-0-0 refuses its configuration");
    up.wait_to_say("broker.conf:3: `fileReservedTime` is `wrong`");
    bed.wait_for_status("refusal", |status| status.problem.contains("refuses"));
    bed.write(MANIFEST);
    up.wait_to_say("cluster test is ready");
    bed.wait_for_status("ready", Status::is_ready);
    up.signal(Signal::INT);
    assert_eq!(up.ended(), Some(0));
}

#[test]
fn children_die_with_a_killed_parent_and_ports_in_use_are_named() {
    let bed = Bed::new(2);
    let taken = TcpListener::bind(("127.0.0.1", bed.broker_port())).expect("a free port");
    let mut up = bed.up("taken");
    assert_eq!(up.ended(), Some(1));
    let expected =
        format!("port {}, which broker test-0-0 needs, is in use by another", bed.broker_port());
    assert!(up.said().contains(&expected), "{}", up.said());
    drop(taken);

    let mut up = bed.up("killed");
    up.wait_to_say("cluster test is ready");
    up.signal(Signal::KILL);
    up.ended();
    wait_for("the servers to end", || (!is_open(bed.broker_port())).then_some(()));
    let mut up = bed.up("again");
    up.wait_to_say("cluster test is ready");
    up.signal(Signal::TERM);
    assert_eq!(up.ended(), Some(0));
}
