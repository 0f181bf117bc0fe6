//! `cargo xtask sweep`, which is `./dev clean`, beside a sandbox of another data directory. It runs in namespaces of its own, with a
//! root of cgroups, `/run`, `/tmp` and loop devices that the test makes, so that it finds nothing else of this machine.

use std::process::Command;

/// `$1` is the program. Every mount and process ends with the namespaces; only the cgroup remains, which the test removes.
const SCRIPT: &str = r#"
mount -t tmpfs none /run && mount -t tmpfs none /tmp && mount -t tmpfs none /sys/block && mount -t tmpfs none /sys/fs/cgroup
c=/sys/fs/cgroup/one && mkdir $c
if [ "$2" = v2 ]; then mount -t cgroup2 none $c; else mount -t cgroup -o freezer none $c; fi
mkdir -p $c/sandboxd-0a1b2c3d/sb_other $c/sandboxd/sb_own /run/sandboxd-0a1b2c3d/sandboxes/sb_other /run/sandboxd/sandboxes/sb_own
mkdir -p /sys/block/loop900/loop && echo /srv/data/sandboxes/sb_other/disk.img >/sys/block/loop900/loop/backing_file
sleep 60 & other=$!; echo $other >$c/sandboxd-0a1b2c3d/sb_other/cgroup.procs
sleep 60 & own=$!; echo $own >$c/sandboxd/sb_own/cgroup.procs
status=0; "$1" sweep || status=$?
echo "status $status"
kill -0 $other && echo "other lives"
kill -0 $own 2>/dev/null || echo "own has ended"
ls -d $c/sandboxd* $c/sandboxd*/sb_* /run/sandboxd* 2>/dev/null
kill $other; wait $other 2>/dev/null
rmdir $c/sandboxd-0a1b2c3d/sb_other $c/sandboxd-0a1b2c3d
"#;

#[test]
fn a_sandbox_of_another_data_directory_is_named_and_left_alone() {
    let (version, hierarchy) = match std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        true => ("v2", "/sys/fs/cgroup"),
        false => ("v1", "/sys/fs/cgroup/freezer"),
    };
    let root = format!("{hierarchy}/sweep-test-{}", std::process::id());
    std::fs::create_dir(&root).unwrap();
    let inside = format!(
        "echo $$ >{root}/cgroup.procs && exec unshare --cgroup --mount --pid --fork --kill-child --mount-proc bash -c '{SCRIPT}' sweep \"$1\" {version}"
    );
    let arguments = ["-c", &inside, "outside", env!("CARGO_BIN_EXE_xtask")];
    // starts: bash, unshare, mount, ls, kill
    let output = Command::new("bash").args(arguments).output().unwrap();
    let removed = (0..3000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::remove_dir(&root).is_ok()
    });
    let printed = String::from_utf8_lossy(&output.stdout);
    let text = format!("{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(removed, "{root} is left: {text}");
    assert!(
        printed.contains("clean: left alone a sandbox of the data directory /srv/data: sb_other (processes "),
        "{text}"
    );
    let end = printed.split_once("status 0\n").map(|(_, end)| end);
    let cgroups = "/sys/fs/cgroup/one/sandboxd-0a1b2c3d\n/sys/fs/cgroup/one/sandboxd-0a1b2c3d/sb_other\n/run/sandboxd-0a1b2c3d\n";
    let left: std::collections::BTreeSet<&str> = end.unwrap_or_default().lines().collect();
    let expected: std::collections::BTreeSet<&str> =
        cgroups.lines().chain(["other lives", "own has ended"]).collect();
    assert_eq!(left, expected, "{text}");
}
