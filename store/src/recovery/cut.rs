//! Cutting off what lies behind the valid log.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::message_codec;

use super::{CHUNK_BYTES, Recovery, RecoveryReport};
use crate::commit_log::{Segment, segment_name};
use crate::error::StoreError;

impl Recovery<'_> {
    /// Makes everything behind the valid log zeros, after a copy if there are whole records in it.
    pub(super) fn cut_log(
        &self,
        reason: String,
        report: &mut RecoveryReport,
    ) -> Result<(), StoreError> {
        let end = report.log_end;
        let segments = self.log.segments_between(end, i64::MAX);
        let mut saved = Vec::new();
        for segment in &segments {
            let from = end.max(segment.start);
            let Some(data_end) = self.last_data(segment, from)? else { continue };
            report.cut_bytes += data_end - from;
            let records = self.count_records(segment, from, data_end)?;
            if records > 0 {
                report.cut_records += records;
                saved.push((Arc::clone(segment), from, data_end));
            }
        }
        if !saved.is_empty() {
            report.cut_saved_to = Some(self.save(end, &saved)?);
        }
        report.cut_reason = (report.cut_bytes > 0).then_some(reason);
        // The first file stays even when nothing in it is valid: it keeps the offsets.
        self.log.remove_from(end.max(report.log_min + 1))?;
        if let Some(segment) = self.log.segment_at(end) {
            self.zero(&segment, end)?;
        }
        self.log.set_end(end);
        Ok(())
    }

    /// Position behind the last byte that is not zero, or `None` when all are from `from` on.
    fn last_data(&self, segment: &Segment, from: i64) -> Result<Option<i64>, StoreError> {
        let end = segment.start + self.log.segment_bytes();
        let mut last = None;
        let mut offset = from;
        while offset < end {
            let next = segment.file.next_data(offset.abs_diff(segment.start));
            let next = next.map_err(StoreError::io("read", &segment.path))?;
            let Some(position) = next else { break };
            offset = offset.max(segment.start + position.cast_signed());
            let length = CHUNK_BYTES.min(end - offset);
            if length <= 0 {
                break;
            }
            let bytes = segment.bytes(offset, usize::try_from(length).unwrap_or(0))?;
            if let Some(position) = bytes.iter().rposition(|byte| *byte != 0) {
                last = Some(offset + i64::try_from(position).unwrap_or(0) + 1);
            }
            offset += length;
        }
        Ok(last)
    }

    /// Whole records with a good checksum in a range of which the start is damaged.
    fn count_records(&self, segment: &Segment, from: i64, to: i64) -> Result<u64, StoreError> {
        let length = usize::try_from(to - from).unwrap_or(0);
        let bytes = segment.bytes(from, length)?;
        let mut count = 0;
        let mut position = 0;
        while position + message_codec::FIXED_BYTES <= bytes.len() {
            let rest = &bytes[position..];
            let offset = from + i64::try_from(position).unwrap_or(0);
            let found = message_codec::decode_record(rest)
                .ok()
                .filter(|view| view.physical_offset == offset && view.check_body().is_ok());
            match found {
                Some(view) => {
                    count += 1;
                    position += view.bytes.len();
                }
                None => position += 1,
            }
        }
        Ok(count)
    }

    fn save(&self, end: i64, ranges: &[(Arc<Segment>, i64, i64)]) -> Result<PathBuf, StoreError> {
        let dir = self.config.store_path_root_dir.join("truncated");
        let path = dir.join(segment_name(end));
        let write = || {
            self.disk.create_dir_all(&dir)?;
            let file = self.disk.create(&path, 0)?;
            let mut at = 0;
            for (segment, from, to) in ranges {
                let length = usize::try_from(to - from).unwrap_or(0);
                let bytes = segment.file.bytes(from.abs_diff(segment.start), length)?;
                file.write_all_at(&bytes, at)?;
                at += bytes.len() as u64;
            }
            file.sync_data()?;
            self.disk.sync_dir(&dir)
        };
        write().map_err(StoreError::io("write", &path))?;
        Ok(path)
    }

    fn zero(&self, segment: &Segment, end: i64) -> Result<(), StoreError> {
        let path: &Path = &segment.path;
        if self.last_data(segment, end)?.is_some() || self.checkpoint.is_flush_failed() {
            let position = end.abs_diff(segment.start);
            let rest = self.log.segment_bytes().cast_unsigned() - position;
            segment.file.zero(position, rest).map_err(StoreError::io("truncate", path))?;
        }
        self.sync(segment)
    }
}
