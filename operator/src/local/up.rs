//! `local up`: from a manifest to a running cluster that follows it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::shutdown::Shutdown;
use tokio::time::interval;

use super::LocalError;
use super::args::UpArgs;
use super::cluster::{Cluster, RolloutError};
use super::data_dir;
use super::lock::Lock;
use super::manifest::{self, Manifest};
use super::plan::{self, Place, Plan};
use super::report::{self, say};
use super::status::{self, Board, Status};

/// Time between two looks at the manifest. A change counts once it is the same in two looks:
/// editors write in pieces.
const LOOK_INTERVAL: Duration = Duration::from_millis(300);
/// Tasks have this long to end after all processes have.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the cluster until `shutdown`.
///
/// # Errors
/// If the manifest, the data directory or a port cannot be used. A later wrong change of the
/// manifest is reported and leaves the cluster as it is.
pub async fn up(args: &UpArgs, shutdown: &Shutdown) -> Result<(), LocalError> {
    let manifest = manifest::read(&args.file)?;
    let place = place(args, &manifest)?;
    let result = run(args, shutdown, &manifest, &place).await;
    if args.ephemeral
        && let Err(source) = std::fs::remove_dir_all(&place.data)
    {
        say(&format!("cannot remove {}: {source}", place.data.display()));
    }
    result.map(|()| report::stopped(&place.data, !args.ephemeral))
}

fn place(args: &UpArgs, manifest: &Manifest) -> Result<Place, LocalError> {
    let programs = match &args.bin_dir {
        Some(dir) => dir.clone(),
        None => own_folder()?,
    };
    // A relative program would be looked for in another directory by its supervisor's child.
    let programs = std::path::absolute(&programs).map_err(|source| LocalError::Io {
        what: "find",
        path: programs.clone(),
        source,
    })?;
    let data = if args.ephemeral {
        data_dir::create_ephemeral(&manifest.name)?
    } else {
        let chosen = args.data.clone();
        data_dir::create(&chosen.unwrap_or_else(|| data_dir::default_of(&manifest.name)))?
    };
    Ok(Place { data, programs, port_offset: args.port_offset })
}

fn own_folder() -> Result<PathBuf, LocalError> {
    let own = std::env::current_exe().map_err(|source| LocalError::Io {
        what: "find",
        path: "this program".into(),
        source,
    })?;
    Ok(own.parent().map(Path::to_owned).unwrap_or_default())
}

async fn run(
    args: &UpArgs,
    shutdown: &Shutdown,
    manifest: &Manifest,
    place: &Place,
) -> Result<(), LocalError> {
    let _lock = Lock::take(&place.data)?;
    let plan = plan::plan(manifest, place)?;
    plan.check_programs()?;
    data_dir::check_brokers(&plan, &place.data)?;
    report::starting(manifest, place);
    for name in data_dir::move_single_brokers(&plan, &place.data)? {
        say(&format!("the data of broker {name} is in {name}-0 from now on"));
    }
    let board = Board::new(Status {
        cluster: manifest.name.clone(),
        manifest: std::path::absolute(&args.file).unwrap_or_else(|_| args.file.clone()),
        data: place.data.clone(),
        namesrv_addr: plan.namesrv_addr.clone(),
        problem: String::new(),
        processes: Vec::new(),
    });
    shutdown.spawn("status file", status::keep_file(board.subscribe(), place.data.clone()));
    let mut follower = Follower {
        file: &args.file,
        place,
        board: board.clone(),
        cluster: Cluster::new(board, place.data.clone(), shutdown.clone()),
    };
    let result = follower.follow(shutdown, plan).await;
    follower.cluster.stop().await;
    drop(follower);
    if !shutdown.tasks_ended(END_TIMEOUT).await {
        tracing::warn!("some tasks did not end");
    }
    result
}

struct Follower<'a> {
    file: &'a Path,
    place: &'a Place,
    board: Board,
    cluster: Cluster,
}

impl Follower<'_> {
    async fn follow(&mut self, shutdown: &Shutdown, first: Plan) -> Result<(), LocalError> {
        let mut look = Look::new(self.file);
        let mut plan = first;
        let mut applied = false;
        let mut ran = false;
        loop {
            let cluster = &mut self.cluster;
            let apply = async {
                if applied { std::future::pending().await } else { cluster.apply(&plan).await }
            };
            tokio::select! {
                () = shutdown.requested() => return Ok(()),
                text = look.changed() => match self.replan(&plan, &text) {
                    Ok(new) => {
                        applied = new == plan;
                        if applied {
                            say(&format!("{} changed, nothing to do", self.file.display()));
                            self.problem(String::new());
                        } else {
                            say(&format!("{} changed", self.file.display()));
                        }
                        plan = new;
                    }
                    Err(error) => {
                        say(&format!("{error}\nthe cluster stays as it is until that is mended"));
                        self.problem(error.to_string());
                    }
                },
                outcome = apply => {
                    applied = true;
                    match outcome {
                        Ok(()) => {
                            ran = true;
                            self.running(&plan);
                        }
                        // Nothing was started yet.
                        Err(error @ RolloutError::PortInUse { .. }) if !ran => {
                            return Err(error.into());
                        }
                        Err(error) => {
                            say(&format!("{error}\nchange {} to go on", self.file.display()));
                            self.problem(error.to_string());
                        }
                    }
                }
            }
        }
    }

    fn running(&self, plan: &Plan) {
        self.board.update(|status| {
            status.problem.clear();
            status.namesrv_addr.clone_from(&plan.namesrv_addr);
        });
        report::running(plan, self.place, self.file);
    }

    fn problem(&self, problem: String) {
        self.board.update(|status| status.problem = problem);
    }

    fn replan(&self, now: &Plan, text: &str) -> Result<Plan, LocalError> {
        let manifest = manifest::parse(self.file, text)?;
        if manifest.name != now.cluster {
            return Err(LocalError::Renamed { from: now.cluster.clone(), to: manifest.name });
        }
        let plan = plan::plan(&manifest, self.place)?;
        if plan.groups < now.groups {
            let (was, wanted) = (now.groups, plan.groups);
            return Err(LocalError::FewerGroups { was, wanted });
        }
        if plan.replicas < now.replicas {
            let (was, wanted) = (now.replicas, plan.replicas);
            return Err(LocalError::FewerReplicas { was, wanted });
        }
        data_dir::check_brokers(&plan, &self.place.data)?;
        Ok(plan)
    }
}

/// Looks at a file again and again.
struct Look<'a> {
    file: &'a Path,
    known: Option<String>,
    /// Seen once, perhaps half written.
    fresh: Option<String>,
}

impl<'a> Look<'a> {
    fn new(file: &'a Path) -> Self {
        Self { file, known: std::fs::read_to_string(file).ok(), fresh: None }
    }

    /// The text once it has become another. A file that is gone is thought to come back.
    async fn changed(&mut self) -> String {
        let mut looks = interval(LOOK_INTERVAL);
        loop {
            looks.tick().await;
            let Ok(text) = tokio::fs::read_to_string(self.file).await else { continue };
            if self.known.as_ref() == Some(&text) {
                self.fresh = None;
            } else if self.fresh.as_ref() == Some(&text) {
                self.fresh = None;
                self.known = Some(text.clone());
                return text;
            } else {
                self.fresh = Some(text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_counts_once_it_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("c.yaml");
        std::fs::write(&file, "a").expect("written");
        let mut look = Look::new(&file);
        let none = tokio::time::timeout(LOOK_INTERVAL * 5, look.changed()).await;
        assert!(none.is_err(), "nothing changed");
        std::fs::remove_file(&file).expect("removed");
        let none = tokio::time::timeout(LOOK_INTERVAL * 5, look.changed()).await;
        assert!(none.is_err(), "gone, not changed");
        std::fs::write(&file, "b").expect("written");
        assert_eq!(look.changed().await, "b");
        let none = tokio::time::timeout(LOOK_INTERVAL * 5, look.changed()).await;
        assert!(none.is_err(), "told once");
    }
}
