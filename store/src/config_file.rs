//! A small file that is replaced as a whole, such as `config/topics.json`: never half-written, and
//! the version before is kept as `.bak` and read when the main one is missing or damaged.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::Disk;
use crate::error::StoreError;

/// Which of the two files was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The file itself.
    Main,
    /// `.bak`, because the file itself is missing or damaged.
    Backup,
}

/// Why neither the file nor its backup could be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError<E> {
    /// The disk refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The content is damaged and there is no good backup.
    #[error("{} is damaged and so is its backup, if it has one: {error}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What the parser said about it.
        error: E,
    },
}

/// See the module.
#[derive(Debug)]
pub struct ConfigFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// One writer at a time.
    writing: Mutex<()>,
}

impl ConfigFile {
    /// The file at `path`, which need not exist.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, path: impl Into<PathBuf>) -> Self {
        Self { disk, path: path.into(), writing: Mutex::new(()) }
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn sibling(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    }

    /// Reads and parses the file, or its backup when it is missing or does not parse. `None` when
    /// neither exists.
    ///
    /// # Errors
    /// The disk refuses, or there is a file but none that parses.
    pub fn load<T, E>(
        &self,
        parse: impl Fn(&[u8]) -> Result<T, E>,
    ) -> Result<Option<(T, Source)>, LoadError<E>> {
        let mut damaged = None;
        for (path, source) in
            [(self.path.clone(), Source::Main), (self.sibling(".bak"), Source::Backup)]
        {
            let Some(content) = self.read(&path)? else { continue };
            match parse(&content) {
                Ok(value) => return Ok(Some((value, source))),
                Err(error) => {
                    damaged.get_or_insert(LoadError::Damaged { path, error });
                }
            }
        }
        damaged.map_or(Ok(None), Err)
    }

    /// Replaces the file durably; the content before becomes the backup.
    ///
    /// # Errors
    /// The disk refuses. The file or its backup then still has the content before.
    pub fn store(&self, content: &[u8]) -> Result<(), StoreError> {
        let _writing = self.writing.lock();
        let dir = self.path.parent().unwrap_or(Path::new("."));
        self.disk.create_dir_all(dir).map_err(StoreError::io("create", dir))?;
        let new = self.sibling(".tmp");
        let write = || {
            let file = self.disk.create(&new, 0)?;
            file.write_all_at(content, 0)?;
            file.sync_data()
        };
        write().map_err(StoreError::io("write", &new))?;
        match self.disk.rename(&self.path, &self.sibling(".bak")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            outcome => outcome.map_err(StoreError::io("rename", &self.path))?,
        }
        self.disk.rename(&new, &self.path).map_err(StoreError::io("rename", &new))?;
        self.disk.sync_dir(dir).map_err(StoreError::io("sync", dir))
    }

    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
        let file = match self.disk.open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::io("open", path)(error)),
        };
        let read = || {
            let size = usize::try_from(file.size()?).map_err(io::Error::other)?;
            let mut content = vec![0; size];
            file.read_exact_at(&mut content, 0)?;
            Ok(content)
        };
        read().map(Some).map_err(StoreError::io("read", path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;

    fn number(content: &[u8]) -> Result<u32, String> {
        std::str::from_utf8(content).unwrap().parse().map_err(|_| "no number".to_owned())
    }

    #[test]
    fn the_backup_is_read_when_the_file_is_missing_or_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config/topics.json");
        let file = ConfigFile::new(Arc::new(RealDisk), &path);
        assert!(file.load(number).unwrap().is_none());
        file.store(b"1").unwrap();
        assert_eq!(file.load(number).unwrap(), Some((1, Source::Main)));
        file.store(b"2").unwrap();
        assert_eq!(file.load(number).unwrap(), Some((2, Source::Main)));
        std::fs::write(&path, "").unwrap();
        assert_eq!(file.load(number).unwrap(), Some((1, Source::Backup)));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.load(number).unwrap(), Some((1, Source::Backup)));
        file.store(b"3").unwrap();
        assert_eq!(file.load(number).unwrap(), Some((3, Source::Main)));
        std::fs::write(&path, "x").unwrap();
        std::fs::remove_file(dir.path().join("config/topics.json.bak")).unwrap();
        let error = file.load(number).unwrap_err();
        assert!(matches!(error, LoadError::Damaged { .. }), "{error}");
    }
}
