//! A stream of frames in arbitrary pieces: what is read does not depend on how it was cut, nothing
//! is larger than the limit, and what is read can be written and read again.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use protocol::command::RemotingCommand;
use protocol::frame::{self, FrameError};

/// Bytes of a frame at most.
const FRAME_MAX: usize = 1 << 16;

/// Reads frames from pieces of these lengths, in turn.
fn read(stream: &[u8], pieces: &[u8]) -> (Vec<RemotingCommand>, Option<FrameError>) {
    let mut buffer = BytesMut::new();
    let mut commands = Vec::new();
    let mut rest = stream;
    let mut lengths = pieces.iter().cycle();
    while !rest.is_empty() {
        let length = lengths.next().map_or(rest.len(), |length| 1 + usize::from(*length));
        let (piece, left) = rest.split_at(length.min(rest.len()));
        buffer.extend_from_slice(piece);
        rest = left;
        loop {
            match frame::decode(&mut buffer, FRAME_MAX) {
                Ok(Some(command)) => commands.push(command),
                Ok(None) => break,
                Err(error) => return (commands, Some(error)),
            }
        }
        // An incomplete frame keeps no more than itself.
        assert!(buffer.len() < FRAME_MAX, "{} bytes are kept", buffer.len());
    }
    (commands, None)
}

fuzz_target!(|input: &[u8]| {
    let Some((count, rest)) = input.split_first() else { return };
    let Some((pieces, stream)) = rest.split_at_checked(usize::from(count % 8)) else { return };
    let whole = read(stream, &[]);
    assert_eq!(whole, read(stream, pieces));
    let (commands, _) = whole;
    for command in commands {
        assert!(command.body.len() < FRAME_MAX);
        let mut written = BytesMut::new();
        frame::encode(&command, &mut written).expect("what was read can be written");
        let again = frame::decode(&mut written, usize::MAX).expect("it is a frame");
        assert_eq!(again.map(|again| again.body), Some(command.body));
    }
});
