//! Packing and unpacking of tar archives: archives agree with the system's tar, and no entry is written outside the
//! target directory.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use guest_proto::{FileErrorKind as Kind, FileRequest, Tally};

use crate::file_ops::{Outcome, Reply, bytes};
use crate::host::{Agent, Host};

fn pack(host: &mut Host, dir: &Path) -> Vec<u8> {
    let out = host.file(FileRequest::Pack { path: bytes(dir) });
    let archive = out.bytes.clone();
    assert_eq!(out.done(), Reply::Packing);
    archive
}

fn unpack(host: &mut Host, dir: &Path, archive: &[u8]) -> Outcome {
    host.upload(FileRequest::Unpack { path: bytes(dir) }, archive)
}

const COMPARE: &str = "--compare";

/// Runs the system's tar.
fn tar(dir: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut child = Command::new("tar")
        .current_dir(dir)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeding = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap().unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() || arguments[0] == COMPARE, "tar {arguments:?}: {output_text}");
    output.stdout
}

/// Differences between a directory and an archive, according to tar. The times of directories differ, because filling
/// a directory changes its time.
fn differences(dir: &Path, archive: &[u8]) -> Vec<String> {
    let output_text = String::from_utf8(tar(dir, &[COMPARE, "-f", "-"], archive)).unwrap();
    let of_a_directory = |line: &&str| {
        let name = line.strip_suffix(": Mod time differs");
        name.is_some_and(|name| dir.join(name).is_dir() && !dir.join(name).is_symlink())
    };
    output_text.lines().filter(|line| !of_a_directory(line)).map(str::to_owned).collect()
}

/// An entry with a hand-made header, for archives that tar does not write.
fn entry(kind: u8, name: &str, link: &str, content: &[u8]) -> Vec<u8> {
    let mut block = vec![0u8; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..107].copy_from_slice(b"0000644");
    block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    block[136..147].copy_from_slice(b"00000000000");
    block[148..156].copy_from_slice(b"        ");
    block[156] = kind;
    block[157..157 + link.len()].copy_from_slice(link.as_bytes());
    block[257..263].copy_from_slice(b"ustar\0");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block.extend_from_slice(content);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

#[test]
fn a_packed_tree_unpacks_to_the_same_tree() {
    let agent = Agent::start();
    let mut host = agent.host();
    let tree = agent.path("tree");
    let long = "n".repeat(200);
    std::fs::create_dir_all(tree.join("sub/empty")).unwrap();
    std::fs::create_dir_all(tree.join(&long).join(&long)).unwrap();
    std::fs::write(tree.join(&long).join(&long).join("file"), "deep").unwrap();
    std::fs::write(tree.join("sub/odd"), vec![7; 1025]).unwrap();
    std::fs::write(tree.join("empty"), "").unwrap();
    std::fs::write(tree.join(std::ffi::OsStr::new("h\u{e9}")), "x").unwrap();
    std::fs::set_permissions(tree.join("sub/odd"), std::fs::Permissions::from_mode(0o4711)).unwrap();
    symlink(format!("../{long}/{long}"), tree.join("sub/link")).unwrap();
    symlink("/etc/passwd", tree.join("away")).unwrap();
    host.run(&format!("cd {} && printf x > \"$(printf 'b\\377d')\" && mkfifo fifo", tree.display()));
    let archive = pack(&mut host, &tree);
    let listed = String::from_utf8_lossy(&tar(&tree, &["-tf", "-"], &archive)).lines().count();
    assert_eq!(listed, 11);
    // The system's tar finds no difference except the missing fifo.
    assert_eq!(differences(&tree, &archive), [""; 0]);
    let copy = agent.path("copy");
    let tally = unpack(&mut host, &copy, &archive).done();
    assert_eq!(
        tally,
        Reply::Done(Tally { files: 5, directories: 4, links: 2, skipped: 0, bytes: 1025 + 4 + 1 + 1 })
    );
    std::fs::remove_file(tree.join("fifo")).unwrap();
    assert_eq!(differences(&copy, &archive), [""; 0]);
    let mode = copy.join("sub/odd").metadata().unwrap().mode();
    assert_eq!(mode & 0o7777, 0o4711);
    // Archives of the system's tar in both formats.
    for format in ["--format=gnu", "--format=pax"] {
        let archive = tar(&tree, &["-c", format, "--hard-dereference", "."], b"");
        let copy = agent.path(format);
        unpack(&mut host, &copy, &archive).done();
        assert_eq!(differences(&copy, &archive), [""; 0]);
        // Unpack over the existing files.
        unpack(&mut host, &copy, &archive).done();
        assert_eq!(differences(&copy, &archive), [""; 0]);
    }
}

#[test]
fn no_entry_is_unpacked_outside_its_directory() {
    let agent = Agent::start();
    let mut host = agent.host();
    let outside = agent.path("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("file"), "safe").unwrap();
    let away = outside.to_str().unwrap();
    for (name, archive) in [
        ("dots", entry(b'0', "../outside/file", "", b"evil")),
        ("inner dots", entry(b'0', "a/../../outside/file", "", b"evil")),
        ("link", [entry(b'2', "l", away, b""), entry(b'0', "l/file", "", b"evil")].concat()),
        ("link as directory", [entry(b'2', "l", away, b""), entry(b'5', "l/", "", b"")].concat()),
        ("relative link", [entry(b'2', "l", "../outside", b""), entry(b'0', "l/file", "", b"evil")].concat()),
        ("hard link out", entry(b'1', "h", "../outside/file", b"")),
        ("hard link through", [entry(b'2', "l", away, b""), entry(b'1', "h", "l/file", b"")].concat()),
        ("sparse", entry(b'S', "s", "", b"")),
        (
            "sparse by records",
            [entry(b'x', "x", "", b"22 GNU.sparse.major=1\n"), entry(b'0', "s", "", b"1")].concat(),
        ),
        ("a long name", entry(b'L', "l", "", &vec![b'x'; 70_000])),
        ("records", entry(b'x', "x", "", b"999999 path=a\n")),
        ("no archive", vec![b'x'; 2048]),
        ("gzip", [&[0x1f, 0x8b][..], &[0; 1022]].concat()),
        ("cut in a header", entry(b'0', "a", "", b"")[..300].to_vec()),
        ("cut in a content", entry(b'0', "cut", "", &[1; 600])[..700].to_vec()),
        ("nothing", Vec::new()),
    ] {
        let dir = agent.path("in");
        let _ = std::fs::remove_dir_all(&dir);
        let (kind, message) = unpack(&mut host, &dir, &archive).failed();
        assert_eq!(kind, Kind::Invalid, "{name}: {message}");
        assert!(!dir.join("h").exists() && !dir.join("cut").exists(), "{name}");
        let names: Vec<_> =
            std::fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["file"], "{name}");
        assert_eq!(std::fs::read_to_string(outside.join("file")).unwrap(), "safe", "{name}");
    }
    // Entries that are allowed because they stay inside the directory.
    let dir = agent.path("below");
    let archive = [
        entry(b'0', "/absolute", "", b"a"),
        entry(b'0', "./x//y", "", b"b"),
        entry(b'1', "same", "x/y", b""),
        // A hard link to itself, which tar writes for a name packed twice.
        entry(b'1', "./same", "same", b""),
        entry(b'3', "device", "", b""),
        entry(b'4', "device", "", b""),
        entry(b'6', "fifo", "", b""),
        entry(b'2', "replaced", away, b""),
        entry(b'0', "replaced", "", b"file now"),
        entry(b'5', "./", "", b""),
    ]
    .concat();
    let tally = unpack(&mut host, &dir, &archive).done();
    assert_eq!(tally, Reply::Done(Tally { files: 3, directories: 0, links: 3, skipped: 3, bytes: 10 }));
    assert_eq!(std::fs::read_to_string(dir.join("absolute")).unwrap(), "a");
    assert_eq!(dir.join("same").metadata().unwrap().nlink(), 2);
    assert!(!dir.join("replaced").is_symlink() && !dir.join("fifo").exists());
}

#[test]
fn ten_thousand_small_files_are_packed_and_unpacked_quickly() {
    let agent = Agent::start();
    let mut host = agent.host();
    let (tree, copy) = (agent.path("tree"), agent.path("copy"));
    for dir in 0..100 {
        let dir = tree.join(format!("d{dir}"));
        std::fs::create_dir_all(&dir).unwrap();
        for file in 0..100 {
            std::fs::write(dir.join(format!("f{file}")), vec![b'x'; 1000]).unwrap();
        }
    }
    let begin = Instant::now();
    let archive = pack(&mut host, &tree);
    let out = begin.elapsed();
    let begin = Instant::now();
    let tally = unpack(&mut host, &copy, &archive).done();
    println!("10,000 files out in {out:?}, in in {:?}", begin.elapsed());
    assert_eq!(
        tally,
        Reply::Done(Tally { files: 10_000, directories: 100, bytes: 10_000_000, ..Tally::default() })
    );
}
