use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use proptest::prelude::*;
use tar::{Builder, EntryType, Header};

use super::*;
use crate::limits::ImageLimits;

/// One entry with any name, valid or not.
#[derive(Debug, Clone)]
struct Item {
    kind: EntryType,
    name: Vec<u8>,
    link: Vec<u8>,
    data: Vec<u8>,
    mode: u32,
    uid: u64,
    pax: Vec<(String, Vec<u8>)>,
}

impl Item {
    fn new(kind: EntryType, name: &str) -> Self {
        let name = name.as_bytes().to_vec();
        Self { kind, name, link: vec![], data: vec![], mode: 0o644, uid: 0, pax: vec![] }
    }
    fn file(name: &str, data: &str) -> Self {
        Self { data: data.as_bytes().to_vec(), ..Self::new(EntryType::Regular, name) }
    }
    fn dir(name: &str) -> Self {
        Self { mode: 0o755, ..Self::new(EntryType::Directory, name) }
    }
    fn link(kind: EntryType, name: &str, target: &str) -> Self {
        Self { link: target.as_bytes().to_vec(), ..Self::new(kind, name) }
    }
    fn symlink(name: &str, target: &str) -> Self {
        Self::link(EntryType::Symlink, name, target)
    }
    fn pax(mut self, key: &str, value: &[u8]) -> Self {
        self.pax.push((key.to_owned(), value.to_vec()));
        self
    }
}

fn tar(items: &[Item]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for item in items {
        tar.append_pax_extensions(item.pax.iter().map(|(key, value)| (key.as_str(), value.as_slice())))
            .unwrap();
        let mut header = Header::new_gnu();
        header.set_entry_type(item.kind);
        // Written without the library, which refuses these names.
        let gnu = header.as_gnu_mut().unwrap();
        gnu.name[..item.name.len()].copy_from_slice(&item.name);
        gnu.linkname[..item.link.len()].copy_from_slice(&item.link);
        header.set_mode(item.mode);
        header.set_uid(item.uid);
        header.set_gid(item.uid);
        header.set_mtime(1_000_000_000);
        header.set_size(item.data.len() as u64);
        header.set_cksum();
        tar.append(&header, item.data.as_slice()).unwrap();
    }
    tar.into_inner().unwrap()
}

/// A directory to unpack into, beside one that must not change.
struct TestTree {
    dir: tempfile::TempDir,
}

impl TestTree {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("tree")).unwrap();
        std::fs::create_dir_all(dir.path().join("outside")).unwrap();
        std::fs::write(dir.path().join("outside/secret"), "untouched").unwrap();
        Self { dir }
    }
    fn outside(&self) -> PathBuf {
        self.dir.path().join("outside")
    }
    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join("tree").join(path)
    }
    fn unpack_with(&self, tar: &[u8], whiteouts: Whiteouts, limits: ImageLimits) -> Result<Unpacked, Fault> {
        let rules = Rules { whiteouts, budget: Arc::new(Budget::new(limits)), cancelled: Arc::default() };
        unpack(Cursor::new(tar), &self.at(""), &rules)
    }
    fn unpack(&self, items: &[Item]) -> Result<Unpacked, Fault> {
        self.unpack_with(&tar(items), Whiteouts::Honour, ImageLimits::default())
    }
    fn assert_outside_untouched(&self) {
        let names: Vec<_> =
            std::fs::read_dir(self.outside()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["secret"]);
        assert_eq!(std::fs::read_to_string(self.outside().join("secret")).unwrap(), "untouched");
        assert_eq!(self.outside().join("secret").metadata().unwrap().nlink(), 1);
        let mut beside: Vec<_> =
            std::fs::read_dir(self.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        beside.sort();
        assert_eq!(beside, ["outside", "tree"]);
    }
}

fn xattr(path: &std::path::Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 1_024];
    let n = rustix::fs::lgetxattr(path, name, value.as_mut_slice()).ok()?;
    value.truncate(n);
    Some(value)
}

#[test]
fn owners_modes_times_links_and_attributes_are_preserved() {
    let test_tree = TestTree::new();
    let capability = b"\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00";
    let mut setuid = Item::file("bin/su", "x").pax("SCHILY.xattr.user.note", b"kept");
    (setuid.mode, setuid.uid) = (0o4755, 1_000);
    let mut dir = Item::dir("bin");
    (dir.mode, dir.uid) = (0o2750, 65_535);
    let long = format!("bin/{}", "n".repeat(200));
    let items = [
        dir,
        setuid,
        Item::file("bin/ping", "y").pax("SCHILY.xattr.security.capability", capability).pax("mtime", b"5.25"),
        Item::link(EntryType::Link, "bin/pong", "bin/ping"),
        Item::symlink("sh", "/bin/bash"),
        Item::new(EntryType::Fifo, "pipe"),
        Item::file("short", "z").pax("path", long.as_bytes()),
    ];
    test_tree.unpack(&items).unwrap();
    let meta = |path: &str| test_tree.at(path).symlink_metadata().unwrap();
    assert_eq!(
        (meta("bin").mode() & 0o7777, meta("bin").uid(), meta("bin").mtime()),
        (0o2750, 65_535, 1_000_000_000)
    );
    assert_eq!((meta("bin/su").mode() & 0o7777, meta("bin/su").uid()), (0o4755, 1_000));
    assert_eq!(xattr(&test_tree.at("bin/su"), "user.note").unwrap(), b"kept");
    assert_eq!(xattr(&test_tree.at("bin/ping"), "security.capability").unwrap(), capability);
    assert_eq!((meta("bin/ping").mtime(), meta("bin/ping").mtime_nsec()), (5, 250_000_000));
    assert_eq!(meta("bin/ping").ino(), meta("bin/pong").ino());
    assert_eq!(std::fs::read_link(test_tree.at("sh")).unwrap(), PathBuf::from("/bin/bash"));
    assert_eq!(meta("sh").mtime(), 1_000_000_000);
    assert!(meta("pipe").file_type().is_fifo());
    assert_eq!(std::fs::read_to_string(test_tree.at(&long)).unwrap(), "z");
}

#[test]
fn digests_cover_all_bytes_for_each_compression() {
    let tar = tar(&[Item::file("a", "text")]);
    let mut gzip = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
    gzip.write_all(&tar).unwrap();
    for packed in [tar.clone(), gzip.finish().unwrap(), zstd::encode_all(tar.as_slice(), 3).unwrap()] {
        let test_tree = TestTree::new();
        let unpacked = test_tree.unpack_with(&packed, Whiteouts::Honour, ImageLimits::default()).unwrap();
        assert_eq!(unpacked.diff_id, sha256_hex(&tar));
        assert_eq!(unpacked.blob_id, sha256_hex(&packed));
        assert_eq!(std::fs::read_to_string(test_tree.at("a")).unwrap(), "text");
    }
    let trailing = [tar.as_slice(), &[7; 5_000]].concat();
    let unpacked = TestTree::new().unpack_with(&trailing, Whiteouts::Honour, ImageLimits::default()).unwrap();
    assert_eq!(unpacked.diff_id, sha256_hex(&trailing));
}

#[test]
fn whiteouts_take_the_form_of_overlayfs() {
    let test_tree = TestTree::new();
    let items = [
        Item::file("etc/.wh.gone", ""),
        Item::dir("opaque"),
        Item::file("opaque/.wh..wh..opq", ""),
        // Removed from the lower layer and created in this one: the whiteout may be first or second.
        Item::file(".wh.before", ""),
        Item::file("before/new", "n"),
        Item::file("after/new", "n"),
        Item::file(".wh.after", ""),
        Item::file("file", "f"),
        Item::file(".wh.file", ""),
        Item::file(".wh..wh.plnk", ""),
    ];
    test_tree.unpack(&items).unwrap();
    let gone = test_tree.at("etc/gone").symlink_metadata().unwrap();
    assert!(gone.file_type().is_char_device());
    assert_eq!(gone.rdev(), 0);
    for dir in ["opaque", "before", "after"] {
        assert_eq!(xattr(&test_tree.at(dir), "trusted.overlay.opaque").as_deref(), Some(&b"y"[..]), "{dir}");
    }
    assert_eq!(xattr(&test_tree.at("etc"), "trusted.overlay.opaque"), None);
    assert_eq!(std::fs::read_to_string(test_tree.at("file")).unwrap(), "f");
    let mut names: Vec<_> =
        std::fs::read_dir(test_tree.at("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["after", "before", "etc", "file", "opaque"]);
    let refused = test_tree.unpack_with(&tar(&items), Whiteouts::Refuse, ImageLimits::default()).unwrap_err();
    assert!(refused.to_string().contains("whiteout"), "{refused}");
}

#[test]
fn links_in_the_archive_do_not_lead_outside() {
    let outside = |test_tree: &TestTree| test_tree.outside().to_str().unwrap().to_owned();
    for (target, via) in [
        ("/", "l"),
        ("..", "l"),
        ("../../../../../..", "l"),
        ("/proc/self/root", "l"),
        ("/proc/self/cwd", "l"),
    ] {
        let test_tree = TestTree::new();
        let planted = format!("{via}{}/planted", outside(&test_tree));
        let items = [Item::symlink(via, target), Item::file(&planted, "bad")];
        let _ = test_tree.unpack(&items); // in or refused, never out
        test_tree.assert_outside_untouched();
    }
    let test_tree = TestTree::new();
    let target = outside(&test_tree);
    let items = [
        Item::symlink("l", &target),
        Item::file("l", "replaces the link"),
        Item::symlink("k", &format!("{target}/secret")),
    ];
    test_tree.unpack(&items).unwrap();
    assert!(test_tree.at("l").symlink_metadata().unwrap().is_file());
    test_tree.assert_outside_untouched();
    let test_tree = TestTree::new();
    let items = [Item::symlink("secret", &format!("{target}/secret")), Item::file("secret", "over the link")];
    test_tree.unpack(&items).unwrap();
    test_tree.assert_outside_untouched();
}

#[test]
fn a_parent_link_within_the_layer_is_followed() {
    let test_tree = TestTree::new();
    let items = [Item::dir("usr/lib"), Item::symlink("lib", "/usr/lib"), Item::file("lib/libc.so", "c")];
    test_tree.unpack(&items).unwrap();
    assert_eq!(std::fs::read_to_string(test_tree.at("usr/lib/libc.so")).unwrap(), "c");
}

#[test]
fn hostile_entries_are_refused_with_their_reason() {
    let device = |kind, major, minor| {
        let mut header = Header::new_gnu();
        header.set_path("dev/x").unwrap();
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_mode(0o600);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_device_major(major).unwrap();
        header.set_device_minor(minor).unwrap();
        header.set_cksum();
        let mut tar = Builder::new(Vec::new());
        tar.append(&header, std::io::empty()).unwrap();
        tar.into_inner().unwrap()
    };
    let far = |name: &str, uid| Item { uid, ..Item::file(name, "") };
    let cases = [
        (tar(&[Item::file("../x", "")]), "'..'"),
        (tar(&[Item::file("a/../../x", "")]), "'..'"),
        (tar(&[Item::file("x", "").pax("path", b"../../x")]), "'..'"),
        (device(EntryType::Char, 0, 0), "is a device"),
        (device(EntryType::Block, 8, 0), "is a device"),
        (tar(&[Item::link(EntryType::Link, "h", "../outside/secret")]), "'..'"),
        (tar(&[Item::link(EntryType::Link, "h", "/etc/passwd")]), "not a file of the same layer"),
        (tar(&[Item::dir("d"), Item::link(EntryType::Link, "h", "d")]), "not a file of the same layer"),
        (
            tar(&[Item::file(".wh.w", ""), Item::link(EntryType::Link, "h", "w")]),
            "not a file of the same layer",
        ),
        (
            tar(&[Item::symlink("l", "/proc/1/root"), Item::link(EntryType::Link, "h", "l/etc/passwd")]),
            "not a file of the same layer",
        ),
        (tar(&[far("x", 65_536)]), "user 65536"),
        (tar(&[far("x", 0).pax("uid", b"70000")]), "user 70000"),
        (tar(&[far("x", 1 << 40)]), "user"),
        (tar(&[Item::new(EntryType::new(b'Q'), "x")]), "unknown type"),
        (tar(&[Item::symlink("x", "")]), "without a usable target"),
        (tar(&[Item::file("x", "").pax("GNU.sparse.major", b"1")]), "sparse"),
        (tar(&[Item::file("x", "").pax("SCHILY.xattr.user.a", b"1\n2\n")]), "extended header"),
        (tar(&[Item::file("f", ""), Item::file("f/x", "")]), "does not lead to a directory"),
        (tar(&[Item::symlink("l", "l"), Item::file("l/x", "")]), "does not lead to a directory"),
        (tar(&[Item::symlink("l", "nowhere"), Item::file("l/x", "")]), "does not lead to a directory"),
        (tar(&[Item::file("d/x", ""), Item::file("d", "")]), "replace"),
        (tar(&[Item::file(".", "")]), "not a directory"),
        (tar(&[Item::file(".wh...", "")]), "whiteout without a file name"),
        (b"BZh91AY&SY".to_vec(), "bzip2"),
        (vec![1; 512], "cannot be read"),
        (tar(&[Item::file("x", "data")])[..700].to_vec(), "ends within"),
    ];
    for (n, (tar, expected)) in cases.iter().enumerate() {
        let test_tree = TestTree::new();
        let fault =
            test_tree.unpack_with(tar, Whiteouts::Honour, ImageLimits::default()).expect_err(expected);
        if !(n == cases.len() - 1 && fault.to_string().contains("cannot be read")) {
            assert!(fault.to_string().contains(expected), "case {n}: want {expected:?}, got {fault}");
        }
        assert!(matches!(fault.kind, FailureKind::Refused | FailureKind::TooBig), "case {n}: {fault:?}");
        test_tree.assert_outside_untouched();
    }
}

#[test]
fn attributes_that_overlayfs_or_the_host_trusts_cannot_be_planted() {
    let test_tree = TestTree::new();
    let bad = [
        "trusted.overlay.opaque",
        "trusted.overlay.redirect",
        "trusted.overlay.metacopy",
        "trusted.x",
        "user.overlay.redirect",
        "security.selinux",
        "security.ima",
        "system.posix_acl_access",
    ];
    let planted =
        |item: Item| bad.iter().fold(item, |item, name| item.pax(&format!("SCHILY.xattr.{name}"), b"/etc"));
    test_tree
        .unpack(&[planted(Item::dir("d")), planted(Item::file("f", "")), planted(Item::dir("./"))])
        .unwrap();
    for path in ["d", "f", ""] {
        for name in bad {
            assert_eq!(xattr(&test_tree.at(path), name), None, "{name} on {path:?}");
        }
    }
}

#[test]
fn bombs_are_refused_before_they_are_written() {
    let limits = ImageLimits { unpacked_bytes: 1 << 20, entries: 100, ..ImageLimits::default() };
    let sparse = |path| {
        let mut header = Header::new_gnu();
        header.set_path(path).unwrap();
        header.set_entry_type(EntryType::GNUSparse);
        header.set_mode(0o600);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(0);
        let gnu = header.as_gnu_mut().unwrap();
        gnu.set_real_size(1 << 45);
        gnu.sparse[0].set_offset(1 << 45);
        gnu.sparse[0].set_length(0);
        header.set_cksum();
        let mut tar = Builder::new(Vec::new());
        tar.append(&header, std::io::empty()).unwrap();
        tar.into_inner().unwrap()
    };
    let mut claimed = Header::new_gnu();
    claimed.set_path("claims").unwrap();
    claimed.set_mode(0o600);
    claimed.set_uid(0);
    claimed.set_gid(0);
    claimed.set_mtime(0);
    claimed.set_size(u64::MAX >> 1);
    claimed.set_cksum();
    let names: Vec<Item> = (0..101).map(|n| Item::file(&format!("f{n}"), "")).collect();
    let deep = Item::file("x", "").pax("path", "d/".repeat(200).as_bytes());
    let long = Item::file("x", "").pax("path", "ab/".repeat(2_000).as_bytes());
    let header_flood = Item::file("x", "").pax("comment", &vec![b'c'; 2 << 20]);
    let cases = [
        (tar(&[Item::file("big", &"x".repeat((1 << 20) + 1))]), "more than the 1048576 bytes"),
        (sparse("huge"), "more than the 1048576 bytes"),
        // Their holes are not written, but would be read for years.
        (sparse(".wh.huge"), "without --sparse"),
        (sparse(".wh..wh..opq"), "without --sparse"),
        (claimed.as_bytes().to_vec(), "more than the 1048576 bytes"),
        (tar(&names), "more than the 100 entries"),
        (tar(&[deep]), "components allowed"),
        (tar(&[long]), "longer than"),
        (tar(&[header_flood]), "headers of one entry"),
    ];
    for (tar, expected) in cases {
        let fault = TestTree::new().unpack_with(&tar, Whiteouts::Honour, limits).expect_err(expected);
        assert!(fault.to_string().contains(expected), "want {expected:?}, got {fault}");
    }
}

#[test]
fn an_archive_with_an_excessive_ratio_is_refused() {
    // The tar is empty and followed by zeros, which are read only for the digest.
    let zeros = std::io::Read::take(std::io::repeat(0), 400 << 20);
    let mut packed = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    std::io::copy(&mut { zeros }, &mut packed).unwrap();
    let packed = packed.finish().unwrap();
    let limits = ImageLimits { ratio: 100, ..ImageLimits::default() };
    let fault = TestTree::new().unpack_with(&packed, Whiteouts::Honour, limits).expect_err("a bomb");
    assert!(fault.to_string().contains("100 times"), "{fault}");
    let small = ImageLimits { unpacked_bytes: 1 << 20, entries: 10, ..ImageLimits::default() };
    let fault = TestTree::new().unpack_with(&packed, Whiteouts::Honour, small).expect_err("a bomb");
    assert!(fault.to_string().contains("more than"), "{fault}");
}

#[test]
fn sparse_files_of_gnu_tar_keep_their_holes() {
    let dir = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(dir.path().join("s")).unwrap();
    file.set_len(64 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"middle", 32 << 20).unwrap();
    let made = std::process::Command::new("tar")
        .current_dir(dir.path())
        .args(["--format=gnu", "-Scf", "s.tar", "s"])
        .status();
    assert!(made.unwrap().success());
    let test_tree = TestTree::new();
    test_tree
        .unpack_with(
            &std::fs::read(dir.path().join("s.tar")).unwrap(),
            Whiteouts::Refuse,
            ImageLimits::default(),
        )
        .unwrap();
    let meta = test_tree.at("s").metadata().unwrap();
    assert_eq!(meta.len(), 64 << 20);
    assert!(meta.blocks() * 512 < 4 << 20, "{} blocks", meta.blocks());
    let bytes = std::fs::read(test_tree.at("s")).unwrap();
    assert_eq!(&bytes[32 << 20..(32 << 20) + 6], b"middle");
    assert_eq!(bytes.iter().filter(|b| **b != 0).count(), 6);
}

#[test]
fn a_cancelled_unpack_ends() {
    let test_tree = TestTree::new();
    let rules = Rules {
        whiteouts: Whiteouts::Honour,
        budget: Arc::new(Budget::new(ImageLimits::default())),
        cancelled: Arc::new(AtomicBool::new(true)),
    };
    let fault = unpack(Cursor::new(tar(&[Item::file("a", "")])), &test_tree.at(""), &rules).unwrap_err();
    assert!(fault.to_string().contains("cancelled"), "{fault}");
    assert!(!test_tree.at("a").exists());
}

fn hostile_path() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        3 => "[a-c]",
        1 => Just("..".to_owned()),
        1 => Just(".".to_owned()),
        1 => Just(String::new()),
        1 => Just(".wh.a".to_owned()),
        1 => Just(".wh..wh..opq".to_owned()),
    ];
    proptest::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"))
}

fn hostile_item() -> impl Strategy<Value = (u8, String, String)> {
    let target = prop_oneof![
        3 => hostile_path(),
        1 => Just("/".to_owned()),
        1 => Just("OUTSIDE".to_owned()),
        1 => Just("OUTSIDE/secret".to_owned()),
        1 => Just("/proc/self/root/OUTSIDE".to_owned()),
        1 => Just("../outside".to_owned()),
    ];
    (0_u8..6, hostile_path(), target)
}

/// All paths with mode and time, without the root's time.
fn listing(dir: &std::path::Path) -> BTreeMap<PathBuf, (u32, u64)> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            found.insert(entry.path(), (meta.mode(), meta.size()));
            if meta.is_dir() {
                open.push(entry.path());
            }
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_entries_reaches_outside(items in proptest::collection::vec(hostile_item(), 1..12)) {
        let test_tree = TestTree::new();
        let before = listing(&test_tree.outside());
        let outside = test_tree.outside().to_str().unwrap().to_owned();
        let items: Vec<Item> = items.into_iter().map(|(kind, name, target)| {
            let target = target.replace("OUTSIDE", &outside);
            match kind {
                0 | 1 => Item::symlink(&name, &target),
                2 => Item::link(EntryType::Link, &name, target.trim_start_matches('/')),
                3 => Item::dir(&name),
                4 => Item::new(EntryType::Fifo, &name),
                _ => Item::file(&name, "data"),
            }
        }).filter(|item| item.name.len() < 100 && item.link.len() < 100).collect();
        if let Err(fault) = test_tree.unpack(&items) {
            prop_assert_eq!(fault.kind, FailureKind::Refused, "{}", fault);
        }
        test_tree.assert_outside_untouched();
        prop_assert_eq!(listing(&test_tree.outside()), before);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..3_000), cut in 0_usize..2_000, at in 0_usize..2_000, flip in any::<u8>()) {
        let _ = TestTree::new().unpack_with(&bytes, Whiteouts::Honour, ImageLimits::default());
        let mut good = tar(&[Item::dir("d"), Item::file("d/f", "x").pax("SCHILY.xattr.user.a", b"1"), Item::symlink("l", "d")]);
        let len = good.len();
        good[at % len] ^= flip;
        good.truncate(len - cut % len);
        let test_tree = TestTree::new();
        let _ = test_tree.unpack_with(&good, Whiteouts::Honour, ImageLimits::default());
        test_tree.assert_outside_untouched();
    }
}
