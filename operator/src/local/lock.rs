//! The lock of a data directory: one `local up` at a time.
//!
//! The kernel drops the lock however its holder dies; the text in the file says who it was.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

const FILE: &str = "lock";

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error(
        "{} is in use by process {holder} (another `local up`); stop that with Ctrl-C in its \
         terminal or `rocketmq-operator local down --data {}`",
        dir.display(), dir.display()
    )]
    Held { dir: PathBuf, holder: String },
    #[error("cannot lock {}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
}

/// Held until dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of a directory that exists.
    pub(super) fn take(dir: &Path) -> Result<Self, LockError> {
        let path = dir.join(FILE);
        let failed = |source| LockError::Io { path: path.clone(), source };
        let mut file = open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = text(&mut file).unwrap_or_default();
                let holder = if holder.is_empty() { "(unknown)".to_owned() } else { holder };
                return Err(LockError::Held { dir: dir.to_owned(), holder });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        write!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

/// The process that holds the lock; none if nobody does.
pub(super) fn holder(dir: &Path) -> Result<Option<i32>, LockError> {
    let path = dir.join(FILE);
    let mut file = match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(LockError::Io { path, source }),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => {
            let failed = |source| LockError::Io { path: path.clone(), source };
            let holder = text(&mut file).map_err(failed)?;
            // Empty for the instant in which its holder writes it.
            Ok(holder.parse().ok())
        }
        Err(TryLockError::Error(source)) => Err(LockError::Io { path, source }),
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn text(file: &mut File) -> std::io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.take(32).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(holder(dir.path()).expect("no lock"), None);
        let lock = Lock::take(dir.path()).expect("free");
        let me = std::process::id();
        let error = Lock::take(dir.path()).expect_err("held").to_string();
        assert!(error.contains(&format!("in use by process {me} (another `local up`)")), "{error}");
        assert_eq!(holder(dir.path()).expect("a lock"), i32::try_from(me).ok());
        drop(lock);
        assert_eq!(holder(dir.path()).expect("a lock"), None);
        Lock::take(dir.path()).expect("free again");
    }
}
