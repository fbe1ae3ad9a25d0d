//! A file of the simulated disk.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{PAGE_BYTES, State, error_of, place};
use crate::disk::File;

#[derive(Debug)]
pub(super) struct SimFile {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) number: u64,
}

impl File for SimFile {
    fn size(&self) -> io::Result<u64> {
        let mut state = self.state.lock();
        state.check_alive()?;
        Ok(state.inode(self.number)?.size)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.operate_whole()?;
        let inode = state.inode(self.number)?;
        let is_shorter = size < inode.size;
        inode.size = size;
        if is_shorter {
            inode.forget_beyond_end();
        }
        Ok(())
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_alive()?;
        let inode = state.inode(self.number)?;
        if offset + buffer.len() as u64 > inode.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        inode.read(buffer, offset);
        Ok(())
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let fault = state.operate()?;
        let now_ms = state.now_ms;
        let length = match fault {
            None => bytes.len(),
            Some(_) => state.below(bytes.len() + 1),
        };
        let is_full = state.is_full;
        let inode = state.inode(self.number)?;
        let is_reserved = offset + bytes.len() as u64 <= inode.allocated
            || (place(offset).0..=place(offset + bytes.len() as u64).0)
                .all(|page| inode.pages.contains_key(&page));
        if is_full && !is_reserved {
            return Err(io::ErrorKind::StorageFull.into());
        }
        inode.write(&bytes[..length], offset);
        inode.modified_ms = now_ms;
        fault.map_or(Ok(()), |fault| Err(error_of(fault)))
    }

    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.operate_whole()?;
        if state.is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let inode = state.inode(self.number)?;
        inode.allocated = inode.allocated.max(offset + bytes);
        Ok(())
    }

    fn zero(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let fault = state.operate()?;
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        let length = if fault.is_some() { state.below(length + 1) } else { length };
        state.inode(self.number)?.write(&vec![0; length], offset);
        fault.map_or(Ok(()), |fault| Err(error_of(fault)))
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        let mut state = self.state.lock();
        state.check_alive()?;
        let inode = state.inode(self.number)?;
        let page = inode.pages.range(place(offset).0..).next();
        let start = page.map(|(number, _)| (number * PAGE_BYTES as u64).max(offset));
        Ok(start.filter(|start| *start < inode.size))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let fault = state.operate()?;
        let mut inode = std::mem::take(state.inode(self.number)?);
        match fault {
            None => inode.sync(),
            Some(_) => inode.sync_some(&mut state),
        }
        *state.inode(self.number)? = inode;
        fault.map_or(Ok(()), |fault| Err(error_of(fault)))
    }
}
