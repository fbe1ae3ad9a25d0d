//! Frames of the default HA protocol, by which a slave gets the master's commit log over a TCP
//! connection of its own (Java `DefaultHAConnection`, `DefaultHAClient`). All integers are
//! big-endian and signed.
//!
//! | from | frame |
//! |---|---|
//! | slave | i64: end of its log, which is request and acknowledgement |
//! | master | i64 offset, i32 bytes, then as many bytes of the log; none of them is a heartbeat |

use bytes::{Buf as _, BufMut as _};

/// Bytes of a slave's report.
pub const REPORT_BYTES: usize = 8;
/// Bytes before those of the log.
pub const TRANSFER_HEADER_BYTES: usize = 12;

/// What stands before bytes of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferHeader {
    /// Where the bytes lie in the master's log; for a heartbeat, where the next ones will.
    pub offset: i64,
    /// How many there are; 0 for a heartbeat.
    pub body_bytes: u32,
}

/// Bytes are no header of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a transfer of {bytes} bytes at offset {offset} is none")]
pub struct TransferHeaderError {
    /// Offset in the header.
    pub offset: i64,
    /// Size in the header.
    pub bytes: i32,
}

impl TransferHeader {
    /// The bytes on the wire.
    #[must_use]
    pub fn encode(self) -> [u8; TRANSFER_HEADER_BYTES] {
        let mut bytes = [0; TRANSFER_HEADER_BYTES];
        let mut fields = &mut bytes[..];
        fields.put_i64(self.offset);
        fields.put_u32(self.body_bytes);
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// Offset or size are negative.
    pub fn decode(bytes: [u8; TRANSFER_HEADER_BYTES]) -> Result<Self, TransferHeaderError> {
        let mut fields = &bytes[..];
        let (offset, bytes) = (fields.get_i64(), fields.get_i32());
        match u32::try_from(bytes) {
            Ok(body_bytes) if offset >= 0 => Ok(Self { offset, body_bytes }),
            _ => Err(TransferHeaderError { offset, bytes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_are_written() {
        let header = TransferHeader { offset: 0x1_0000_0002, body_bytes: 3 };
        assert_eq!(header.encode(), [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3]);
        assert_eq!(TransferHeader::decode(header.encode()), Ok(header));
        for (offset, bytes) in [(-1_i64, 0_i32), (0, -1), (0, i32::MIN)] {
            let mut wrong = [0; TRANSFER_HEADER_BYTES];
            wrong[..8].copy_from_slice(&offset.to_be_bytes());
            wrong[8..].copy_from_slice(&bytes.to_be_bytes());
            assert_eq!(TransferHeader::decode(wrong), Err(TransferHeaderError { offset, bytes }));
        }
    }
}
