//! The encoding of log entries.
//!
//! An entry has a kind, a length, a time, a CRC over all of it, and a payload. The log ends before the first entry
//! with a wrong CRC, which a crash may have left incomplete.

use base::crc32;
use guest_proto::{Channel, TerminalSize};
use rules::OutputPosition;

use crate::detached::record::End;

/// The size of the header.
pub const HEADER: usize = 17;
/// The maximum size of a payload.
pub const MAX_PAYLOAD: usize = 64 * 1024;

/// An entry of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry<'a> {
    /// The first entry of each segment: the state before it.
    Begin {
        position: OutputPosition,
        is_stdin_closed: bool,
        size: Option<TerminalSize>,
        pid: Option<u32>,
    },
    Output(Channel, &'a [u8]),
    StdinClosed,
    Resized(TerminalSize),
    Ended(End),
    /// The end event is in the event journal.
    EndEventRecorded,
    /// The pid of a process.
    Running(u32),
}

const BEGIN: u8 = 1;
const STDOUT: u8 = 2;
const STDERR: u8 = 3;
const STDIN_CLOSED: u8 = 4;
const RESIZED: u8 = 5;
const ENDED: u8 = 6;
const END_EVENT_RECORDED: u8 = 7;
const RUNNING: u8 = 8;

/// Appends an entry to `to`.
pub fn encode(entry: &Entry<'_>, at_ms: u64, to: &mut Vec<u8>) {
    let start = to.len();
    to.resize(start + HEADER, 0);
    let kind = match entry {
        Entry::Begin { position, is_stdin_closed, size, pid } => {
            to.extend_from_slice(&position.stdout.to_le_bytes());
            to.extend_from_slice(&position.stderr.to_le_bytes());
            to.push(u8::from(*is_stdin_closed));
            put_size(size.unwrap_or(TerminalSize { columns: 0, rows: 0 }), to);
            to.extend_from_slice(&pid.unwrap_or(0).to_le_bytes());
            BEGIN
        }
        Entry::Output(channel, bytes) => {
            to.extend_from_slice(bytes);
            if *channel == Channel::Stdout { STDOUT } else { STDERR }
        }
        Entry::StdinClosed => STDIN_CLOSED,
        Entry::Resized(size) => {
            put_size(*size, to);
            RESIZED
        }
        Entry::Ended(end) => {
            // Cannot fail: the type has only plain data.
            to.extend_from_slice(&serde_json::to_vec(end).unwrap_or_default());
            ENDED
        }
        Entry::EndEventRecorded => END_EVENT_RECORDED,
        Entry::Running(pid) => {
            to.extend_from_slice(&pid.to_le_bytes());
            RUNNING
        }
    };
    let length = (to.len() - start - HEADER) as u32;
    to[start] = kind;
    to[start + 1..start + 5].copy_from_slice(&length.to_le_bytes());
    to[start + 5..start + 13].copy_from_slice(&at_ms.to_le_bytes());
    let crc = crc32(&[&to[start..start + 13], &to[start + HEADER..]]);
    to[start + 13..start + HEADER].copy_from_slice(&crc.to_le_bytes());
}

/// The first entry with its time and its length. `None` if the bytes do not start with a complete entry.
pub fn decode(bytes: &[u8]) -> Option<(Entry<'_>, u64, usize)> {
    let header = bytes.first_chunk::<HEADER>()?;
    let length = u32::from_le_bytes(*header[1..].first_chunk()?) as usize;
    if length > MAX_PAYLOAD {
        return None;
    }
    let payload = bytes.get(HEADER..HEADER + length)?;
    let expected = u32::from_le_bytes(*header[13..].first_chunk()?);
    if crc32(&[&header[..13], payload]) != expected {
        return None;
    }
    let entry = match header[0] {
        BEGIN => Entry::Begin {
            position: OutputPosition {
                stdout: u64::from_le_bytes(*payload.first_chunk()?),
                stderr: u64::from_le_bytes(*payload.get(8..)?.first_chunk()?),
            },
            is_stdin_closed: *payload.get(16)? == 1,
            size: get_size(payload.get(17..)?),
            // Missing in logs of earlier versions.
            pid: payload.get(21..).and_then(get_pid),
        },
        STDOUT => Entry::Output(Channel::Stdout, payload),
        STDERR => Entry::Output(Channel::Stderr, payload),
        STDIN_CLOSED => Entry::StdinClosed,
        RESIZED => Entry::Resized(get_size(payload)?),
        ENDED => Entry::Ended(serde_json::from_slice(payload).ok()?),
        END_EVENT_RECORDED => Entry::EndEventRecorded,
        RUNNING => Entry::Running(get_pid(payload)?),
        _ => return None,
    };
    let at_ms = u64::from_le_bytes(*header[5..].first_chunk()?);
    Some((entry, at_ms, HEADER + length))
}

fn put_size(size: TerminalSize, to: &mut Vec<u8>) {
    to.extend_from_slice(&size.columns.to_le_bytes());
    to.extend_from_slice(&size.rows.to_le_bytes());
}

fn get_size(bytes: &[u8]) -> Option<TerminalSize> {
    let columns = u16::from_le_bytes(*bytes.first_chunk()?);
    TerminalSize::new(columns, u16::from_le_bytes(*bytes.get(2..)?.first_chunk()?))
}

fn get_pid(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.first_chunk()?)).filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn entries_survive_a_round_trip() {
        let end = End {
            is_lost: false,
            is_timed_out: false,
            exit_code: Some(3),
            signal: None,
            reason: Some(api::EndReason::Oom),
            message: Some("why".into()),
            duration_ms: 5,
            at_ms: 9,
        };
        let size = TerminalSize { columns: 80, rows: 24 };
        let position = OutputPosition { stdout: u64::MAX, stderr: 7 };
        for entry in [
            Entry::Begin { position, is_stdin_closed: true, size: Some(size), pid: Some(7) },
            Entry::Begin { position, is_stdin_closed: false, size: None, pid: None },
            Entry::Running(1),
            Entry::Output(Channel::Stdout, b"out"),
            Entry::Output(Channel::Stderr, b""),
            Entry::StdinClosed,
            Entry::Resized(size),
            Entry::Ended(end),
            Entry::EndEventRecorded,
        ] {
            let mut bytes = Vec::new();
            encode(&entry, 42, &mut bytes);
            assert_eq!(decode(&bytes), Some((entry, 42, bytes.len())));
            for cut in 0..bytes.len() {
                assert_eq!(decode(&bytes[..cut]), None);
            }
        }
    }

    proptest! {
        #[test]
        fn damaged_entries_are_rejected(
            bytes in prop::collection::vec(any::<u8>(), 1..200), at: prop::sample::Index, flip in 1..=255u8,
        ) {
            let mut written = Vec::new();
            encode(&Entry::Output(Channel::Stderr, &bytes), 1, &mut written);
            prop_assert!(decode(&written).is_some());
            let at = at.index(written.len());
            written[at] ^= flip;
            prop_assert_eq!(decode(&written), None);
        }

        #[test]
        fn any_bytes_can_be_decoded(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }
    }
}
