//! Sandboxes on a host with cgroup v2 only: a virtual machine without acceleration, with a kernel of the distribution, this host's
//! programs, and the image of the tests. The checks are in `src/bin/guest.rs`, the build of the machine in `vm/make.sh`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/skip.rs"]
mod skip;

use std::path::Path;
use std::process::{Command, Stdio};

use e2e::workspace;
use skip::skipped;

/// The machine is killed after this time.
const TIMEOUT_SECONDS: &str = "600";
/// The image that `e2e::rootfs` builds, as its file name in the image store.
const IMAGE: &str = "ubuntu%3a24.04";
/// The number of checks in `src/bin/guest.rs`.
const CHECKS: usize = 11;
const NEEDED: [&str; 5] = ["qemu-system-x86_64", "busybox", "apt-get", "dpkg-deb", "mkfs.ext4"];

/// Builds the machine's files in `run`.
fn build(run: &Path) {
    let (workspace, cache) = (workspace(), run.parent().unwrap());
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("vm/make.sh"))
        .args([cache, run, &workspace, &workspace.join("target/test-images/images")])
        .args([IMAGE, env!("CARGO_BIN_EXE_guest"), env!("CARGO_BIN_EXE_victim")])
        .args(
            ["sandboxd", "sandbox-agent", "sandbox-launcher"]
                .map(|name| workspace.join("target/bin").join(name)),
        )
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "could not build the machine: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Runs the machine; returns the output of the checks and of its kernel.
fn boot(run: &Path) -> (String, String) {
    let disk = |file: &str, options: &str| {
        format!("file={},format=raw,if=virtio,cache=unsafe{options}", run.join(file).display())
    };
    let console = run.join("console.log");
    let output = Command::new("timeout")
        .args(["--foreground", "--kill-after=5", TIMEOUT_SECONDS, "qemu-system-x86_64"])
        // A processor with XSAVE, which gVisor finds again after a reboot.
        .args(["-M", "q35", "-cpu", "max", "-accel", "tcg,thread=multi", "-m", "2048", "-smp", "2"])
        .args(["-nodefaults", "-display", "none", "-no-reboot"])
        .args(["-serial", &format!("file:{}", console.display()), "-serial", "stdio"])
        .arg("-kernel")
        .arg(run.join("vmlinuz"))
        .arg("-initrd")
        .arg(run.join("initramfs.cpio"))
        .args(["-append", "console=ttyS0 panic=-1 mitigations=off loglevel=4"])
        .args(["-drive", &disk("root.img", "")])
        // Its writes are discarded, because later machines share the file.
        .args(["-drive", &disk("images.img", ",snapshot=on")])
        .env("TMPDIR", run)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let checks = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    let kernel = std::fs::read_to_string(console).unwrap_or_default();
    (checks, format!("{kernel}\n{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn sandboxes_work_with_cgroup_v2_only() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_installed = |name: &&str| std::env::split_paths(&path).any(|dir| dir.join(name).exists());
    if let Some(missing) = NEEDED.iter().find(|name| !is_installed(name)) {
        return skipped("sandboxes_work_with_cgroup_v2_only", &format!("{missing} is not installed"));
    }
    e2e::rootfs().unwrap();
    let cache = workspace().join("target/vm");
    std::fs::create_dir_all(&cache).unwrap();
    let run = tempfile::Builder::new().prefix("run-").tempdir_in(&cache).unwrap();
    build(run.path());
    let (stdout, kernel) = boot(run.path());
    println!("{stdout}");
    let has_gvisor = stdout.contains("ok gvisor ");
    let checks = stdout.lines().filter(|line| line.starts_with("ok ") || line.starts_with("skip ")).count();
    assert!(stdout.ends_with("end ok\n") && checks == CHECKS, "checks:\n{stdout}\nconsole:\n{kernel}");
    for (name, reason) in stdout.lines().filter_map(|line| line.strip_prefix("skip ")?.split_once(": ")) {
        skipped(&format!("cgroup_v2 {name}"), reason);
    }
    if has_gvisor {
        // The first machine has cut its own power while a sandbox was hibernated.
        let (stdout, kernel) = boot(run.path());
        println!("{stdout}");
        let woken = stdout.starts_with("ok wake_after_a_power_failure ") && stdout.ends_with("end ok\n");
        assert!(woken, "after the power failure:\n{stdout}\nconsole:\n{kernel}");
    }
}
