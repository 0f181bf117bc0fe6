use std::collections::VecDeque;

use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::detached::log::cursor::{Cursor, LogPiece};

fn out(bytes: &[u8]) -> Entry<'_> {
    Entry::Output(Channel::Stdout, bytes)
}

fn err(bytes: &[u8]) -> Entry<'_> {
    Entry::Output(Channel::Stderr, bytes)
}

fn at(stdout: u64, stderr: u64) -> OutputPosition {
    OutputPosition { stdout, stderr }
}

/// The output that a reader gets from a position on, by channel, and the positions of the gaps.
fn read(log: &Log, from: OutputPosition) -> ([Vec<u8>; 2], Vec<OutputPosition>) {
    let mut cursor = Cursor::new(log.dir.clone(), from);
    let (mut bytes, mut dropped) = ([Vec::new(), Vec::new()], Vec::new());
    let mut expected = from;
    loop {
        let found: VecDeque<LogPiece> = cursor.read(&log.segments(), log.end()).unwrap();
        if found.is_empty() {
            return (bytes, dropped);
        }
        for found in found {
            match found {
                LogPiece::Output { channel, bytes: piece, position, .. } => {
                    add(&mut expected, channel, piece.len());
                    assert_eq!(position, expected);
                    bytes[channel as usize].extend_from_slice(&piece);
                }
                LogPiece::Dropped { position } => {
                    expected = position;
                    dropped.push(position);
                }
            }
        }
    }
}

#[test]
fn entries_are_recovered_when_the_log_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let size = TerminalSize { columns: 9, rows: 8 };
    let end = End {
        is_lost: true,
        exit_code: None,
        signal: None,
        reason: None,
        message: None,
        is_timed_out: false,
        duration_ms: 1,
        at_ms: 2,
    };
    let mut log = Log::create(dir.path(), 1 << 20).unwrap();
    log.append(&[out(b"one"), err(b"two"), Entry::StdinClosed, Entry::Resized(size)], 1).unwrap();
    log.append(&[Entry::Ended(end.clone())], 2).unwrap();
    let state = LogState {
        printed: at(3, 3),
        is_stdin_closed: true,
        size: Some(size),
        pid: None,
        end: Some(end),
        is_end_event_recorded: false,
    };
    assert_eq!(log.state(), &state);
    let log = Log::open(dir.path(), 1 << 20).unwrap();
    assert_eq!(log.state(), &state);
    assert_eq!(read(&log, at(1, 0)), ([b"ne".to_vec(), b"two".to_vec()], vec![]));
}

/// Wherever in a segment the end is, also where it fills the segment.
#[test]
fn the_end_and_entries_after_it_are_recovered() {
    let end = End {
        is_lost: false,
        exit_code: Some(0),
        signal: None,
        reason: None,
        message: None,
        is_timed_out: false,
        duration_ms: 1,
        at_ms: 2,
    };
    let max_bytes = 16 * 1024;
    for length in (700..1100).step_by(10) {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::create(dir.path(), max_bytes).unwrap();
        log.append(&[out(&vec![b'x'; length])], 1).unwrap();
        log.append(&[Entry::Ended(end.clone())], 1).unwrap();
        log.append(&[Entry::EndEventRecorded], 1).unwrap();
        let state = Log::open(dir.path(), max_bytes).unwrap().state().clone();
        assert_eq!(
            (state.end.as_ref(), state.is_end_event_recorded),
            (Some(&end), true),
            "after {length} bytes"
        );
    }
}

/// The output behind the damaged part keeps its positions.
#[test]
fn a_damaged_part_is_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::create(dir.path(), 16 * 1024).unwrap();
    for n in 0..8u8 {
        log.append(&[out(&[b'a' + n; 500])], 1).unwrap();
    }
    let segments = log.segments();
    assert!(segments.len() > 2);
    let file = File::options().write(true).open(path(dir.path(), 1)).unwrap();
    // The second entry of the segment, which is its first output.
    file.write_all_at(b"???", 60).unwrap();
    let expected: Vec<u8> = (0..8u8).flat_map(|n| [b'a' + n; 500]).collect();
    let (from, to) = (segments[1].start.stdout as usize, segments[2].start.stdout as usize);
    let (bytes, dropped) = read(&log, at(0, 0));
    assert_eq!(bytes[0], [&expected[..from], &expected[to..]].concat());
    assert_eq!(dropped, [segments[2].start]);
}

#[test]
fn a_torn_end_is_truncated_and_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::create(dir.path(), 1 << 20).unwrap();
    log.append(&[out(b"whole")], 1).unwrap();
    let whole = log.end().1;
    log.append(&[out(b"torn")], 1).unwrap();
    let file = File::options().write(true).open(path(dir.path(), 0)).unwrap();
    for (length, junk) in [(whole + 5, None), (whole, Some([0u8; 300])), (whole, None)] {
        file.set_len(length).unwrap();
        if let Some(junk) = junk {
            file.write_all_at(&junk, whole).unwrap();
        }
        let mut log = Log::open(dir.path(), 1 << 20).unwrap();
        assert_eq!((log.state().printed, log.end()), (at(5, 0), (0, whole)));
        log.append(&[out(b"!")], 1).unwrap();
        assert_eq!(read(&log, at(0, 0)).0[0], b"whole!");
    }
}

#[test]
fn a_segment_with_an_incomplete_first_entry_is_discarded() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::create(dir.path(), 1 << 20).unwrap();
    log.append(&[out(b"before")], 1).unwrap();
    for junk in [&b""[..], b"\x01\x15\0"] {
        fs::write(path(dir.path(), 1), junk).unwrap();
        let log = Log::open(dir.path(), 1 << 20).unwrap();
        assert_eq!((log.state().printed, log.end().0), (at(6, 0), 0));
    }
    fs::remove_file(path(dir.path(), 0)).unwrap();
    assert_eq!(Log::open(dir.path(), 1 << 20).unwrap().state(), &LogState::default());
}

#[test]
fn the_oldest_output_is_dropped_beyond_the_limit_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let bound = 64 << 10;
    let mut log = Log::create(dir.path(), bound).unwrap();
    let mut all = Vec::new();
    for n in 0..4000u32 {
        let line = format!("line {n} {}\n", "x".repeat(n as usize % 90));
        all.extend_from_slice(line.as_bytes());
        log.append(&[out(line.as_bytes())], 1).unwrap();
        assert!(log.bytes() <= bound, "{} bytes", log.bytes());
    }
    log.append(&[Entry::StdinClosed], 1).unwrap();
    for log in [&log, &Log::open(dir.path(), bound).unwrap()] {
        let ([stdout, _], dropped) = read(log, at(10, 0));
        let oldest = log.segments()[0].start;
        assert_eq!(dropped, [oldest]);
        assert!(stdout.len() as u64 > bound / 2 && all.ends_with(&stdout));
        assert_eq!(oldest.stdout + stdout.len() as u64, all.len() as u64);
        assert_eq!(read(log, at(all.len() as u64 - 5, 0)).0[0], all[all.len() - 5..]);
        assert!(log.state().is_stdin_closed);
    }
}

#[test]
fn needed_output_is_kept_beyond_the_limit_up_to_twice_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let bound = 64 << 10;
    let mut log = Log::create(dir.path(), bound).unwrap();
    let (piece, mut written) = ([b'x'; 1000], 0);
    while log.next_dropped().is_none() {
        log.append(&[out(&piece)], 1).unwrap();
        written += piece.len();
    }
    assert_eq!(log.next_dropped(), Some(0));
    for _ in 0..40 {
        log.append_keeping(&[out(&piece)], 1, 0).unwrap();
        written += piece.len();
    }
    let ([stdout, _], dropped) = read(&log, at(0, 0));
    assert!(log.bytes() > bound && dropped.is_empty() && stdout.len() == written);
    for _ in 0..200 {
        log.append_keeping(&[out(&piece)], 1, 0).unwrap();
    }
    assert!(log.bytes() > bound && log.bytes() <= 2 * bound + bound / 8, "{} bytes", log.bytes());
    for _ in 0..10 {
        log.append(&[out(&piece)], 1).unwrap();
    }
    assert!(log.bytes() <= bound, "{} bytes", log.bytes());
}

#[test]
fn a_log_remembers_that_nobody_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let bound = 64 << 10;
    let mut log = Log::create(dir.path(), bound).unwrap();
    let is_unread = |log: &Log| {
        let opened = Log::open(dir.path(), bound).unwrap();
        assert_eq!(log.is_unread(), opened.is_unread());
        log.is_unread()
    };
    assert!(!is_unread(&log));
    while log.segments()[0].number == 0 {
        log.append(&[out(&[b'x'; 4000])], 1).unwrap();
    }
    assert!(is_unread(&log));
    let copy = tempfile::tempdir().unwrap();
    copy_mark(dir.path(), copy.path()).unwrap();
    assert!(copy.path().join(UNREAD).exists());
    // A reader has come.
    log.append_keeping(&[out(b"x")], 1, 5).unwrap();
    assert!(!is_unread(&log));
    copy_mark(dir.path(), tempfile::tempdir().unwrap().path()).unwrap();
}

/// Output would otherwise fill the segment that a resize begins, and the next resize would begin another one.
#[test]
fn resizes_make_no_room_for_output_in_a_full_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::create(dir.path(), 64 << 10).unwrap();
    while log.next_dropped().is_none() {
        log.append(&[out(&[b'x'; 1000])], 1).unwrap();
    }
    let size = TerminalSize { columns: 100, rows: 30 };
    for _ in 0..20 {
        log.append_keeping(&[Entry::Resized(size)], 1, 0).unwrap();
        assert!(log.next_dropped().is_some());
    }
    assert_eq!(log.segments()[0].number, 0);
    log.append(&[out(b"more")], 1).unwrap();
    let ([stdout, _], _) = read(&log, at(0, 0));
    assert!(stdout.ends_with(b"more"));
}

#[test]
fn a_reader_keeps_what_its_client_may_read_again() {
    let log = |last_bytes| -> Vec<Segment> {
        let bytes = |number| if number == 19 { last_bytes } else { 1000 };
        (5..=19).map(|number| Segment { number, start: at(0, 0), bytes: bytes(number) }).collect()
    };
    for (current, needed) in [(19, 8), (16, 5), (12, 5), (5, 5), (3, 3)] {
        assert_eq!(needed_from(&log(1000), current, 16_000), needed, "{current}");
    }
    assert_eq!(needed_from(&log(12_000), 19, 16_000), 16);
    assert_eq!(needed_from(&log(20_000), 19, 16_000), 19);
    assert_eq!(needed_from(&[], 0, 16_000), 0);
}

#[test]
fn a_slow_reader_continues_at_the_oldest_segment() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::create(dir.path(), 64 << 10).unwrap();
    log.append(&[out(b"first")], 1).unwrap();
    let mut cursor = Cursor::new(dir.path().to_owned(), at(0, 0));
    let found = cursor.read(&log.segments(), log.end()).unwrap();
    assert!(matches!(&found[0], LogPiece::Output { bytes, .. } if &**bytes == b"first"));
    for _ in 0..100 {
        log.append(&[out(&[b'x'; 4000])], 1).unwrap();
    }
    let mut last_read = 5;
    let mut gaps = 0;
    loop {
        let found = cursor.read(&log.segments(), log.end()).unwrap();
        if found.is_empty() {
            break;
        }
        for found in found {
            match found {
                LogPiece::Output { position, .. } => last_read = position.stdout,
                LogPiece::Dropped { position } => {
                    assert!(position.stdout > last_read);
                    gaps += 1;
                }
            }
        }
    }
    assert_eq!((last_read, gaps), (400_005, 1));
}

proptest! {
    /// A log that waits for a reader in its last segment would wait forever.
    #[test]
    fn a_reader_of_the_last_segment_never_keeps_a_log_from_growing(
        lengths in prop::collection::vec(1..9000usize, 1..80),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let bound = 1 << 14;
        let mut log = Log::create(dir.path(), bound).unwrap();
        for length in lengths {
            log.append(&[out(&vec![b'x'; length])], 1).unwrap();
            let needed = needed_from(&log.segments(), log.end().0, bound);
            prop_assert!(log.next_dropped().is_none_or(|dropped| dropped < needed));
        }
    }

    /// From any position, a reader gets each byte of each channel exactly once and in order.
    #[test]
    fn each_byte_is_read_exactly_once(
        pieces in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 1..300)), 1..60),
        stops in prop::collection::vec(any::<prop::sample::Index>(), 2),
        reopen in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::create(dir.path(), 1 << 14).unwrap();
        let mut all = [Vec::new(), Vec::new()];
        for (is_err, bytes) in &pieces {
            log.append(&[if *is_err { err(bytes) } else { out(bytes) }], 1).unwrap();
            all[usize::from(*is_err)].extend_from_slice(bytes);
        }
        if reopen {
            log = Log::open(dir.path(), 1 << 14).unwrap();
        }
        let from = at(stops[0].index(all[0].len() + 1) as u64, stops[1].index(all[1].len() + 1) as u64);
        let (bytes, dropped) = read(&log, from);
        let from = dropped.last().copied().unwrap_or(from);
        prop_assert!(dropped.len() <= 1);
        prop_assert_eq!(&bytes[0][..], &all[0][from.stdout as usize..]);
        prop_assert_eq!(&bytes[1][..], &all[1][from.stderr as usize..]);
    }
}
