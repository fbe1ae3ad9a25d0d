//! Looking messages up by their keys.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use protocol::message_codec;

use super::{Index, State};
use crate::disk::File;
use crate::error::ReadError;
use crate::index_file::{ENTRY_BYTES, Entry, Header, IndexFile, Layout, SLOT_BYTES};
use crate::index_key;

/// Which messages to look up.
#[derive(Debug, Clone, Copy)]
pub struct QueryRequest<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Unique id, or one of the words of KEYS.
    pub key: &'a str,
    /// `key` is a unique id and nothing else.
    pub is_unique_key: bool,
    /// First store time, epoch milliseconds.
    pub begin: i64,
    /// Last store time, epoch milliseconds.
    pub end: i64,
    /// Most messages to return.
    pub max_messages: usize,
    /// Most bytes to return, except that one message is returned whatever its size.
    pub max_bytes: usize,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryResult {
    /// The newest records that have the key, oldest of them first.
    pub records: Vec<Bytes>,
    /// When the last message that the index knows was stored, epoch milliseconds.
    pub last_timestamp: i64,
    /// Commit log offset of the last message that the index knows.
    pub last_offset: i64,
}

/// The newest file as it is at one moment.
struct Snapshot {
    name: u64,
    path: std::path::PathBuf,
    file: Arc<dyn File>,
    header: Header,
    slot: u32,
    tail: Vec<u8>,
    tail_from: u32,
}

/// A search in progress.
struct Search<'a> {
    request: QueryRequest<'a>,
    hash: u32,
    seen: HashSet<i64>,
    found: Vec<(i64, Bytes)>,
    bytes: usize,
    is_full: bool,
}

/// The entries of one slot, newest first.
struct Chain<'a> {
    slot: usize,
    file: &'a dyn File,
    layout: Layout,
    tail: &'a [u8],
    tail_from: u32,
    next: u32,
}

/// What a chain has next.
enum Link {
    Entry(Entry),
    End,
    /// An entry of another slot, or one that does not lie before the last.
    Broken,
}

impl Chain<'_> {
    fn step(&mut self) -> io::Result<Link> {
        let number = self.next;
        if number == 0 {
            return Ok(Link::End);
        }
        let entry = match number.checked_sub(self.tail_from) {
            Some(index) => {
                let (entries, _) = self.tail.as_chunks::<ENTRY_BYTES>();
                entries.get(index as usize).map(Entry::decode)
            }
            None => Some(Entry::read(self.file, self.layout, number)?),
        };
        // Numbers only fall, so that no damage makes a circle.
        let is_sound =
            |entry: &Entry| entry.previous < number && self.layout.slot(entry.hash) == self.slot;
        let Some(entry) = entry.filter(is_sound) else { return Ok(Link::Broken) };
        self.next = entry.previous;
        Ok(Link::Entry(entry))
    }
}

impl Index {
    /// The newest messages that have a key and were stored in a range of time. Each record is
    /// compared with the request: the index knows hashes only.
    pub(crate) fn query(&self, request: &QueryRequest<'_>) -> Result<QueryResult, ReadError> {
        let hash = index_key::hash(request.topic, request.key);
        let (older, newest) = {
            let state = self.state.lock();
            (state.older.clone(), self.snapshot(&state, hash))
        };
        let mut search = Search {
            request: *request,
            hash,
            seen: HashSet::new(),
            found: Vec::new(),
            bytes: 0,
            is_full: request.max_messages == 0,
        };
        if let Some(newest) = &newest {
            self.search_newest(&mut search, newest)?;
        }
        for file in older.iter().rev() {
            if search.is_full {
                break;
            }
            self.search_file(&mut search, file)?;
        }
        let header = newest.map(|newest| newest.header);
        let header = header.or_else(|| older.last().map(|file| file.header));
        search.found.sort_unstable_by_key(|(offset, _)| *offset);
        Ok(QueryResult {
            records: search.found.into_iter().map(|(_, record)| record).collect(),
            last_timestamp: header.map_or(0, |header| header.end_timestamp),
            last_offset: header.map_or(0, |header| header.end_offset),
        })
    }

    fn snapshot(&self, state: &State, hash: u32) -> Option<Snapshot> {
        let newest = state.newest.as_ref()?;
        Some(Snapshot {
            name: newest.name,
            path: newest.path.clone(),
            file: Arc::clone(&newest.file),
            header: newest.header,
            slot: newest.slots[self.layout.slot(hash)],
            tail: newest.tail.clone(),
            tail_from: newest.tail_from(),
        })
    }

    fn search_newest(&self, search: &mut Search<'_>, newest: &Snapshot) -> Result<(), ReadError> {
        if !search.overlaps(&newest.header) {
            return Ok(());
        }
        let chain = Chain {
            slot: self.layout.slot(search.hash),
            file: &*newest.file,
            layout: self.layout,
            tail: &newest.tail,
            tail_from: newest.tail_from,
            next: newest.slot,
        };
        self.search_chain(search, chain, (newest.name, &newest.path, newest.header))
    }

    fn search_file(&self, search: &mut Search<'_>, file: &IndexFile) -> Result<(), ReadError> {
        if !search.overlaps(&file.header) {
            return Ok(());
        }
        let at = Layout::slot_at(self.layout.slot(search.hash));
        let open = match self.parts.disk.open(&file.path) {
            // Deleted meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            open => open.map_err(|error| read_error(&file.path, at, error))?,
        };
        let mut slot = [0; SLOT_BYTES];
        open.read_exact_at(&mut slot, at).map_err(|error| read_error(&file.path, at, error))?;
        let slot = u32::from_be_bytes(slot);
        let chain = Chain {
            slot: self.layout.slot(search.hash),
            file: &*open,
            layout: self.layout,
            tail: &[],
            tail_from: file.header.count,
            next: slot,
        };
        self.search_chain(search, chain, (file.name, &file.path, file.header))
    }

    fn search_chain(
        &self,
        search: &mut Search<'_>,
        mut chain: Chain<'_>,
        (name, path, header): (u64, &Path, Header),
    ) -> Result<(), ReadError> {
        let (begin, end) = (search.request.begin, search.request.end);
        while !search.is_full {
            let number = chain.next;
            let entry = chain
                .step()
                .map_err(|error| read_error(path, self.layout.entry_at(number), error))?;
            let entry = match entry {
                Link::Entry(entry) => entry,
                Link::End => break,
                Link::Broken => {
                    self.doom(name, path, "its entries do not follow each other");
                    break;
                }
            };
            let is_wanted = entry.hash == search.hash
                && entry.may_be_between(header.begin_timestamp, begin, end)
                && search.seen.insert(entry.offset);
            if is_wanted {
                self.look_at(search, entry.offset, (name, path))?;
            }
        }
        Ok(())
    }

    /// Takes the message of an entry if it is the one that is looked for. An entry whose message
    /// cannot have made it is damaged.
    fn look_at(
        &self,
        search: &mut Search<'_>,
        offset: i64,
        (name, path): (u64, &Path),
    ) -> Result<(), ReadError> {
        let record = self.parts.log.look_up(offset)?;
        let view = record.as_ref().and_then(|record| message_codec::decode_record(record).ok());
        let mut hashes = Vec::new();
        if let Some(view) = &view {
            index_key::hashes(view, &mut hashes);
        }
        if !hashes.contains(&search.hash) {
            if offset >= self.parts.log.min_offset() {
                self.doom(name, path, "an entry names another message");
            }
            return Ok(());
        }
        let (Some(view), Some(record)) = (view, &record) else { return Ok(()) };
        let QueryRequest { topic, key, is_unique_key, begin, end, .. } = search.request;
        if (begin..=end).contains(&view.store_timestamp)
            && index_key::matches(&view, topic, key, is_unique_key)
        {
            search.take(offset, record.clone());
        }
        Ok(())
    }

    /// A file has turned out to be damaged: it and all behind it are built anew.
    fn doom(&self, name: u64, path: &Path, reason: &str) {
        let path = path.display();
        tracing::error!(%path, reason, "index file is damaged, its keys will be indexed anew");
        self.parts.metrics.index_failures.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        let is_there = |name: u64| {
            let newest = state.newest.as_ref().map(|newest| newest.name);
            state.older.iter().map(|file| file.name).chain(newest).any(|other| other == name)
        };
        if self.is_enabled() && is_there(name) {
            state.doomed = Some(state.doomed.map_or(name, |doomed| doomed.min(name)));
        }
    }
}

impl Search<'_> {
    fn overlaps(&self, header: &Header) -> bool {
        header.begin_timestamp <= self.request.end && header.end_timestamp >= self.request.begin
    }

    fn take(&mut self, offset: i64, record: Bytes) {
        let bytes = self.bytes + record.len();
        if !self.found.is_empty() && bytes > self.request.max_bytes {
            self.is_full = true;
            return;
        }
        self.bytes = bytes;
        self.found.push((offset, record));
        self.is_full = self.found.len() >= self.request.max_messages;
    }
}

fn read_error(path: &Path, offset: u64, source: io::Error) -> ReadError {
    ReadError::Io { path: path.to_owned(), offset, bytes: ENTRY_BYTES, source }
}
