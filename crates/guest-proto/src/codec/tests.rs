use proptest::prelude::*;

use super::*;
use crate::{
    ExecSpec, Exit, MAX_ARGS, MAX_CELLS, MAX_ENV, MAX_OPS, MAX_STRING, MAX_WINDOW, NewPrivileges,
    RefusalKind, RunAs, StdinMode, TerminalSize,
};

fn guest_frame(message: &ToGuest<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode_to_guest(message, &mut out).unwrap();
    out
}

fn host_frame(message: &ToHost<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode_to_host(message, &mut out).unwrap();
    out
}

fn round_trip_to_guest(message: &ToGuest<'_>) {
    let frame = guest_frame(message);
    let end = split(&frame).unwrap().unwrap();
    assert_eq!(end, frame.len());
    assert_eq!(&decode_to_guest(&frame[PREFIX..end]).unwrap(), message);
}

fn round_trip_to_host(message: &ToHost<'_>) {
    let frame = host_frame(message);
    let end = split(&frame).unwrap().unwrap();
    assert_eq!(end, frame.len());
    assert_eq!(&decode_to_host(&frame[PREFIX..end]).unwrap(), message);
}

fn channel() -> impl Strategy<Value = Channel> {
    prop_oneof![Just(Channel::Stdout), Just(Channel::Stderr)]
}

fn text() -> impl Strategy<Value = String> {
    "[^\0]{0,40}"
}

prop_compose! {
    fn spec()(
        argv in prop::collection::vec("[^\0]{1,40}", 1..6),
        env in prop::collection::vec(("[A-Z_]{1,12}", "[^\0]{0,40}"), 0..6),
        cwd in "/[^\0]{0,40}",
        pipe in any::<bool>(),
    ) -> (Vec<String>, Vec<(String, String)>, String, StdinMode) {
        (argv, env, cwd, if pipe { StdinMode::Pipe } else { StdinMode::Null })
    }
}

proptest! {
    #[test]
    fn exec_round_trips(op: u64, (argv, env, cwd, stdin) in spec(), window in 0..=MAX_WINDOW) {
        round_trip_to_guest(&ToGuest::Exec {
            op,
            spec: ExecSpec {
                argv: argv.iter().map(String::as_str).collect(),
                env: env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
                cwd: &cwd,
                stdin,
            },
            window,
        });
    }

    #[test]
    fn small_guest_messages_round_trip(
        op: u64, bytes: Vec<u8>, channel in channel(), n in 1..=MAX_WINDOW, port in 1..=u16::MAX,
        signal in 1..=64, low in 1..=u16::MAX, more: u8, dir in "/[^\0]{0,40}",
    ) {
        round_trip_to_guest(&ToGuest::Hello { version: low.saturating_add(u16::from(more)), min_version: low });
        round_trip_to_guest(&ToGuest::Setup { op, dirs: vec![&dir, "/"] });
        round_trip_to_guest(&ToGuest::Dial { op, port, window: n });
        round_trip_to_guest(&ToGuest::Data { op, bytes: &bytes });
        round_trip_to_guest(&ToGuest::Eof { op });
        round_trip_to_guest(&ToGuest::Credit { op, channel, bytes: n });
        round_trip_to_guest(&ToGuest::Kill { op });
        round_trip_to_guest(&ToGuest::Signal { op, signal });
        round_trip_to_guest(&ToGuest::Close { op });
        round_trip_to_guest(&ToGuest::Ping { nonce: op });
        round_trip_to_guest(&ToGuest::Attach { op, stdout: op.rotate_left(7), stderr: u64::from(n) });
        round_trip_to_guest(&ToGuest::Resize { op, size: TerminalSize { columns: port % MAX_CELLS + 1, rows: low % MAX_CELLS + 1 } });
        round_trip_to_guest(&ToGuest::Release { op });
        round_trip_to_guest(&ToGuest::Adopt { op, host_name: "sandbox-7" });
        round_trip_to_guest(&ToGuest::Suspend);
        round_trip_to_guest(&ToGuest::Continue);
    }

    #[test]
    fn start_detached_round_trips(
        op: u64, (argv, env, cwd, stdin) in spec(), columns in 1..=MAX_CELLS, rows in 1..=MAX_CELLS, on_terminal: bool,
    ) {
        round_trip_to_guest(&ToGuest::StartDetached {
            op,
            spec: ExecSpec {
                argv: argv.iter().map(String::as_str).collect(),
                env: env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
                cwd: &cwd,
                stdin,
            },
            terminal: on_terminal.then_some(TerminalSize { columns, rows }),
        });
    }

    #[test]
    fn commands_of_users_round_trip(
        op: u64, (argv, env, _, stdin) in spec(), cwd in "[^\0]{0,40}", user in "[^\0]{1,40}", may_gain: bool, on_terminal: bool,
        window in 0..=MAX_WINDOW,
    ) {
        let spec = ExecSpec {
            argv: argv.iter().map(String::as_str).collect(),
            env: env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            cwd: &cwd,
            stdin,
        };
        let new_privileges = if may_gain { NewPrivileges::Allowed } else { NewPrivileges::Denied };
        let run_as = RunAs { user: &user, new_privileges };
        round_trip_to_guest(&ToGuest::ExecAs { op, spec: spec.clone(), run_as, window });
        let terminal = on_terminal.then_some(TerminalSize { columns: 80, rows: 24 });
        round_trip_to_guest(&ToGuest::StartDetachedAs { op, spec, run_as, terminal });
        round_trip_to_host(&ToHost::Running { op, pid: window });
        round_trip_to_host(&ToHost::Refused { op, kind: RefusalKind::UserMissing, message: &user });
    }

    #[test]
    fn host_messages_round_trip(
        op: u64, bytes: Vec<u8>, channel in channel(), n in 1..=MAX_WINDOW, code: i32, pid: u32, text in text(),
        ops in prop::collection::vec(any::<u64>(), 0..40), version: u16,
    ) {
        round_trip_to_host(&ToHost::Welcome { version, agent_version: &text, ops });
        round_trip_to_host(&ToHost::Started { op, pid, window: n });
        round_trip_to_host(&ToHost::Data { op, channel, bytes: &bytes });
        round_trip_to_host(&ToHost::Eof { op, channel });
        round_trip_to_host(&ToHost::Credit { op, bytes: n });
        round_trip_to_host(&ToHost::Exited { op, exit: Exit::Code(code), duration_us: op });
        round_trip_to_host(&ToHost::Exited { op, exit: Exit::Signal(code), duration_us: op });
        for kind in [
            RefusalKind::CwdMissing, RefusalKind::ProgramMissing, RefusalKind::NotAllowed, RefusalKind::TooMany,
            RefusalKind::Connect, RefusalKind::UnknownOp, RefusalKind::Failed,
        ] {
            round_trip_to_host(&ToHost::Refused { op, kind, message: &text });
        }
        round_trip_to_host(&ToHost::Opened { op, window: n });
        round_trip_to_host(&ToHost::Done { op });
        round_trip_to_host(&ToHost::Pong { nonce: op });
        round_trip_to_host(&ToHost::Bye { reason: &text });
        round_trip_to_host(&ToHost::Attached { op, stdin: op, window: n });
    }

    #[test]
    fn a_header_and_its_payload_form_the_frame(
        op in prop_oneof![any::<u64>(), 0..300u64], channel in channel(),
        len in prop_oneof![0..300usize, 16_000..17_000usize, MAX_DATA - 3..=MAX_DATA],
    ) {
        let payload = vec![7; len];
        let by_hand = [host_data_header(op, channel, len).as_slice(), &payload].concat();
        prop_assert_eq!(by_hand, host_frame(&ToHost::Data { op, channel, bytes: &payload }));
        let by_hand = [guest_data_header(op, len).as_slice(), &payload].concat();
        prop_assert_eq!(by_hand, guest_frame(&ToGuest::Data { op, bytes: &payload }));
    }

    #[test]
    fn any_bytes_decode_to_a_value_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(Some(end)) = split(&bytes) {
            prop_assert!(end <= bytes.len());
        }
        if let Ok(message) = decode_to_guest(&bytes) {
            round_trip_to_guest(&message);
        }
        if let Ok(message) = decode_to_host(&bytes) {
            round_trip_to_host(&message);
        }
    }

    #[test]
    fn a_damaged_frame_decodes_to_a_value_or_an_error(
        (argv, env, cwd, stdin) in spec(), at: prop::sample::Index, byte: u8, cut: prop::sample::Index,
    ) {
        let mut frame = guest_frame(&ToGuest::Exec {
            op: 3,
            spec: ExecSpec {
                argv: argv.iter().map(String::as_str).collect(),
                env: env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
                cwd: &cwd,
                stdin,
            },
            window: 1,
        });
        let cut = cut.index(frame.len());
        prop_assert_eq!(split(&frame[..cut]), Ok(None));
        if cut > PREFIX {
            prop_assert!(decode_to_guest(&frame[PREFIX..cut]).is_err());
        }
        let at = at.index(frame.len());
        frame[at] = byte;
        if let Ok(Some(end)) = split(&frame) {
            let _ = decode_to_guest(&frame[PREFIX..end]);
        }
    }
}

#[test]
fn a_frame_longer_than_the_limit_is_an_error() {
    let len = |n: usize| u32::try_from(n).unwrap().to_le_bytes();
    assert_eq!(split(&len(MAX_FRAME)), Ok(None));
    assert_eq!(split(&len(MAX_FRAME + 1)), Err(ProtoError::TooLong { len: MAX_FRAME + 1, max: MAX_FRAME }));
    assert_eq!(split(&[0xff; 3]), Ok(None));
}

#[test]
fn a_failed_encoding_does_not_change_the_buffer() {
    let long = "x".repeat(MAX_STRING);
    let mut out = b"before".to_vec();
    let message = exec(vec![&long; 9], vec![]);
    assert!(matches!(encode_to_guest(&message, &mut out), Err(ProtoError::TooLong { .. })));
    assert_eq!(out, b"before");
}

fn exec<'a>(argv: Vec<&'a str>, env: Vec<(&'a str, &'a str)>) -> ToGuest<'a> {
    ToGuest::Exec { op: 1, spec: ExecSpec { argv, env, cwd: "/", stdin: StdinMode::Null }, window: 0 }
}

fn start_detached(argv: Vec<&str>, size: Option<(u16, u16)>) -> ToGuest<'_> {
    let terminal = size.map(|(columns, rows)| TerminalSize { columns, rows });
    ToGuest::StartDetached {
        op: 1,
        spec: ExecSpec { argv, env: vec![], cwd: "/", stdin: StdinMode::Null },
        terminal,
    }
}

/// Encodes without the checks, as a hostile side would.
fn unchecked<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_allocvec(message).unwrap()
}

#[test]
fn invalid_messages_fail_to_encode_and_to_decode() {
    let long = "x".repeat(MAX_STRING + 1);
    let data = vec![0; MAX_DATA + 1];
    let cases = [
        exec(vec![], vec![]),
        exec(vec![""], vec![]),
        exec(vec!["a\0b"], vec![]),
        exec(vec![&long], vec![]),
        exec(vec!["true"; MAX_ARGS + 1], vec![]),
        exec(vec!["true"], vec![("", "x")]),
        exec(vec!["true"], vec![("A=B", "x")]),
        exec(vec!["true"], vec![("A", "x\0")]),
        exec(vec!["true"], vec![("A", &long[1..])]),
        exec(vec!["true"], vec![("A", "x"); MAX_ENV + 1]),
        ToGuest::Exec {
            op: 1,
            spec: ExecSpec { argv: vec!["true"], env: vec![], cwd: "tmp", stdin: StdinMode::Null },
            window: 0,
        },
        ToGuest::Dial { op: 1, port: 0, window: 1 },
        ToGuest::Dial { op: 1, port: 1, window: MAX_WINDOW + 1 },
        ToGuest::Data { op: 1, bytes: &data },
        ToGuest::Credit { op: 1, channel: Channel::Stdout, bytes: 0 },
        ToGuest::Credit { op: 1, channel: Channel::Stdout, bytes: MAX_WINDOW + 1 },
        ToGuest::Signal { op: 1, signal: 0 },
        ToGuest::Signal { op: 1, signal: 65 },
        ToGuest::Hello { version: 1, min_version: 0 },
        ToGuest::Hello { version: 1, min_version: 2 },
        ToGuest::Setup { op: 1, dirs: vec!["a"] },
        start_detached(vec![], Some((80, 24))),
        start_detached(vec!["true"], Some((0, 24))),
        start_detached(vec!["true"], Some((80, 0))),
        ToGuest::Resize { op: 1, size: TerminalSize { columns: 1, rows: MAX_CELLS + 1 } },
    ];
    for case in cases {
        assert!(encode_to_guest(&case, &mut Vec::new()).is_err(), "encoded: {case:.80?}");
        assert!(decode_to_guest(&unchecked(&case)).is_err(), "decoded: {case:.80?}");
    }
    let long = "x".repeat(crate::MAX_MESSAGE + 1);
    let cases = [
        ToHost::Welcome { version: 1, agent_version: &long, ops: vec![] },
        ToHost::Welcome { version: 1, agent_version: "", ops: vec![0; MAX_OPS + 1] },
        ToHost::Started { op: 1, pid: 1, window: MAX_WINDOW + 1 },
        ToHost::Data { op: 1, channel: Channel::Stderr, bytes: &data },
        ToHost::Credit { op: 1, bytes: 0 },
        ToHost::Refused { op: 1, kind: RefusalKind::Failed, message: &long },
        ToHost::Bye { reason: &long },
        ToHost::Attached { op: 1, stdin: 0, window: MAX_WINDOW + 1 },
    ];
    for case in cases {
        assert!(encode_to_host(&case, &mut Vec::new()).is_err(), "encoded: {case:.80?}");
        assert!(decode_to_host(&unchecked(&case)).is_err(), "decoded: {case:.80?}");
    }
}

#[test]
fn a_list_with_a_false_length_does_not_allocate() {
    // Exec, operation 1, then a list of arguments with a claimed length of 2^28.
    assert!(decode_to_guest(&[2, 1, 0x80, 0x80, 0x80, 0x80, 0x01, 0]).is_err());
    // Welcome, version 1, no agent version, the same.
    assert!(decode_to_host(&[0, 1, 0, 0x80, 0x80, 0x80, 0x80, 0x01, 0]).is_err());
}

#[test]
fn bytes_after_a_message_are_refused() {
    let frame = guest_frame(&ToGuest::Kill { op: 4 });
    let body = [&frame[PREFIX..], &[0, 0]].concat();
    assert_eq!(decode_to_guest(&body), Err(ProtoError::Trailing { extra: 2 }));
    assert!(decode_to_guest(&[]).is_err());
    assert!(decode_to_host(&[]).is_err());
}

#[test]
fn the_encoding_of_version_one_is_unchanged() {
    assert_eq!(guest_frame(&ToGuest::Hello { version: 1, min_version: 1 }), [3, 0, 0, 0, 0, 1, 1]);
    assert_eq!(guest_frame(&ToGuest::Ping { nonce: 300 }), [3, 0, 0, 0, 10, 0xac, 2]);
    assert_eq!(
        host_frame(&ToHost::Exited { op: 5, exit: Exit::Signal(9), duration_us: 1 }),
        [5, 0, 0, 0, 5, 5, 1, 18, 1]
    );
    assert_eq!(host_frame(&ToHost::Bye { reason: "x" }), [3, 0, 0, 0, 10, 1, b'x']);
}
