//! What a master and its slaves say to each other on the replication port, when a controller gives
//! them their roles.
//!
//! Frames: length of the rest (u32), kind (u8), fields; all numbers big-endian, texts as their
//! length (u16) and UTF-8. A slave begins with a hello, which starts with a magic number, and the
//! master answers with its own; then the master sends data and the slave acknowledgements. Apache's
//! protocols on this port carry no identity of disk and process, and no promise, so they are not
//! used between brokers that are elected.

use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use replication::replica::{Ack, Frame, MasterHello, SlaveHello};
use replication::{EpochEntry, EpochTable, RunIdentity};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// "RQHA"
const MAGIC: u32 = 0x5251_4841;
/// Raised when a field changes its meaning; both ends must have the same.
const VERSION: u16 = 1;
/// Bytes of log in one frame at most, unless one record is larger.
pub(super) const DATA_BYTES_MAX: usize = 1 << 20;
/// Longest frame: the largest record, and fields.
const FRAME_BYTES_MAX: usize = store::REPLICATED_RECORD_BYTES_MAX + 4096;
const EPOCHS_MAX: usize = 1 << 16;

const SLAVE_HELLO: u8 = 1;
const MASTER_HELLO: u8 = 2;
const DATA: u8 = 3;
const ACK: u8 = 4;

/// Why what a peer says is not understood.
#[derive(Debug, Error)]
pub(super) enum WireError {
    #[error("a frame of {0} bytes is longer than any can be")]
    TooLong(usize),
    #[error("a frame ends in the middle of a field")]
    Short,
    #[error("the peer does not speak this protocol")]
    Magic,
    #[error("the peer speaks version {0} of the protocol, this broker version {VERSION}")]
    Version(u16),
    #[error("a frame of the unknown kind {0}")]
    Kind(u8),
    #[error("{0} is not what it must be")]
    Field(&'static str),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// One frame.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    SlaveHello {
        /// BrokerName, so that nobody gets another group's log by a wrong address.
        group: String,
        hello: SlaveHello,
    },
    MasterHello(MasterHello),
    Data {
        frame: Frame,
        bytes: Bytes,
    },
    Ack(Ack),
}

pub(super) fn slave_hello(group: &str, hello: &SlaveHello) -> Bytes {
    framed(SLAVE_HELLO, |out| {
        out.put_u32(MAGIC);
        out.put_u16(VERSION);
        put_text(out, group);
        out.put_i64(hello.id);
        put_text(out, &hello.run.store_id);
        out.put_u64(hello.run.open_count);
        put_text(out, &hello.run.incarnation);
        out.put_i32(hello.epoch);
        out.put_i64(hello.end);
    })
}

pub(super) fn master_hello(hello: &MasterHello) -> Bytes {
    framed(MASTER_HELLO, |out| {
        out.put_i32(hello.epoch);
        out.put_i64(hello.begin);
        out.put_i64(hello.end);
        let entries = hello.epochs.entries();
        out.put_u32(u32::try_from(entries.len()).unwrap_or(u32::MAX));
        for entry in entries {
            out.put_i32(entry.epoch);
            out.put_i64(entry.start);
        }
    })
}

pub(super) fn ack(ack: &Ack) -> Bytes {
    framed(ACK, |out| {
        out.put_i32(ack.epoch);
        out.put_i64(ack.end);
        put_stamp(out, ack.stamp);
    })
}

/// The head of a data frame, after which `length` bytes of log follow.
pub(super) fn data_head(frame: &Frame, length: usize) -> Bytes {
    let mut out = BytesMut::with_capacity(64);
    out.put_u32(0);
    out.put_u8(DATA);
    out.put_i32(frame.epoch);
    out.put_i32(frame.data_epoch);
    out.put_i64(frame.data_epoch_start);
    out.put_i64(frame.offset);
    out.put_i64(frame.confirm);
    put_stamp(&mut out, frame.stamp);
    seal(&mut out, length);
    out.freeze()
}

fn framed(kind: u8, fields: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::with_capacity(128);
    out.put_u32(0);
    out.put_u8(kind);
    fields(&mut out);
    seal(&mut out, 0);
    out.freeze()
}

fn seal(out: &mut BytesMut, more: usize) {
    let length = u32::try_from(out.len() - 4 + more).unwrap_or(u32::MAX);
    out[..4].copy_from_slice(&length.to_be_bytes());
}

fn put_text(out: &mut BytesMut, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.put_u16(length);
    out.put_slice(&text.as_bytes()[..usize::from(length)]);
}

/// 0 is no stamp.
fn put_stamp(out: &mut BytesMut, stamp: Option<u64>) {
    out.put_u64(stamp.map_or(0, |stamp| stamp.saturating_add(1)));
}

/// Reads one frame; `None` when the peer has closed the connection between two.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Option<Said>, WireError> {
    let mut head = [0; 4];
    if stream.read(&mut head[..1]).await? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut head[1..]).await?;
    let length = usize::try_from(u32::from_be_bytes(head)).unwrap_or(usize::MAX);
    if length > FRAME_BYTES_MAX {
        return Err(WireError::TooLong(length));
    }
    let mut buffer = BytesMut::zeroed(length);
    stream.read_exact(&mut buffer).await?;
    decode(buffer.freeze()).map(Some)
}

fn decode(mut bytes: Bytes) -> Result<Said, WireError> {
    let kind = bytes.try_get_u8().map_err(|_| WireError::Short)?;
    let said = match kind {
        SLAVE_HELLO => take_slave_hello(&mut bytes)?,
        MASTER_HELLO => Said::MasterHello(take_master_hello(&mut bytes)?),
        DATA => {
            let mut frame = take_frame(&mut bytes)?;
            let bytes = std::mem::take(&mut bytes);
            frame.length = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
            Said::Data { frame, bytes }
        }
        ACK => Said::Ack(Ack {
            epoch: take_i32(&mut bytes)?,
            end: take_i64(&mut bytes)?,
            stamp: take_stamp(&mut bytes)?,
        }),
        other => return Err(WireError::Kind(other)),
    };
    if bytes.has_remaining() { Err(WireError::Field("the end of a frame")) } else { Ok(said) }
}

fn take_slave_hello(bytes: &mut Bytes) -> Result<Said, WireError> {
    if bytes.try_get_u32().map_err(|_| WireError::Short)? != MAGIC {
        return Err(WireError::Magic);
    }
    let version = bytes.try_get_u16().map_err(|_| WireError::Short)?;
    if version != VERSION {
        return Err(WireError::Version(version));
    }
    let group = take_text(bytes, "a broker name")?;
    let id = take_i64(bytes)?;
    let run = RunIdentity {
        store_id: take_text(bytes, "a store id")?,
        open_count: take_u64(bytes)?,
        incarnation: take_text(bytes, "an incarnation")?,
    };
    let hello = SlaveHello { id, run, epoch: take_i32(bytes)?, end: take_i64(bytes)? };
    Ok(Said::SlaveHello { group, hello })
}

fn take_master_hello(bytes: &mut Bytes) -> Result<MasterHello, WireError> {
    let (epoch, begin, end) = (take_i32(bytes)?, take_i64(bytes)?, take_i64(bytes)?);
    let count = bytes.try_get_u32().map_err(|_| WireError::Short)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > EPOCHS_MAX {
        return Err(WireError::Field("the number of epochs"));
    }
    let entry = |_| Ok(EpochEntry { epoch: take_i32(bytes)?, start: take_i64(bytes)? });
    let entries: Vec<EpochEntry> = (0..count).map(entry).collect::<Result<_, WireError>>()?;
    let epochs = EpochTable::from_entries(entries).ok_or(WireError::Field("the epoch table"))?;
    Ok(MasterHello { epoch, epochs, begin, end })
}

fn take_frame(bytes: &mut Bytes) -> Result<Frame, WireError> {
    Ok(Frame {
        epoch: take_i32(bytes)?,
        data_epoch: take_i32(bytes)?,
        data_epoch_start: take_i64(bytes)?,
        offset: take_i64(bytes)?,
        length: 0,
        confirm: take_i64(bytes)?,
        stamp: take_stamp(bytes)?,
    })
}

fn take_i32(bytes: &mut Bytes) -> Result<i32, WireError> {
    bytes.try_get_i32().map_err(|_| WireError::Short)
}

fn take_i64(bytes: &mut Bytes) -> Result<i64, WireError> {
    bytes.try_get_i64().map_err(|_| WireError::Short)
}

fn take_u64(bytes: &mut Bytes) -> Result<u64, WireError> {
    bytes.try_get_u64().map_err(|_| WireError::Short)
}

fn take_stamp(bytes: &mut Bytes) -> Result<Option<u64>, WireError> {
    Ok(take_u64(bytes)?.checked_sub(1))
}

fn take_text(bytes: &mut Bytes, what: &'static str) -> Result<String, WireError> {
    let length = usize::from(bytes.try_get_u16().map_err(|_| WireError::Short)?);
    if bytes.remaining() < length {
        return Err(WireError::Short);
    }
    let text = bytes.split_to(length);
    String::from_utf8(text.to_vec()).map_err(|_| WireError::Field(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_back(mut bytes: &[u8]) -> Result<Option<Said>, WireError> {
        read(&mut bytes).await
    }

    fn hello() -> SlaveHello {
        let run = RunIdentity { store_id: "s".into(), open_count: 3, incarnation: "i".into() };
        SlaveHello { id: 2, run, epoch: 4, end: 100 }
    }

    #[tokio::test]
    async fn what_is_said_is_understood() {
        let said = read_back(&slave_hello("g-0", &hello())).await.unwrap();
        assert_eq!(said, Some(Said::SlaveHello { group: "g-0".into(), hello: hello() }));
        let entries = vec![EpochEntry { epoch: 1, start: 0 }, EpochEntry { epoch: 4, start: 90 }];
        let epochs = EpochTable::from_entries(entries).unwrap();
        let master = MasterHello { epoch: 4, epochs, begin: 0, end: 120 };
        let said = read_back(&master_hello(&master)).await.unwrap();
        assert_eq!(said, Some(Said::MasterHello(master)));
        for stamp in [None, Some(0), Some(7)] {
            let sent = Ack { epoch: 4, end: 110, stamp };
            assert_eq!(read_back(&ack(&sent)).await.unwrap(), Some(Said::Ack(sent)));
        }
        let frame = Frame {
            epoch: 4,
            data_epoch: 1,
            data_epoch_start: 0,
            offset: 50,
            length: 3,
            confirm: 40,
            stamp: Some(9),
        };
        let sent = [&data_head(&frame, 3)[..], b"abc"].concat();
        let expected = Said::Data { frame, bytes: Bytes::from_static(b"abc") };
        assert_eq!(read_back(&sent).await.unwrap(), Some(expected));
        assert_eq!(read_back(&[]).await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_is_not_understood_is_told() {
        let right = slave_hello("g-0", &hello());
        let check = async |bytes: Vec<u8>, expected: &str| {
            let error = read_back(&bytes).await.unwrap_err().to_string();
            assert_eq!(error, expected);
        };
        check(vec![0xff; 4], "a frame of 4294967295 bytes is longer than any can be").await;
        check(vec![0, 0, 0, 1, 9], "a frame of the unknown kind 9").await;
        check(vec![0, 0, 0, 0], "a frame ends in the middle of a field").await;
        let mut wrong = right.to_vec();
        wrong[5] = 0;
        check(wrong, "the peer does not speak this protocol").await;
        let mut wrong = right.to_vec();
        wrong[10] = 2;
        check(wrong, "the peer speaks version 2 of the protocol, this broker version 1").await;
        for cut in 5..right.len() {
            let mut short = right[..cut].to_vec();
            let length = u32::try_from(cut - 4).unwrap();
            short[..4].copy_from_slice(&length.to_be_bytes());
            assert!(read_back(&short).await.is_err(), "cut at {cut}");
        }
    }
}
