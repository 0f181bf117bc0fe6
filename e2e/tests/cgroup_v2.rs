//! The life of sandboxes on a host that has cgroup v2 alone: a virtual machine without any acceleration, with a kernel of the
//! distribution, this host's programs, and the tests' own image. What is checked is in `src/bin/guest.rs`; what the machine
//! is made of, in `vm/make.sh`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/skip.rs"]
mod skip;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use skip::skipped;

/// What the machine's life may take at most, whatever happens in it.
const PATIENCE_SECONDS: &str = "180";
/// The image that `e2e::rootfs` makes, by its file in the store of images.
const IMAGE: &str = "ubuntu%3a24.04";
/// So many it has.
const CHECKS: usize = 10;
const NEEDED: [&str; 5] = ["qemu-system-x86_64", "busybox", "apt-get", "dpkg-deb", "mkfs.ext4"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// The machine's parts, in `run`.
fn make(run: &Path) {
    let (workspace, cache) = (workspace(), run.parent().unwrap());
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("vm/make.sh"))
        .args([cache, run, &workspace, &workspace.join("target/test-images/images")])
        .args([IMAGE, env!("CARGO_BIN_EXE_guest"), env!("CARGO_BIN_EXE_victim")])
        .args([workspace.join("target/bin/sandboxd"), workspace.join("target/bin/sandbox-agent")])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "no machine: {}", String::from_utf8_lossy(&output.stderr));
}

/// What the machine's checks said, and what its kernel did.
fn boot(run: &Path) -> (String, String) {
    let disk = |file: &str, more: &str| {
        format!("file={},format=raw,if=virtio,cache=unsafe{more}", run.join(file).display())
    };
    let console = run.join("console.log");
    let output = Command::new("timeout")
        .args(["--foreground", "--kill-after=5", PATIENCE_SECONDS, "qemu-system-x86_64"])
        .args(["-M", "q35", "-accel", "tcg,thread=multi", "-m", "2048", "-smp", "2"])
        .args(["-nodefaults", "-display", "none", "-no-reboot"])
        .args(["-serial", &format!("file:{}", console.display()), "-serial", "stdio"])
        .arg("-kernel")
        .arg(run.join("vmlinuz"))
        .arg("-initrd")
        .arg(run.join("initramfs.cpio"))
        .args(["-append", "console=ttyS0 panic=-1 mitigations=off loglevel=4"])
        .args(["-drive", &disk("root.img", "")])
        // What it writes there is forgotten: the file is shared with later machines.
        .args(["-drive", &disk("images.img", ",snapshot=on")])
        .env("TMPDIR", run)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    let kernel = std::fs::read_to_string(console).unwrap_or_default();
    (said, format!("{kernel}\n{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn sandboxes_live_and_die_on_cgroup_v2_alone() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |name: &&str| std::env::split_paths(&path).any(|dir| dir.join(name).exists());
    if let Some(missing) = NEEDED.iter().find(|name| !there(name)) {
        return skipped("sandboxes_live_and_die_on_cgroup_v2_alone", &format!("{missing} is not installed"));
    }
    e2e::rootfs().unwrap();
    let cache = workspace().join("target/vm");
    std::fs::create_dir_all(&cache).unwrap();
    let run = tempfile::Builder::new().prefix("run-").tempdir_in(&cache).unwrap();
    make(run.path());
    let (said, kernel) = boot(run.path());
    println!("{said}");
    let checks = said.lines().filter(|line| line.starts_with("ok ") || line.starts_with("skip ")).count();
    assert!(
        said.ends_with("end ok\n") && checks == CHECKS,
        "in the machine:\n{said}\nits console:\n{kernel}"
    );
    for (name, reason) in said.lines().filter_map(|line| line.strip_prefix("skip ")?.split_once(": ")) {
        skipped(&format!("cgroup_v2 {name}"), reason);
    }
}
