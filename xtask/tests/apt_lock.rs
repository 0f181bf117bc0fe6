//! `apt` of `dev.d/apt.sh` waits while another process holds a lock of apt, and gives up after `APT_WAIT` seconds. The
//! tests run the real apt-get on temporary directories.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/apt.rs"]
mod apt;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Holds a lock as apt does, for the given number of seconds.
const HOLD: &str = "\
import fcntl, sys, time
lock = open(sys.argv[1], 'w')
fcntl.lockf(lock, fcntl.LOCK_EX)
print('held', flush=True)
time.sleep(float(sys.argv[2]))";

/// Directories for apt without package sources.
fn apt_dirs() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    apt::make_dirs(dir.path(), "");
    dir
}

fn hold(lock: &Path, seconds: &str) -> Child {
    let mut child = Command::new("python3")
        .args(["-c", HOLD])
        .arg(lock)
        .arg(seconds)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 5];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    assert_eq!(&line, b"held\n");
    child
}

/// Runs `apt WORDS` of apt.sh in `dirs`.
fn apt(dirs: &Path, wait: &str, words: &str) -> Output {
    let apt = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dev.d/apt.sh").canonicalize().unwrap();
    let script =
        format!("set -euo pipefail; say() {{ echo \"dev: $*\" >&2; }}; . {}; apt {words}", apt.display());
    // starts: apt-get
    Command::new("bash")
        .args(["-c", &script])
        .current_dir(dirs)
        .env("APT_CONFIG", dirs.join("apt.conf"))
        .env("APT_WAIT", wait)
        .env("APT_RETRY", "1")
        .output()
        .unwrap()
}

fn waits(lock: &str, words: &str) {
    let dirs = apt_dirs();
    let mut holder = hold(&dirs.path().join(lock), "3");
    let begin = Instant::now();
    let output = apt(dirs.path(), "60", words);
    holder.wait().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    assert!(begin.elapsed() > Duration::from_secs(2), "{messages}");
    let expected = format!("dev: waiting for apt's lock: held by process {}", holder.id());
    assert_eq!(messages.matches(&expected).count(), 1, "{messages}");
}

#[test]
fn waits_for_the_lock_of_the_package_lists() {
    waits("lists/lock", "update");
}

#[test]
fn waits_for_the_lock_of_dpkg() {
    waits("dpkg/lock-frontend", "install -y");
}

#[test]
fn gives_up_after_the_longest_wait() {
    let dirs = apt_dirs();
    let mut holder = hold(&dirs.path().join("lists/lock"), "30");
    let output = apt(dirs.path(), "2", "update");
    holder.kill().unwrap();
    holder.wait().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{messages}");
    assert!(messages.contains("has held apt's lock for"), "{messages}");
}

#[test]
fn another_failure_is_reported_at_once() {
    let dirs = apt_dirs();
    let begin = Instant::now();
    let output = apt(dirs.path(), "60", "install -y no-such-package");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && messages.contains("Unable to locate package"), "{messages}");
    assert!(begin.elapsed() < Duration::from_secs(20), "{messages}");
}
