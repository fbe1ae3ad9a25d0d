//! Log files of child processes, bounded in size.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes of a log file; when it is full, it becomes `<name>.1` in place of the one before.
pub(super) const LOG_SIZE_MAX: u64 = 16 * 1024 * 1024;
/// Bytes of the end of a log that are remembered, to be shown if the process dies.
const TAIL_SIZE_MAX: usize = 4096;
/// Lines of it that are shown.
const TAIL_LINES_MAX: usize = 8;
const CHUNK_SIZE: usize = 8192;

#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    size: u64,
    size_max: u64,
    tail: Vec<u8>,
}

impl LogFile {
    /// Opens or continues a log.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::bounded(path, LOG_SIZE_MAX)
    }

    fn bounded(path: &Path, size_max: u64) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, size, size_max, tail: Vec::new() })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tail.extend_from_slice(bytes);
        let surplus = self.tail.len().saturating_sub(TAIL_SIZE_MAX);
        self.tail.drain(..surplus);
        if self.size >= self.size_max {
            std::fs::rename(&self.path, older(&self.path))?;
            *self = Self {
                tail: std::mem::take(&mut self.tail),
                ..Self::bounded(&self.path, self.size_max)?
            };
        }
        self.file.write_all(bytes)?;
        self.size += bytes.len() as u64;
        Ok(())
    }

    /// The last lines that were written since the log was opened.
    fn last_lines(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.tail);
        let mut lines: Vec<_> =
            text.lines().rev().take(TAIL_LINES_MAX).map(str::to_owned).collect();
        lines.reverse();
        lines
    }
}

fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

/// Copies both outputs of a process into its log until they end; returns the last lines.
///
/// A log that cannot be written (a full disk) must not stop the process: its output is still
/// read, so that it never blocks on a full pipe.
pub(super) async fn keep(
    mut log: LogFile,
    mut out: impl AsyncRead + Unpin,
    mut err: impl AsyncRead + Unpin,
) -> Vec<String> {
    let (mut out_chunk, mut err_chunk) = (vec![0; CHUNK_SIZE], vec![0; CHUNK_SIZE]);
    let (mut out_open, mut err_open) = (true, true);
    while out_open || err_open {
        let (read, chunk, open) = tokio::select! {
            read = out.read(&mut out_chunk), if out_open => (read, &out_chunk, &mut out_open),
            read = err.read(&mut err_chunk), if err_open => (read, &err_chunk, &mut err_open),
        };
        match read.ok().and_then(|length| chunk.get(..length)).filter(|bytes| !bytes.is_empty()) {
            Some(bytes) => drop(log.write(bytes)),
            None => *open = false,
        }
    }
    log.last_lines()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_bounded() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x.log");
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let mut log = LogFile::bounded(&path, 10).expect("opened");
        for line in ["first\n", "second\n", "third\n"] {
            log.write(line.as_bytes()).expect("written");
        }
        assert_eq!(
            (read(&older(&path)).as_str(), read(&path).as_str()),
            ("first\nsecond\n", "third\n")
        );
        assert_eq!(log.last_lines(), ["first", "second", "third"]);
        let mut log = LogFile::bounded(&path, 10).expect("continued");
        log.write(b"fourth\n").expect("written");
        log.write(b"fifth\n").expect("written");
        assert_eq!(
            (read(&older(&path)).as_str(), read(&path).as_str()),
            ("third\nfourth\n", "fifth\n")
        );
        assert_eq!(log.last_lines(), ["fourth", "fifth"]);
    }

    #[tokio::test]
    async fn both_outputs_are_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x.log");
        let many: String = (0..1000).map(|n| format!("line {n}\n")).collect();
        let log = LogFile::open(&path).expect("opened");
        let last = keep(log, many.as_bytes(), b"\xffoops".as_slice()).await;
        assert!(
            last.len() <= TAIL_LINES_MAX && last.iter().any(|line| line == "line 999"),
            "{last:?}"
        );
        let kept = std::fs::read(&path).expect("read");
        assert_eq!(kept.len(), many.len() + 5);
    }
}
