//! Operations on files: what each does, and what none lets a file do to it.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, Instant};

use guest_proto::{FileErrorKind as Kind, FileKind, FileRequest, PREFIX, Tally, ToGuest};

use crate::file_ops::{Told, bytes};
use crate::host::{Agent, PLENTY, Said, until};

fn read(path: &[u8]) -> FileRequest<'_> {
    FileRequest::Read { path, offset: 0, from_end: false, length: None }
}

fn write(path: &[u8]) -> FileRequest<'_> {
    FileRequest::Write { path, mode: None, parents: false }
}

fn left_over(dir: &std::path::Path) -> Vec<String> {
    let names =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(".sbx-")).collect()
}

#[test]
fn a_file_goes_in_and_comes_out() {
    let agent = Agent::start();
    let mut host = agent.host();
    let path = agent.path("big");
    let content: Vec<u8> = (0..5_000_000u32).flat_map(u32::to_le_bytes).collect();
    let told = host.fed(write(bytes(&path)), &content).done();
    assert!(
        matches!(told, Told::Stat { kind: FileKind::File, mode: 0o644, size: 20_000_000, .. }),
        "{told:?}"
    );
    assert!(std::fs::read(&path).unwrap() == content);
    let out = host.file(read(bytes(&path)));
    assert!(out.bytes == content);
    assert_eq!(out.done(), Told::Content { offset: 0, length: Some(20_000_000), size: 20_000_000 });
    for (offset, from_end, length, expected) in [
        (5, false, Some(7), &content[5..12]),
        (5, false, None, &content[5..]),
        (7, true, None, &content[content.len() - 7..]),
        (u64::MAX, true, None, &content[..]),
        (19_999_999, false, Some(u64::MAX), &content[19_999_999..]),
        (1_000_000, false, Some(300_000), &content[1_000_000..1_300_000]),
    ] {
        let out = host.file(FileRequest::Read { path: bytes(&path), offset, from_end, length });
        assert!(out.bytes == expected, "{offset} {from_end} {length:?}");
        out.done();
    }
    let behind = FileRequest::Read { path: bytes(&path), offset: 20_000_000, from_end: false, length: None };
    assert_eq!(host.file(behind).kind(), Kind::Range);
    let empty = agent.path("empty");
    host.fed(write(bytes(&empty)), b"").done();
    assert_eq!(host.file(read(bytes(&empty))).done(), Told::Content { offset: 0, length: Some(0), size: 0 });
}

#[test]
fn a_file_in_place_keeps_mode_and_owner_and_readers() {
    let agent = Agent::start();
    let mut host = agent.host();
    let path = agent.path("kept");
    std::fs::write(&path, "old").unwrap();
    std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4751)).unwrap();
    let reader = std::fs::File::open(&path).unwrap();
    host.fed(write(bytes(&path)), b"new").done();
    let found = path.metadata().unwrap();
    assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (0o4751, 12, 34));
    assert_eq!(std::io::read_to_string(reader).unwrap(), "old");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    let request = FileRequest::Write { path: bytes(&path), mode: Some(0o600), parents: false };
    host.fed(request, b"newer").done();
    assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
    // A link is followed, one that leads nowhere too; parents are made where that is asked for.
    symlink("there/target", agent.path("link")).unwrap();
    let link = agent.path("link");
    assert_eq!(host.fed(write(bytes(&link)), b"x").kind(), Kind::NotFound);
    let request = FileRequest::Write { path: bytes(&link), mode: None, parents: true };
    host.fed(request, b"through").done();
    assert_eq!(std::fs::read_to_string(agent.path("there/target")).unwrap(), "through");
    assert!(link.is_symlink());
    assert_eq!(left_over(&agent.path("")), [""; 0]);
}

#[test]
fn an_upload_that_breaks_off_leaves_the_old_file() {
    let agent = Agent::start();
    let mut host = agent.host();
    let path = agent.path("file");
    std::fs::write(&path, "old").unwrap();
    let begin = |host: &mut crate::host::Host| {
        let op = host.begin_file(write(bytes(&path)), PLENTY);
        assert!(matches!(host.hear(), Said::Started { .. }));
        host.say(&ToGuest::Data { op, bytes: &crate::file_ops::pieces(b"half")[..PREFIX + 4] });
        until("it writes", || (!left_over(&agent.path("")).is_empty()).then_some(()));
        op
    };
    // The caller goes away, ...
    let op = begin(&mut host);
    host.say(&ToGuest::Kill { op });
    assert!(matches!(host.hear(), Said::Exited { op: of, .. } if of == op));
    assert_eq!(left_over(&agent.path("")), [""; 0]);
    // ... its input ends without a last piece, ...
    let op = begin(&mut host);
    host.say(&ToGuest::Eof { op });
    assert_eq!(host.finish_file(op, &[]).kind(), Kind::Interrupted);
    // ... and the whole host.
    begin(&mut host);
    drop(host);
    until("it is tidied up", || left_over(&agent.path("")).is_empty().then_some(()));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    let (mut host, ops) = agent.link();
    assert!(ops.len() <= 1, "{ops:?}");
    while !ops.is_empty() {
        if matches!(host.hear(), Said::Exited { .. }) {
            break;
        }
    }
    until("nothing is left of it", || agent.is_childless().then_some(()));
}

#[test]
fn what_is_no_file_is_told_apart_and_waits_for_nobody() {
    let agent = Agent::start();
    let mut host = agent.host();
    let fifo = agent.path("fifo");
    host.run(&format!("mkfifo {}", fifo.display()));
    symlink("loop", agent.path("loop")).unwrap();
    let looped = agent.path("loop");
    for path in [bytes(&fifo), b"/dev/zero", b"/dev/tty", b"/"] {
        assert_eq!(host.file(read(path)).kind(), Kind::NotAFile, "{path:?}");
        assert_eq!(host.fed(write(path), b"x").exit, guest_proto::Exit::Code(1));
    }
    assert_eq!(host.fed(write(b"/dev/null"), b"x").kind(), Kind::NotAFile);
    assert_eq!(host.file(read(bytes(&looped))).kind(), Kind::Invalid);
    assert_eq!(host.file(read(b"/nowhere/at/all")).kind(), Kind::NotFound);
    assert_eq!(host.file(read(b"/etc/passwd/x")).kind(), Kind::NotADirectory);
    assert_eq!(host.fed(write(b"/proc/version"), b"x").exit, guest_proto::Exit::Code(1));
    assert_eq!(host.fed(write(b"/tmp/"), b"x").kind(), Kind::NotAFile);
    // Files that do not say how long they are.
    let out = host.file(read(b"/proc/self/status"));
    assert!(out.bytes.starts_with(b"Name:"));
    let length = out.bytes.len() as u64;
    assert_eq!(out.done(), Told::Content { offset: 0, length: Some(length), size: length });
    // One that has no end, or not soon, holds up nobody else and ends with its caller.
    let endless = agent.path("endless");
    std::fs::File::create(&endless).unwrap().set_len(1 << 40).unwrap();
    let op = host.begin_file(read(bytes(&endless)), 1000);
    assert!(matches!(host.hear(), Said::Started { .. }));
    let mut open = 1000;
    while open > 0 {
        open -= host.hear_output(op).len();
    }
    assert_eq!(host.run("echo still here").stdout, b"still here\n");
    host.say(&ToGuest::Kill { op });
    while !matches!(host.hear(), Said::Exited { op: of, .. } if of == op) {}
    until("it is gone", || agent.is_childless().then_some(()));
}

#[test]
fn lists_come_in_pages() {
    let agent = Agent::start();
    let mut host = agent.host();
    let dir = agent.path("dir");
    std::fs::create_dir(&dir).unwrap();
    for n in 0..25 {
        std::fs::write(dir.join(format!("f{n:02}")), vec![b'x'; n]).unwrap();
    }
    std::fs::create_dir(dir.join("sub")).unwrap();
    let list = |offset, limit| FileRequest::List { path: bytes(&dir), offset, limit };
    let out = host.file(list(10, 3));
    let entry = |name: &str, kind, size| Told::Entry { name: name.into(), kind, size };
    let expected = ["f10", "f11", "f12"].map(|name| entry(name, FileKind::File, name[1..].parse().unwrap()));
    assert_eq!(out.told, [&expected[..], &[Told::Listed(26)]].concat());
    let told = host.file(list(25, 100)).told;
    assert!(
        matches!(&told[..], [Told::Entry { kind: FileKind::Directory, .. }, Told::Listed(26)]),
        "{told:?}"
    );
    assert_eq!(host.file(list(u64::MAX, 100)).told, [Told::Listed(26)]);
    let many = agent.path("many");
    std::fs::create_dir(&many).unwrap();
    for n in 0..20_000 {
        std::fs::write(many.join(n.to_string()), "").unwrap();
    }
    let mut seen = std::collections::BTreeSet::new();
    for page in 0..20 {
        let told = host.file(FileRequest::List { path: bytes(&many), offset: page * 1000, limit: 1000 }).told;
        assert_eq!(told.len(), 1001);
        seen.extend(told.into_iter().filter_map(|told| match told {
            Told::Entry { name, .. } => Some(name),
            _ => None,
        }));
    }
    assert_eq!(seen.len(), 20_000);
    assert_eq!(
        host.file(FileRequest::List { path: b"/etc/passwd", offset: 0, limit: 1 }).kind(),
        Kind::NotADirectory
    );
}

#[test]
fn directories_are_made_moved_and_deleted() {
    let agent = Agent::start();
    let mut host = agent.host();
    let (deep, other) = (agent.path("a/b/c"), agent.path("other"));
    let make = |path, recursive| FileRequest::MakeDir { path, mode: Some(0o2750), recursive };
    assert_eq!(host.file(make(bytes(&deep), false)).kind(), Kind::NotFound);
    let told = host.file(make(bytes(&deep), true)).done();
    assert!(matches!(told, Told::Stat { kind: FileKind::Directory, mode: 0o2750, .. }), "{told:?}");
    host.file(make(bytes(&deep), true)).done();
    assert_eq!(host.file(make(bytes(&deep), false)).kind(), Kind::Exists);
    std::fs::write(deep.join("file"), "content").unwrap();
    symlink("/etc", deep.join("link")).unwrap();
    let (top, inner) = (agent.path("a"), other.join("b/c/file"));
    let shift = |from, to, overwrite| FileRequest::Move { from, to, overwrite };
    assert_eq!(host.file(shift(bytes(&top), bytes(&deep), false)).exit, guest_proto::Exit::Code(1));
    host.file(shift(bytes(&top), bytes(&other), false)).done();
    assert_eq!(host.file(shift(bytes(&top), bytes(&other), false)).kind(), Kind::NotFound);
    std::fs::write(&top, "in the way").unwrap();
    assert_eq!(host.file(shift(bytes(&top), bytes(&inner), false)).kind(), Kind::Exists);
    host.file(shift(bytes(&top), bytes(&inner), true)).done();
    assert_eq!(std::fs::read_to_string(&inner).unwrap(), "in the way");
    let delete = |path, recursive| FileRequest::Delete { path, recursive };
    assert_eq!(host.file(delete(bytes(&other), false)).kind(), Kind::NotEmpty);
    let done = host.file(delete(bytes(&other), true)).done();
    assert_eq!(done, Told::Done(Tally { files: 1, directories: 3, links: 1, ..Tally::default() }));
    assert!(!other.exists() && std::path::Path::new("/etc/passwd").exists());
    assert_eq!(host.file(delete(bytes(&other), true)).kind(), Kind::NotFound);
    assert_eq!(host.file(delete(b"/", true)).kind(), Kind::Denied);
    // Deeper than it holds directories open.
    std::fs::create_dir_all(agent.path("d/").join("d/".repeat(1499))).unwrap();
    let done = host.file(delete(bytes(&agent.path("d")), true)).done();
    assert_eq!(done, Told::Done(Tally { directories: 1500, ..Tally::default() }));
    assert!(!agent.path("d").exists());
}

#[test]
fn moves_go_between_file_systems() {
    let agent = Agent::start();
    let mut host = agent.host();
    let (here, there) = (agent.path("here"), std::path::PathBuf::from("/dev/shm/sandbox-agent-files-test"));
    let _ = std::fs::remove_dir_all(&there);
    std::fs::create_dir_all(here.join("sub")).unwrap();
    std::fs::write(here.join("sub/file"), "content").unwrap();
    std::fs::set_permissions(here.join("sub/file"), std::fs::Permissions::from_mode(0o640)).unwrap();
    symlink("sub", here.join("link")).unwrap();
    host.run(&format!("mkfifo {}/fifo", here.display()));
    assert_ne!(here.metadata().unwrap().dev(), std::path::Path::new("/dev/shm").metadata().unwrap().dev());
    let request = FileRequest::Move { from: bytes(&here), to: bytes(&there), overwrite: false };
    host.file(request).done();
    assert!(!here.exists());
    assert_eq!(std::fs::read_to_string(there.join("link/file")).unwrap(), "content");
    assert_eq!(there.join("sub/file").metadata().unwrap().mode() & 0o7777, 0o640);
    assert_eq!(left_over(std::path::Path::new("/dev/shm")), [""; 0]);
    std::fs::remove_dir_all(&there).unwrap();
}

/// What cannot be taken away cannot be moved, and nothing else was changed then.
#[test]
fn what_cannot_be_moved_replaces_nothing() {
    let agent = Agent::start();
    let mut host = agent.host();
    let (kept, new) = (agent.path("kept"), agent.path("new"));
    std::fs::write(&kept, "precious").unwrap();
    for (to, overwrite) in [(&kept, true), (&new, false)] {
        for from in [&b"/proc/version"[..], b"/proc/sys/kernel/hostname"] {
            let request = FileRequest::Move { from, to: bytes(to), overwrite };
            assert_eq!(host.file(request).kind(), Kind::Denied);
        }
    }
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "precious");
    assert!(!new.exists());
    assert_eq!(left_over(kept.parent().unwrap()), [""; 0]);
    // A file of /proc is there, and no other can be put in its place.
    assert_eq!(host.fed(write(b"/proc/sys/kernel/hostname"), b"x").kind(), Kind::Denied);
}

/// The agent's log is a file of the host's.
#[test]
fn what_the_agent_was_started_with_is_nobodys() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("agent.log");
    std::fs::write(&log, "of the host").unwrap();
    let agent = Agent::start_with(&format!("exec 2>>{}; ", log.display()));
    let mut host = agent.host();
    let link = agent.path("link");
    for path in [&b"/proc/self/fd/2"[..], b"/dev/stderr", b"/dev/fd/2", b"/proc/self/fd/0"] {
        let _ = std::fs::remove_file(&link);
        symlink(std::ffi::OsStr::from_bytes(path), &link).unwrap();
        for path in [path, bytes(&link)] {
            assert_eq!(host.file(read(path)).kind(), Kind::NotAFile);
            assert_ne!(host.fed(write(path), b"x").exit, guest_proto::Exit::Code(0));
        }
    }
    let out = host.file(FileRequest::List { path: b"/proc/self/fd", offset: 0, limit: 100 });
    assert!(!format!("{out:?}").contains("agent.log"), "{out:?}");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "of the host");
}

#[test]
fn a_full_disk_is_told_and_leaves_nothing() {
    let agent = Agent::start_with(
        "exec unshare --mount bash -c 'mkdir -p /dev/shm/sandbox-agent-full && mount -t tmpfs -o size=1m tmpfs /dev/shm/sandbox-agent-full && exec unshare --pid --fork --kill-child --mount-proc \"$0\" --listen-fd 3 3<&0 </dev/null' \"$0\"; ",
    );
    let mut host = agent.host();
    let path = b"/dev/shm/sandbox-agent-full/file";
    // What is fed crosses with the end, which is the last that is said: a credit too many would be heard in the next.
    for _ in 0..50 {
        assert_eq!(host.fed(write(path), &vec![1; 4_000_000]).kind(), Kind::DiskFull);
    }
    host.fed(write(path), &vec![1; 500_000]).done();
    assert_eq!(host.fed(write(path), &vec![1; 900_000]).kind(), Kind::DiskFull);
    let out = host.file(FileRequest::List { path: b"/dev/shm/sandbox-agent-full", offset: 0, limit: 10 });
    let entry = Told::Entry { name: b"file".to_vec(), kind: FileKind::File, size: 500_000 };
    assert_eq!(out.told, [entry, Told::Listed(1)]);
    let _ = std::fs::remove_dir("/dev/shm/sandbox-agent-full");
}

#[test]
fn there_are_so_many_at_a_time_and_their_cost_is_small() {
    let agent = Agent::start();
    let mut host = agent.host();
    let path = agent.path("x");
    let mut ops = Vec::new();
    for _ in 0..16 {
        ops.push(host.begin_file(write(bytes(&path)), PLENTY));
        assert!(matches!(host.hear(), Said::Started { .. }));
    }
    host.begin_file(write(bytes(&path)), PLENTY);
    assert!(matches!(host.hear(), Said::Refused { kind: guest_proto::RefusalKind::TooMany, .. }));
    // A command goes on beside them, and they do not keep its pipes open.
    assert_eq!(host.run("echo beside").stdout, b"beside\n");
    for op in ops {
        host.say(&ToGuest::Kill { op });
        assert!(matches!(host.hear(), Said::Exited { op: of, .. } if of == op));
    }
    std::fs::write(&path, "x").unwrap();
    let begin = Instant::now();
    for _ in 0..200 {
        host.file(FileRequest::Stat { path: bytes(&path), follow: true }).done();
    }
    let each = begin.elapsed() / 200;
    println!("a stat takes {each:?}");
    assert!(each < Duration::from_millis(20), "{each:?}");
}
