//! What comes back from a sandbox, with the sandbox as a second local directory.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::super::archive::{pack, pack_recorded};
use super::super::tree::unpack;
use super::*;

/// A local directory and its copy in a sandbox.
struct Copies {
    local: TempDir,
    inside: TempDir,
    sent: SentEntries,
}

impl Copies {
    fn new(files: &[&str]) -> Self {
        let (local, inside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in files {
            let path = local.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "sent").unwrap();
        }
        let mut archive = Vec::new();
        let sent = pack_recorded(local.path(), &mut archive).unwrap();
        unpack(&mut archive.as_slice(), inside.path()).unwrap();
        Self { local, inside, sent }
    }

    fn local(&self, name: &str) -> PathBuf {
        self.local.path().join(name)
    }

    fn inside(&self, name: &str) -> PathBuf {
        self.inside.path().join(name)
    }

    fn merge(&self) -> io::Result<Unpacked> {
        let mut archive = Vec::new();
        pack(self.inside.path(), &mut archive).unwrap();
        merge_archive(&mut archive.as_slice(), self.local.path(), &self.sent)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.local(name)).unwrap()
    }

    fn mode(&self, name: &str) -> u32 {
        self.local(name).metadata().unwrap().mode() & PERMISSIONS
    }
}

fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_the_sandbox_has_not_changed_is_not_touched() {
    let copies = Copies::new(&["same", "edited", "deleted", "dir/deleted", "linked"]);
    fs::hard_link(copies.local("linked"), copies.local("second")).unwrap();
    fs::write(copies.local("edited"), "mine").unwrap();
    fs::remove_file(copies.local("deleted")).unwrap();
    fs::remove_dir_all(copies.local("dir")).unwrap();
    let seen = |name: &str| {
        let found = copies.local(name).metadata().unwrap();
        (found.ino(), found.ctime(), found.ctime_nsec(), found.nlink())
    };
    let before = ["same", "edited", "linked"].map(seen);
    // A touch changes no content.
    File::options().write(true).open(copies.inside("same")).unwrap().set_modified(SystemTime::now()).unwrap();
    let merged = copies.merge().unwrap();
    assert_eq!((merged.files, merged.directories, merged.links), (0, 0, 0));
    assert_eq!(["same", "edited", "linked"].map(seen), before);
    assert_eq!(copies.text("edited"), "mine");
    assert!(!copies.local("deleted").exists() && !copies.local("dir").exists());
}

#[test]
fn a_large_unchanged_file_is_not_touched() {
    let mut copies = Copies::new(&[]);
    let large = vec![7; usize::try_from(MOST_IN_MEMORY).unwrap() + 1];
    for path in [copies.local("large"), copies.inside("large")] {
        fs::write(path, &large).unwrap();
    }
    copies.sent = pack_recorded(copies.local.path(), &mut io::sink()).unwrap();
    let inode = copies.local("large").metadata().unwrap().ino();
    assert_eq!(copies.merge().unwrap().files, 0);
    assert_eq!(copies.local("large").metadata().unwrap().ino(), inode);
    fs::write(copies.inside("large"), &large[1..]).unwrap();
    fs::write(copies.inside("large2"), &large).unwrap();
    assert_eq!(copies.merge().unwrap().files, 2);
    assert_eq!(copies.local("large").metadata().unwrap().len(), MOST_IN_MEMORY);
    assert_eq!(copies.local.path().read_dir().unwrap().count(), 2, "a temporary file is left");
}

#[test]
fn changed_and_new_entries_are_copied() {
    let copies = Copies::new(&["changed", "script", "private", "dir/file"]);
    // The same size, and the same second.
    fs::write(copies.inside("changed"), "SENT").unwrap();
    set_mode(copies.inside("script"), 0o755);
    set_mode(copies.local("private"), 0o600);
    fs::write(copies.inside("private"), "more").unwrap();
    fs::create_dir(copies.inside("new")).unwrap();
    fs::write(copies.inside("new/file"), "new").unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::options().write(true).open(copies.inside("new/file")).unwrap().set_modified(then).unwrap();
    set_mode(copies.inside("new/file"), 0o640);
    set_mode(copies.inside("new"), 0o500);
    std::os::unix::fs::symlink("changed", copies.inside("link")).unwrap();
    // Deleted inside.
    fs::remove_file(copies.inside("dir/file")).unwrap();
    let merged = copies.merge().unwrap();
    assert_eq!((merged.files, merged.directories, merged.links), (3, 1, 1));
    assert_eq!((copies.text("changed"), copies.text("private")), ("SENT".into(), "more".into()));
    // The local mode stays, unless the sandbox has changed it.
    assert_eq!((copies.mode("private"), copies.mode("script")), (0o600, 0o755));
    assert_eq!((copies.mode("new"), copies.mode("new/file")), (0o500, 0o640));
    assert_eq!(copies.local("new/file").metadata().unwrap().mtime(), 1_000_000_000);
    assert_eq!(copies.text("link"), "SENT");
    assert!(copies.local("dir/file").exists());
    set_mode(copies.local("new"), 0o700);
    set_mode(copies.inside("new"), 0o700);
}

#[test]
fn what_both_have_changed_is_kept_and_reported() {
    let copies = Copies::new(&["both", "gone", "alike"]);
    for name in ["both", "gone", "created"] {
        fs::write(copies.inside(name), "theirs").unwrap();
    }
    for name in ["both", "created"] {
        fs::write(copies.local(name), "mine").unwrap();
    }
    fs::remove_file(copies.local("gone")).unwrap();
    fs::write(copies.inside("alike"), "alike").unwrap();
    fs::write(copies.local("alike"), "alike").unwrap();
    fs::write(copies.inside("other"), "other").unwrap();
    // Exists already, and is not replaced.
    fs::write(copies.local("both.from-sandbox"), "earlier").unwrap();
    let error = copies.merge().unwrap_err().to_string();
    for part in ["'both'", "'both.from-sandbox.2'", "'gone.from-sandbox'", "'created.from-sandbox'"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!error.contains("alike"), "{error}");
    assert_eq!((copies.text("both"), copies.text("created")), ("mine".into(), "mine".into()));
    assert_eq!(copies.text("both.from-sandbox"), "earlier");
    for name in ["both.from-sandbox.2", "gone.from-sandbox", "created.from-sandbox"] {
        assert_eq!(copies.text(name), "theirs", "{name}");
    }
    assert!(!copies.local("gone").exists());
    assert_eq!(copies.text("other"), "other", "a conflict does not affect others");
}

#[test]
fn owners_are_kept_and_new_files_belong_to_the_owner_of_their_directory() {
    let copies = Copies::new(&["changed"]);
    let own = |name: &str, id: u32| std::os::unix::fs::chown(copies.local(name), Some(id), Some(id));
    // Only root gives files away.
    if own("changed", 1234).is_err() {
        return;
    }
    own("", 1235).unwrap();
    fs::write(copies.inside("changed"), "more").unwrap();
    fs::create_dir(copies.inside("new")).unwrap();
    fs::write(copies.inside("new/file"), "new").unwrap();
    std::os::unix::fs::symlink("file", copies.inside("new/link")).unwrap();
    copies.merge().unwrap();
    let owner = |name: &str| {
        let found = fs::symlink_metadata(copies.local(name)).unwrap();
        (found.uid(), found.gid())
    };
    assert_eq!(owner("changed"), (1234, 1234));
    assert_eq!(["new", "new/file", "new/link"].map(owner), [(1235, 1235); 3]);
}

#[test]
fn nothing_is_written_through_links() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("victim"), "good").unwrap();
    let copies = Copies::new(&["dir/file"]);
    // The directory becomes a link here, and another in the sandbox.
    fs::remove_dir_all(copies.local("dir")).unwrap();
    std::os::unix::fs::symlink(outside.path(), copies.local("dir")).unwrap();
    fs::write(copies.inside("dir/file"), "evil").unwrap();
    fs::write(copies.inside("dir/victim"), "evil").unwrap();
    std::os::unix::fs::symlink(outside.path(), copies.local("door")).unwrap();
    fs::create_dir(copies.inside("door")).unwrap();
    fs::write(copies.inside("door/victim"), "evil").unwrap();
    let error = copies.merge().unwrap_err().to_string();
    assert!(error.contains("dir/file") && error.contains("door/victim"), "{error}");
    assert_eq!(fs::read_to_string(outside.path().join("victim")).unwrap(), "good");
    assert_eq!(outside.path().read_dir().unwrap().count(), 1);
    assert_eq!(relative(Path::new("../victim")), None);
    assert_eq!(relative(Path::new("/a/./b/")), Some("a/b".into()));
}

#[test]
fn a_file_is_replaced_only_by_all_of_its_content() {
    let copies = Copies::new(&["file"]);
    let merge = |content: &str, size| {
        let attributes = Attributes::new(0o644, 0);
        merge_file(&mut content.as_bytes(), copies.local.path(), &copies.sent, size, attributes)
    };
    assert_eq!(merge("half", 8).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(copies.text("file"), "sent");
    assert_eq!(merge("complete", 8).unwrap().files, 1);
    assert_eq!(copies.text("file"), "complete");
}
