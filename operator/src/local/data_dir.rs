//! The directory of a local cluster: which one it is, and what may be done with it.

use std::path::{Path, PathBuf};

use super::plan::Plan;

/// Where clusters are kept unless `--data` says otherwise.
const DEFAULT_FOLDER: &str = ".rocketmq";

#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("cannot {what} {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error(
        "there is no local cluster in {}: name its directory with --data DIR",
        folder.display()
    )]
    NoCluster { folder: PathBuf },
    #[error(
        "there are several local clusters in {}: say which ({})", folder.display(), found.join(", ")
    )]
    ManyClusters { folder: PathBuf, found: Vec<String> },
    #[error("there is no local cluster in {}", dir.display())]
    NotThere { dir: PathBuf },
    #[error(
        "spec.brokers: {groups} groups of {replicas} would leave out {surplus}, whose messages are \
         in {}: keep them, or use another data directory",
        dir.display()
    )]
    Fewer { groups: usize, replicas: usize, surplus: String, dir: PathBuf },
}

/// Where the data of a cluster is by default.
pub(super) fn default_of(cluster: &str) -> PathBuf {
    Path::new(DEFAULT_FOLDER).join(cluster)
}

/// Makes a directory (and its parents) and returns its absolute path.
pub(super) fn create(dir: &Path) -> Result<PathBuf, DataDirError> {
    let failed = |what| move |source| DataDirError::Io { what, path: dir.to_owned(), source };
    std::fs::create_dir_all(dir).map_err(failed("create"))?;
    std::fs::canonicalize(dir).map_err(failed("find"))
}

/// A directory of this process alone, for a cluster whose data goes when it stops.
pub(super) fn create_ephemeral(cluster: &str) -> Result<PathBuf, DataDirError> {
    let name = format!("rocketmq-{cluster}-{}", std::process::id());
    create(&std::env::temp_dir().join(name))
}

/// The directory that `status` and `down` mean.
pub(super) fn find(cluster: Option<&str>, data: Option<&Path>) -> Result<PathBuf, DataDirError> {
    find_below(Path::new(DEFAULT_FOLDER), cluster, data)
}

fn find_below(
    folder: &Path,
    cluster: Option<&str>,
    data: Option<&Path>,
) -> Result<PathBuf, DataDirError> {
    let named = data.map(Path::to_owned).or_else(|| cluster.map(|cluster| folder.join(cluster)));
    if let Some(dir) = named {
        return if dir.is_dir() { Ok(dir) } else { Err(DataDirError::NotThere { dir }) };
    }
    let mut found: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| folder.join(name).is_dir())
        .collect();
    found.sort();
    match found.as_slice() {
        [] => Err(DataDirError::NoCluster { folder: folder.to_owned() }),
        [only] => Ok(folder.join(only)),
        _ => Err(DataDirError::ManyClusters { folder: folder.to_owned(), found }),
    }
}

/// Gives the only broker of each group the directory that it has since groups can have several:
/// `orders-0-0` instead of `orders-0`. Returns what was moved.
pub(super) fn move_single_brokers(plan: &Plan, dir: &Path) -> Result<Vec<String>, DataDirError> {
    let mut moved = Vec::new();
    for group in 0..plan.groups {
        let name = format!("{}-{group}", plan.cluster);
        let (from, to) = (dir.join(&name), dir.join(format!("{name}-0")));
        if from.join("store").is_dir() && !to.exists() {
            std::fs::rename(&from, &to).map_err(|source| DataDirError::Io {
                what: "move",
                path: from,
                source,
            })?;
            moved.push(name);
        }
    }
    Ok(moved)
}

/// A plan may not leave out a broker that has messages, as on Kubernetes.
pub(super) fn check_brokers(plan: &Plan, dir: &Path) -> Result<(), DataDirError> {
    let prefix = format!("{}-", plan.cluster);
    let is_surplus = |name: &str| {
        let numbers = name.strip_prefix(&prefix).and_then(|rest| rest.split_once('-'));
        let numbers = numbers.and_then(|(group, replica)| {
            Some((group.parse::<usize>().ok()?, replica.parse::<usize>().ok()?))
        });
        numbers.is_some_and(|(group, replica)| group >= plan.groups || replica >= plan.replicas)
    };
    let mut surplus: Vec<String> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| is_surplus(name) && dir.join(name).join("store").is_dir())
        .collect();
    if surplus.is_empty() {
        return Ok(());
    }
    surplus.sort();
    let (groups, replicas, surplus) = (plan.groups, plan.replicas, surplus.join(", "));
    Err(DataDirError::Fewer { groups, replicas, surplus, dir: dir.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_before_there_were_replicas_is_found() {
        let base = tempfile::tempdir().expect("a directory");
        let plan = Plan {
            cluster: "c".to_owned(),
            namesrv_addr: String::new(),
            name_servers: Vec::new(),
            brokers: Vec::new(),
            groups: 2,
            replicas: 1,
            min_in_sync: 1,
            controller: ([127, 0, 0, 1], 9878).into(),
        };
        create(&base.path().join("c-0/store")).expect("created");
        // Only the record of elections: no broker's.
        create(&base.path().join("c-1")).expect("created");
        assert_eq!(move_single_brokers(&plan, base.path()).expect("moved"), ["c-0"]);
        assert!(base.path().join("c-0-0/store").is_dir() && base.path().join("c-1").is_dir());
        assert_eq!(move_single_brokers(&plan, base.path()).expect("nothing"), [""; 0]);
        check_brokers(&plan, base.path()).expect("nothing is left out");
        let fewer = Plan { groups: 0, ..plan };
        let error = check_brokers(&fewer, base.path()).expect_err("left out").to_string();
        assert!(error.contains("0 groups of 1 would leave out c-0-0"), "{error}");
    }

    #[test]
    fn which_directory() {
        let base = tempfile::tempdir().expect("a directory");
        let folder = base.path().join(DEFAULT_FOLDER);
        let find = |cluster, data| find_below(&folder, cluster, data);
        let error = find(None, None).expect_err("nothing there").to_string();
        assert!(error.starts_with("there is no local cluster in "), "{error}");
        create(&folder.join("a")).expect("created");
        assert_eq!(find(None, None).expect("the only one"), folder.join("a"));
        create(&folder.join("b")).expect("created");
        let error = find(None, None).expect_err("two").to_string();
        assert!(error.ends_with("say which (a, b)"), "{error}");
        assert_eq!(find(Some("b"), None).expect("named"), folder.join("b"));
        assert_eq!(find(None, Some(base.path())).expect("named"), base.path());
        assert!(find(Some("c"), None).is_err());
    }
}
