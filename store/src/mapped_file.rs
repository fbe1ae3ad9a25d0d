//! Memory mapping of a commit log file for reading: the only `unsafe` of the project.

use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::{Mmap, MmapOptions, UncheckedAdvice};

/// A file mapped for reading from its start.
///
/// The mapping lives as long as any [`Bytes`] cut from it, also after the file is deleted.
#[derive(Debug, Clone)]
pub(crate) struct MappedFile {
    mapping: Arc<Mmap>,
    bytes: Bytes,
}

impl MappedFile {
    /// The mapped bytes; slices share the mapping without a copy.
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Takes the pages that were read out of this process's memory; the system keeps them, and they
    /// come back as they are read again.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn release(&self) -> io::Result<()> {
        // SAFETY: This advice is unsafe because it throws away what was written to a private
        // mapping. The mapping is shared and never written to: all that goes are entries of the
        // page table, and readers that come meanwhile fault the same bytes in again.
        #[allow(unsafe_code)]
        unsafe {
            self.mapping.unchecked_advise(UncheckedAdvice::DontNeed)
        }
    }
}

/// What keeps the mapping alive for as long as a slice of it is.
struct Owner(Arc<Mmap>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Maps the first `len` bytes of `file`.
///
/// # Errors
/// The file cannot be mapped, or is shorter than `len`.
pub(crate) fn map(file: &File, len: usize) -> io::Result<MappedFile> {
    let size = file.metadata()?.len();
    if size < len as u64 {
        let text = format!("file has {size} bytes, {len} were to be mapped");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
    }
    // SAFETY: A mapping must not shrink and its bytes must not change while a slice is read.
    // The store holds an exclusive lock on its directory, never shortens a mapped file, and hands
    // out only ranges that are readable by consumers, which are never written again: what recovery
    // or a slave zeroes lies above every range handed out. A length beyond the file would fault; it
    // was compared above.
    #[allow(unsafe_code)]
    let mapping = unsafe { MmapOptions::new().len(len).map(file) }?;
    let mapping = Arc::new(mapping);
    let bytes = Bytes::from_owner(Owner(Arc::clone(&mapping)));
    Ok(MappedFile { mapping, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn a_slice_sees_writes_and_outlives_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [0; 8192]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mapped = map(&file, 8192).unwrap();
        file.write_all_at(b"hello", 5000).unwrap();
        let slice = mapped.bytes().slice(5000..5005);
        assert_eq!(slice, "hello");
        mapped.release().unwrap();
        assert_eq!(slice, "hello", "what was released comes back");
        std::fs::remove_file(&path).unwrap();
        drop((file, mapped));
        assert_eq!(slice, "hello");
    }

    #[test]
    fn a_short_file_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10).unwrap();
        assert_eq!(map(&file, 11).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(map(&file, 10).unwrap().bytes().len(), 10);
    }
}
