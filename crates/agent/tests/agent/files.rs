//! File operations: their effects, and their robustness against special files.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, Instant};

use guest_proto::{FileErrorKind as Kind, FileKind, FileRequest, PREFIX, Tally, ToGuest};

use crate::file_ops::{Reply, bytes};
use crate::host::{Agent, HostMessage, LARGE_WINDOW, until};

fn read(path: &[u8]) -> FileRequest<'_> {
    FileRequest::Read { path, offset: 0, from_end: false, length: None }
}

fn write(path: &[u8]) -> FileRequest<'_> {
    FileRequest::Write { path, mode: None, parents: false }
}

fn temporary_files(dir: &std::path::Path) -> Vec<String> {
    let names =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(".sbx-")).collect()
}

#[test]
fn a_written_file_reads_back() {
    let agent = Agent::start();
    let mut host = agent.host();
    let path = agent.path("big");
    let content: Vec<u8> = (0..5_000_000u32).flat_map(u32::to_le_bytes).collect();
    let reply = host.upload(write(bytes(&path)), &content).done();
    assert!(
        matches!(reply, Reply::Stat { kind: FileKind::File, mode: 0o644, size: 20_000_000, .. }),
        "{reply:?}"
    );
    assert!(std::fs::read(&path).unwrap() == content);
    let out = host.file(read(bytes(&path)));
    assert!(out.bytes == content);
    assert_eq!(out.done(), Reply::Content { offset: 0, length: Some(20_000_000), size: 20_000_000 });
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
    host.upload(write(bytes(&empty)), b"").done();
    assert_eq!(host.file(read(bytes(&empty))).done(), Reply::Content { offset: 0, length: Some(0), size: 0 });
}

#[test]
fn a_replaced_file_keeps_mode_owner_and_readers() {
    let agent = Agent::start();
    let mut host = agent.host();
    let path = agent.path("kept");
    std::fs::write(&path, "old").unwrap();
    std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4751)).unwrap();
    let reader = std::fs::File::open(&path).unwrap();
    host.upload(write(bytes(&path)), b"new").done();
    let found = path.metadata().unwrap();
    assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (0o4751, 12, 34));
    assert_eq!(std::io::read_to_string(reader).unwrap(), "old");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    let request = FileRequest::Write { path: bytes(&path), mode: Some(0o600), parents: false };
    host.upload(request, b"newer").done();
    assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
    // Links are followed, also dangling ones; `parents` creates missing directories.
    symlink("there/target", agent.path("link")).unwrap();
    let link = agent.path("link");
    assert_eq!(host.upload(write(bytes(&link)), b"x").kind(), Kind::NotFound);
    let request = FileRequest::Write { path: bytes(&link), mode: None, parents: true };
    host.upload(request, b"through").done();
    assert_eq!(std::fs::read_to_string(agent.path("there/target")).unwrap(), "through");
    assert!(link.is_symlink());
    assert_eq!(temporary_files(&agent.path("")), [""; 0]);
}

#[test]
fn an_interrupted_upload_leaves_the_old_file() {
    let agent = Agent::start();
    let mut host = agent.host();
    let path = agent.path("file");
    std::fs::write(&path, "old").unwrap();
    let begin = |host: &mut crate::host::Host| {
        let op = host.begin_file(write(bytes(&path)), LARGE_WINDOW);
        assert!(matches!(host.receive(), HostMessage::Started { .. }));
        host.send(&ToGuest::Data { op, bytes: &crate::file_ops::pieces(b"half")[..PREFIX + 4] });
        until("it writes", || (!temporary_files(&agent.path("")).is_empty()).then_some(()));
        op
    };
    // The host kills the operation, ...
    let op = begin(&mut host);
    host.send(&ToGuest::Kill { op });
    assert!(matches!(host.receive(), HostMessage::Exited { op: of, .. } if of == op));
    assert_eq!(temporary_files(&agent.path("")), [""; 0]);
    // ... ends the upload without a last piece, ...
    let op = begin(&mut host);
    host.send(&ToGuest::Eof { op });
    assert_eq!(host.finish_file(op, &[]).kind(), Kind::Interrupted);
    // ... or disconnects.
    begin(&mut host);
    drop(host);
    until("the temporary file is removed", || temporary_files(&agent.path("")).is_empty().then_some(()));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    let (mut host, ops) = agent.link();
    assert!(ops.len() <= 1, "{ops:?}");
    while !ops.is_empty() {
        if matches!(host.receive(), HostMessage::Exited { .. }) {
            break;
        }
    }
    until("the operation has ended", || agent.is_childless().then_some(()));
}

#[test]
fn reading_a_special_file_fails_without_blocking() {
    let agent = Agent::start();
    let mut host = agent.host();
    let fifo = agent.path("fifo");
    host.run(&format!("mkfifo {}", fifo.display()));
    symlink("loop", agent.path("loop")).unwrap();
    let looped = agent.path("loop");
    for path in [bytes(&fifo), b"/dev/zero", b"/dev/tty", b"/"] {
        assert_eq!(host.file(read(path)).kind(), Kind::NotAFile, "{path:?}");
        assert_eq!(host.upload(write(path), b"x").exit, guest_proto::Exit::Code(1));
    }
    assert_eq!(host.upload(write(b"/dev/null"), b"x").kind(), Kind::NotAFile);
    assert_eq!(host.file(read(bytes(&looped))).kind(), Kind::Invalid);
    assert_eq!(host.file(read(b"/nowhere/at/all")).kind(), Kind::NotFound);
    assert_eq!(host.file(read(b"/etc/passwd/x")).kind(), Kind::NotADirectory);
    assert_eq!(host.upload(write(b"/proc/version"), b"x").exit, guest_proto::Exit::Code(1));
    assert_eq!(host.upload(write(b"/tmp/"), b"x").kind(), Kind::NotAFile);
    // Files of unknown length.
    let out = host.file(read(b"/proc/self/status"));
    assert!(out.bytes.starts_with(b"Name:"));
    let length = out.bytes.len() as u64;
    assert_eq!(out.done(), Reply::Content { offset: 0, length: Some(length), size: length });
    // An endless read does not delay other operations, and ends when the host kills it.
    let endless = agent.path("endless");
    std::fs::File::create(&endless).unwrap().set_len(1 << 40).unwrap();
    let op = host.begin_file(read(bytes(&endless)), 1000);
    assert!(matches!(host.receive(), HostMessage::Started { .. }));
    let mut open = 1000;
    while open > 0 {
        open -= host.receive_output(op).len();
    }
    assert_eq!(host.run("echo still here").stdout, b"still here\n");
    host.send(&ToGuest::Kill { op });
    while !matches!(host.receive(), HostMessage::Exited { op: of, .. } if of == op) {}
    until("the operation has ended", || agent.is_childless().then_some(()));
}

#[test]
fn a_directory_is_listed_in_pages() {
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
    let entry = |name: &str, kind, size| Reply::Entry { name: name.into(), kind, size };
    let expected = ["f10", "f11", "f12"].map(|name| entry(name, FileKind::File, name[1..].parse().unwrap()));
    assert_eq!(out.replies, [&expected[..], &[Reply::Listed(26)]].concat());
    let replies = host.file(list(25, 100)).replies;
    assert!(
        matches!(&replies[..], [Reply::Entry { kind: FileKind::Directory, .. }, Reply::Listed(26)]),
        "{replies:?}"
    );
    assert_eq!(host.file(list(u64::MAX, 100)).replies, [Reply::Listed(26)]);
    let many = agent.path("many");
    std::fs::create_dir(&many).unwrap();
    for n in 0..20_000 {
        std::fs::write(many.join(n.to_string()), "").unwrap();
    }
    let mut seen = std::collections::BTreeSet::new();
    for page in 0..20 {
        let replies =
            host.file(FileRequest::List { path: bytes(&many), offset: page * 1000, limit: 1000 }).replies;
        assert_eq!(replies.len(), 1001);
        seen.extend(replies.into_iter().filter_map(|reply| match reply {
            Reply::Entry { name, .. } => Some(name),
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
fn directories_are_created_moved_and_deleted() {
    let agent = Agent::start();
    let mut host = agent.host();
    let (deep, other) = (agent.path("a/b/c"), agent.path("other"));
    let make = |path, recursive| FileRequest::MakeDir { path, mode: Some(0o2750), recursive };
    assert_eq!(host.file(make(bytes(&deep), false)).kind(), Kind::NotFound);
    let reply = host.file(make(bytes(&deep), true)).done();
    assert!(matches!(reply, Reply::Stat { kind: FileKind::Directory, mode: 0o2750, .. }), "{reply:?}");
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
    assert_eq!(done, Reply::Done(Tally { files: 1, directories: 3, links: 1, ..Tally::default() }));
    assert!(!other.exists() && std::path::Path::new("/etc/passwd").exists());
    assert_eq!(host.file(delete(bytes(&other), true)).kind(), Kind::NotFound);
    assert_eq!(host.file(delete(b"/", true)).kind(), Kind::Denied);
    // Deeper than the limit of open directories.
    std::fs::create_dir_all(agent.path("d/").join("d/".repeat(1499))).unwrap();
    let done = host.file(delete(bytes(&agent.path("d")), true)).done();
    assert_eq!(done, Reply::Done(Tally { directories: 1500, ..Tally::default() }));
    assert!(!agent.path("d").exists());
}

#[test]
fn moves_work_between_file_systems() {
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
    assert_eq!(temporary_files(std::path::Path::new("/dev/shm")), [""; 0]);
    std::fs::remove_dir_all(&there).unwrap();
}

/// A source that cannot be deleted cannot be moved, and the target is unchanged.
#[test]
fn a_failed_move_changes_nothing() {
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
    assert_eq!(temporary_files(kept.parent().unwrap()), [""; 0]);
    // A file of /proc exists, and cannot be replaced.
    assert_eq!(host.upload(write(b"/proc/sys/kernel/hostname"), b"x").kind(), Kind::Denied);
}

/// The agent's log is a file of the host.
#[test]
fn a_file_operation_cannot_open_the_descriptors_of_the_agent() {
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
            assert_ne!(host.upload(write(path), b"x").exit, guest_proto::Exit::Code(0));
        }
    }
    let out = host.file(FileRequest::List { path: b"/proc/self/fd", offset: 0, limit: 100 });
    assert!(!format!("{out:?}").contains("agent.log"), "{out:?}");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "of the host");
}

#[test]
fn a_full_disk_is_reported_and_no_partial_file_is_left() {
    let agent = Agent::start_with(
        "exec unshare --mount bash -c 'mkdir -p /dev/shm/sandbox-agent-full && mount -t tmpfs -o size=1m tmpfs /dev/shm/sandbox-agent-full && exec unshare --pid --fork --kill-child --mount-proc \"$0\" --listen-fd 3 3<&0 </dev/null' \"$0\"; ",
    );
    let mut host = agent.host();
    let path = b"/dev/shm/sandbox-agent-full/file";
    // The upload may cross with the end of the operation, which is its last message: a later credit would be received
    // by the next request.
    for _ in 0..50 {
        assert_eq!(host.upload(write(path), &vec![1; 4_000_000]).kind(), Kind::DiskFull);
    }
    host.upload(write(path), &vec![1; 500_000]).done();
    assert_eq!(host.upload(write(path), &vec![1; 900_000]).kind(), Kind::DiskFull);
    let out = host.file(FileRequest::List { path: b"/dev/shm/sandbox-agent-full", offset: 0, limit: 10 });
    let entry = Reply::Entry { name: b"file".to_vec(), kind: FileKind::File, size: 500_000 };
    assert_eq!(out.replies, [entry, Reply::Listed(1)]);
    let _ = std::fs::remove_dir("/dev/shm/sandbox-agent-full");
}

#[test]
fn file_operations_are_limited_in_number_and_memory() {
    let agent = Agent::start();
    let mut host = agent.host();
    let path = agent.path("x");
    let mut ops = Vec::new();
    for _ in 0..16 {
        ops.push(host.begin_file(write(bytes(&path)), LARGE_WINDOW));
        assert!(matches!(host.receive(), HostMessage::Started { .. }));
    }
    host.begin_file(write(bytes(&path)), LARGE_WINDOW);
    assert!(matches!(host.receive(), HostMessage::Refused { kind: guest_proto::RefusalKind::TooMany, .. }));
    // A command runs at the same time, and file operations do not hold its pipes open.
    assert_eq!(host.run("echo beside").stdout, b"beside\n");
    for op in ops {
        host.send(&ToGuest::Kill { op });
        assert!(matches!(host.receive(), HostMessage::Exited { op: of, .. } if of == op));
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
