//! Commands and file operations on behalf of a user, and watches.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use guest_proto::{
    Attributes, Channel, ExecSpec, Exit, FileErrorKind, FileKind, FileRequest, LAST_PIECE, NewPrivileges,
    RefusalKind, RunAs, StdinMode, TerminalSize, ToGuest, WatchEventKind, piece_header,
};

use crate::file_ops::{Outcome, Reply, bytes, pieces};
use crate::host::{Agent, Host, HostMessage, LARGE_WINDOW};

const DAEMON: RunAs<'_> = RunAs { user: "daemon", new_privileges: NewPrivileges::Denied };
/// Of `daemon` on Debian.
const DAEMON_UID: u32 = 1;

fn started() -> (Agent, Host) {
    let agent = Agent::start();
    let host = agent.host();
    (agent, host)
}

impl Host {
    fn exec_as(&mut self, script: &str, run_as: RunAs<'_>, cwd: &str) -> u64 {
        let op = self.op();
        let env = vec![("PATH", "/usr/bin:/bin"), ("A", "b")];
        let spec = ExecSpec { argv: vec!["bash", "-c", script], env, cwd, stdin: StdinMode::Null };
        self.send(&ToGuest::ExecAs { op, spec, run_as, window: LARGE_WINDOW });
        op
    }

    fn run_as(&mut self, script: &str, run_as: RunAs<'_>, cwd: &str) -> String {
        let op = self.exec_as(script, run_as, cwd);
        assert!(matches!(self.receive(), HostMessage::Started { .. }));
        let outcome = self.finish(op);
        assert_eq!(outcome.exit, Exit::Code(0), "{}", String::from_utf8_lossy(&outcome.stderr));
        String::from_utf8(outcome.stdout).unwrap()
    }

    fn file_as(&mut self, request: FileRequest<'_>, content: Option<&[u8]>) -> Outcome {
        let op = self.op();
        self.send(&ToGuest::FileAs { op, user: DAEMON.user, request, window: LARGE_WINDOW });
        self.finish_file(op, &content.map(pieces).unwrap_or_default())
    }
}

#[test]
fn a_command_runs_as_its_user() {
    let (_agent, mut host) = started();
    let ids = "id -u; id -g; id -G; echo $HOME $USER $LOGNAME $A; pwd; grep -E 'CapEff|NoNewPrivs' /proc/self/status";
    let expected = "1\n1\n1\n/usr/sbin daemon daemon b\n/tmp\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n";
    assert_eq!(host.run_as(ids, DAEMON, "/tmp"), expected);
    // The default is the home, and relative directories are below it.
    assert_eq!(host.run_as("pwd", DAEMON, ""), "/usr/sbin\n");
    assert_eq!(host.run_as("pwd", DAEMON, "../bin"), "/usr/bin\n");
    // A user whose home does not exist starts in the root directory.
    let nobody = RunAs { user: "nobody", ..DAEMON };
    assert_eq!(host.run_as("id -un; pwd; echo $HOME", nobody, ""), "nobody\n/\n/nonexistent\n");
    // Its pipes can be opened by name.
    assert_eq!(host.run_as("echo here > /dev/stdout", DAEMON, "/tmp"), "here\n");
    let may_gain = RunAs { new_privileges: NewPrivileges::Allowed, ..DAEMON };
    assert_eq!(host.run_as("grep NoNewPrivs /proc/self/status", may_gain, "/tmp"), "NoNewPrivs:\t0\n");
    // A command without a user gets no privileges either.
    assert_eq!(host.run("grep NoNewPrivs /proc/self/status").stdout, b"NoNewPrivs:\t1\n");
}

#[test]
fn unknown_users_and_directories_are_distinct_refusals() {
    let (_agent, mut host) = started();
    for (user, cwd, expected) in [
        ("nobody-like-this", "/tmp", RefusalKind::UserMissing),
        ("daemon", "/not/there", RefusalKind::CwdMissing),
        ("daemon", "not/there", RefusalKind::CwdMissing),
        ("nobody", "not/there", RefusalKind::CwdMissing),
        ("daemon", "/root", RefusalKind::NotAllowed),
    ] {
        let op = host.exec_as("true", RunAs { user, ..DAEMON }, cwd);
        match host.receive() {
            HostMessage::Refused { op: of, kind, .. } => {
                assert_eq!((of, kind), (op, expected), "{user} {cwd}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_terminal_belongs_to_its_user_and_a_new_link_learns_the_pid() {
    let (agent, mut host) = started();
    let op = host.op();
    let spec = ExecSpec {
        argv: vec!["bash", "-c", "echo $$; stat -c %U $(tty); cat"],
        env: vec![("PATH", "/usr/bin:/bin")],
        cwd: "/tmp",
        stdin: StdinMode::Pipe,
    };
    let terminal = TerminalSize::new(80, 24);
    host.send(&ToGuest::StartDetachedAs { op, spec, run_as: DAEMON, terminal });
    let HostMessage::Started { pid, .. } = host.receive() else { panic!("not started") };
    let mut output = Vec::new();
    while !String::from_utf8_lossy(&output).contains("daemon") {
        output.extend(host.receive_output(op));
    }
    assert_eq!(String::from_utf8(output).unwrap(), format!("{pid}\r\ndaemon\r\n"));
    drop(host);
    let (mut host, ops) = agent.link();
    assert_eq!(ops, [op]);
    host.send(&ToGuest::Attach { op, stdout: 0, stderr: 0 });
    assert_eq!(host.receive(), HostMessage::Running { op, pid });
    assert!(matches!(host.receive(), HostMessage::Attached { .. }));
    host.send(&ToGuest::Kill { op });
    while !matches!(host.receive(), HostMessage::Exited { exit: Exit::Signal(9), .. }) {}
    assert!(!Path::new(&format!("/proc/{pid}/task/{pid}/no")).exists());
}

#[test]
fn files_are_written_in_place_and_belong_to_the_user() {
    let dir = tempfile::tempdir().unwrap();
    let (_agent, mut host) = started();
    let path = dir.path().join("new/below/file");
    let write = || FileRequest::WriteInPlace { path: bytes(&path), attributes: None };
    let Reply::Details { owner, group, mode, .. } = host.file_as(write(), Some(b"some content")).done()
    else {
        panic!("no details")
    };
    assert_eq!((owner.as_str(), group.as_str(), mode), ("daemon", "daemon", 0o644));
    let first = path.metadata().unwrap();
    let above = path.parent().unwrap().metadata().unwrap();
    assert_eq!((above.uid(), above.permissions().mode() & 0o777), (DAEMON_UID, 0o755));
    host.file_as(write(), Some(b"less")).done();
    assert_eq!(std::fs::read(&path).unwrap(), b"less");
    assert_eq!(path.metadata().unwrap().ino(), first.ino(), "it was replaced");

    assert_eq!(
        host.file_as(FileRequest::MakeDirs { path: bytes(&path) }, None).kind(),
        FileErrorKind::NotADirectory
    );
    let parent = path.parent().unwrap();
    assert_eq!(
        host.file_as(FileRequest::MakeDirs { path: bytes(parent) }, None).kind(),
        FileErrorKind::Exists
    );
    let on_directory = FileRequest::WriteInPlace { path: bytes(parent), attributes: None };
    assert_eq!(host.file_as(on_directory, Some(b"x")).kind(), FileErrorKind::NotAFile);
    let to = dir.path().join("other/name");
    host.file_as(FileRequest::Rename { from: bytes(&path), to: bytes(&to) }, None).done();
    assert_eq!(to.parent().unwrap().metadata().unwrap().uid(), DAEMON_UID);
    let missing = FileRequest::Rename { from: bytes(&path), to: bytes(&to) };
    assert_eq!(host.file_as(missing, None).kind(), FileErrorKind::NotFound);
}

#[test]
fn a_tree_is_listed_with_its_links() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("b/c")).unwrap();
    std::fs::write(dir.path().join("a"), "1").unwrap();
    std::fs::write(dir.path().join("b/c/d"), "1").unwrap();
    std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
    std::os::unix::fs::symlink("missing", dir.path().join("broken")).unwrap();
    let (_agent, mut host) = started();
    let mut paths = |depth| {
        let list = FileRequest::ListTree { path: bytes(dir.path()), depth, attributes: None };
        let replies = host.file_as(list, None).replies;
        let name = |path: &[u8]| String::from_utf8_lossy(&path[bytes(dir.path()).len() + 1..]).into_owned();
        let paths: Vec<_> = replies
            .iter()
            .filter_map(|reply| match reply {
                Reply::Details { path, .. } | Reply::Link { path, .. } => Some(name(path)),
                _ => None,
            })
            .collect();
        (paths, replies)
    };
    assert_eq!(paths(1).0, ["a", "b", "broken", "link"]);
    let (all, replies) = paths(3);
    assert_eq!(all, ["a", "b", "b/c", "b/c/d", "broken", "link"]);
    let target = std::fs::canonicalize(dir.path().join("a")).unwrap();
    let link = Reply::Link {
        path: bytes(&dir.path().join("link")).to_vec(),
        target: Some(b"a".to_vec()),
        resolved: Some((bytes(&target).to_vec(), FileKind::File)),
    };
    assert!(replies.contains(&link), "{replies:?}");
    assert!(replies.iter().any(|reply| matches!(reply, Reply::Link { resolved: None, .. })));
}

#[test]
fn attributes_are_replaced() {
    // On a disk: a memory file system may lack attributes.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("file");
    let (_agent, mut host) = started();
    for pairs in [vec![("a", "1"), ("b", "2")], vec![("b", "3")], vec![]] {
        let attributes = Some(Attributes { prefix: "test.", pairs: pairs.clone() });
        let write = FileRequest::WriteInPlace { path: bytes(&path), attributes };
        let Reply::Details { attributes, .. } = host.file_as(write, Some(b"x")).done() else { panic!() };
        let found: Vec<_> = attributes.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(found, pairs);
    }
}

/// Asks for all events up to now.
fn sync(host: &mut Host, op: u64) -> Vec<Reply> {
    let mut request = piece_header(1).to_vec();
    request.push(0);
    host.send(&ToGuest::Data { op, bytes: &request });
    let mut output = Vec::new();
    loop {
        match host.receive() {
            HostMessage::Data { op: of, bytes, .. } if of == op => {
                host.send(&ToGuest::Credit { op, channel: Channel::Stdout, bytes: bytes.len() as u32 });
                output.extend_from_slice(&bytes);
            }
            HostMessage::Credit { .. } => continue,
            other => panic!("{other:?}"),
        }
        let replies = crate::file_ops::split(&output);
        if replies.last() == Some(&Reply::Synced) {
            return replies.into_iter().filter(|reply| *reply != Reply::Synced).collect();
        }
    }
}

fn watch(host: &mut Host, path: &Path, recursive: bool) -> u64 {
    let op = host.op();
    let request = FileRequest::Watch { path: bytes(path), recursive };
    host.send(&ToGuest::FileAs { op, user: "root", request, window: LARGE_WINDOW });
    assert!(matches!(host.receive(), HostMessage::Started { .. }));
    assert_eq!(sync(host, op), [Reply::Watching]);
    op
}

fn changed(kind: WatchEventKind, name: &str) -> Reply {
    Reply::Changed(kind, name.to_owned())
}

#[test]
fn a_new_file_is_three_events_that_a_later_request_sees() {
    use WatchEventKind::{Chmod, Create, Remove, Rename, Write};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let (_agent, mut host) = started();
    let op = watch(&mut host, dir.path(), false);
    host.file_as(FileRequest::WriteInPlace { path: bytes(&path), attributes: None }, Some(b"x")).done();
    let expected = [changed(Create, "file"), changed(Chmod, "file"), changed(Write, "file")];
    assert_eq!(sync(&mut host, op), expected);
    std::fs::rename(&path, dir.path().join("moved")).unwrap();
    std::fs::remove_file(dir.path().join("moved")).unwrap();
    assert_eq!(
        sync(&mut host, op),
        [changed(Rename, "file"), changed(Create, "moved"), changed(Remove, "moved")]
    );
    assert_eq!(sync(&mut host, op), []);
    host.send(&ToGuest::Data { op, bytes: &LAST_PIECE });
    while !matches!(host.receive(), HostMessage::Exited { exit: Exit::Code(0), .. }) {}
}

#[test]
fn new_directories_are_followed_without_losing_their_first_files() {
    let dir = tempfile::tempdir().unwrap();
    let (_agent, mut host) = started();
    let op = watch(&mut host, dir.path(), true);
    for round in 0..200 {
        let below = dir.path().join(format!("d{round}/e"));
        std::fs::create_dir_all(&below).unwrap();
        std::fs::write(below.join("f"), "x").unwrap();
        let events = sync(&mut host, op);
        for name in ["", "/e", "/e/f"] {
            let created = changed(WatchEventKind::Create, &format!("d{round}{name}"));
            assert_eq!(events.iter().filter(|event| **event == created).count(), 1, "{name}: {events:?}");
        }
        let written = changed(WatchEventKind::Write, &format!("d{round}/e/f"));
        assert!(events.contains(&written), "{events:?}");
    }
    // A moved directory has its new name in later events, and one that left the tree has none.
    std::fs::rename(dir.path().join("d0"), dir.path().join("d1/moved")).unwrap();
    sync(&mut host, op);
    std::fs::write(dir.path().join("d1/moved/e/g"), "").unwrap();
    assert!(sync(&mut host, op).contains(&changed(WatchEventKind::Create, "d1/moved/e/g")));
    let outside = tempfile::tempdir().unwrap();
    std::fs::rename(dir.path().join("d2"), outside.path().join("gone")).unwrap();
    assert_eq!(sync(&mut host, op), [changed(WatchEventKind::Rename, "d2")]);
    std::fs::write(outside.path().join("gone/e/g"), "").unwrap();
    assert_eq!(sync(&mut host, op), []);
}

#[test]
fn an_upload_is_one_event_of_its_target() {
    for recursive in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let write = || FileRequest::Write { path: bytes(&path), mode: Some(0o600), parents: false };
        let (_agent, mut host) = started();
        let op = watch(&mut host, dir.path(), recursive);
        for kind in [WatchEventKind::Create, WatchEventKind::Write, WatchEventKind::Write] {
            host.upload(write(), &vec![7; 3_000_000]).done();
            assert_eq!(sync(&mut host, op), [changed(kind, "file")], "recursive: {recursive}");
        }
        let interrupted = host.begin_file(write(), LARGE_WINDOW);
        host.send(&ToGuest::Eof { op: interrupted });
        assert_eq!(host.finish_file(interrupted, &[]).kind(), FileErrorKind::Interrupted);
        assert_eq!(sync(&mut host, op), []);
        // A program's own file with a similar name, and its rename over the file.
        let similar = dir.path().join(".file.sbx-0123456789abcde");
        std::fs::write(&similar, "x").unwrap();
        std::fs::rename(&similar, &path).unwrap();
        let similar = ".file.sbx-0123456789abcde";
        let expected = [
            changed(WatchEventKind::Create, similar),
            changed(WatchEventKind::Write, similar),
            changed(WatchEventKind::Rename, similar),
            changed(WatchEventKind::Create, "file"),
        ];
        assert_eq!(sync(&mut host, op), expected, "recursive: {recursive}");
    }
}

#[test]
fn uploads_into_directories_of_a_recursive_watch_have_no_temporary_names() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("below")).unwrap();
    // As a killed operation leaves it.
    std::fs::create_dir(dir.path().join(".below.sbx-0123456789abcdef")).unwrap();
    let (_agent, mut host) = started();
    let op = watch(&mut host, dir.path(), true);
    for kind in [WatchEventKind::Create, WatchEventKind::Write] {
        let path = dir.path().join("below/file");
        host.upload(FileRequest::Write { path: bytes(&path), mode: None, parents: true }, b"x").done();
        assert_eq!(sync(&mut host, op), [changed(kind, "below/file")]);
    }
    std::fs::write(dir.path().join(".below.sbx-0123456789abcdef/file"), "x").unwrap();
    assert_eq!(sync(&mut host, op), []);
    // The upload may be complete or in progress when the new directory is listed.
    for round in 0..50 {
        let name = format!("new{round}");
        let path = dir.path().join(&name).join("file");
        host.upload(FileRequest::Write { path: bytes(&path), mode: None, parents: true }, b"x").done();
        let mut expected = vec![
            changed(WatchEventKind::Create, &name),
            changed(WatchEventKind::Create, &format!("{name}/file")),
        ];
        let events = sync(&mut host, op);
        if events.len() > expected.len() {
            expected.push(changed(WatchEventKind::Write, &format!("{name}/file")));
        }
        assert_eq!(events, expected);
    }
}

#[test]
fn a_move_between_file_systems_has_the_events_of_a_rename() {
    let outside = tempfile::tempdir_in("/dev/shm").unwrap();
    let away = outside.path().join("away");
    std::fs::create_dir_all(away.join("sub")).unwrap();
    std::fs::write(away.join("sub/file"), "x").unwrap();
    let dir = tempfile::tempdir().unwrap();
    assert_ne!(outside.path().metadata().unwrap().dev(), dir.path().metadata().unwrap().dev());
    let here = dir.path().join("here");
    let (_agent, mut host) = started();
    let op = watch(&mut host, dir.path(), true);
    host.file(FileRequest::Move { from: bytes(&away), to: bytes(&here), overwrite: false }).done();
    let expected = [
        changed(WatchEventKind::Create, "here"),
        changed(WatchEventKind::Create, "here/sub"),
        changed(WatchEventKind::Create, "here/sub/file"),
        changed(WatchEventKind::Write, "here/sub/file"),
    ];
    assert_eq!(sync(&mut host, op), expected);
    std::fs::write(here.join("sub/new"), "").unwrap();
    assert_eq!(sync(&mut host, op), [changed(WatchEventKind::Create, "here/sub/new")]);
    host.file(FileRequest::Move { from: bytes(&here), to: bytes(&away), overwrite: false }).done();
    assert_eq!(sync(&mut host, op), [changed(WatchEventKind::Rename, "here")]);
    assert!(away.join("sub/new").exists() && !here.exists());
}

#[test]
fn watches_are_limited_and_end_with_their_directory() {
    let dir = tempfile::tempdir().unwrap();
    let watched = dir.path().join("watched");
    std::fs::create_dir(&watched).unwrap();
    let (_agent, mut host) = started();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let on_file = FileRequest::Watch { path: bytes(&file), recursive: false };
    assert_eq!(host.file_as(on_file, None).kind(), FileErrorKind::NotADirectory);
    let op = watch(&mut host, &watched, false);
    let others: Vec<u64> = (1..32).map(|_| watch(&mut host, dir.path(), false)).collect();
    let extra = host.op();
    let request = FileRequest::Watch { path: bytes(dir.path()), recursive: false };
    host.send(&ToGuest::FileAs { op: extra, user: "root", request, window: LARGE_WINDOW });
    assert!(matches!(host.receive(), HostMessage::Refused { kind: RefusalKind::TooMany, .. }));
    for other in others {
        host.send(&ToGuest::Kill { op: other });
        while !matches!(host.receive(), HostMessage::Exited { op, .. } if op == other) {}
    }
    std::fs::remove_dir(&watched).unwrap();
    loop {
        match host.receive() {
            HostMessage::Exited { op: of, exit, .. } if of == op => break assert_eq!(exit, Exit::Code(0)),
            HostMessage::Refused { .. } => panic!("refused"),
            _ => {}
        }
    }
}
