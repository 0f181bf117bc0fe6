//! A sandbox of the service's own launcher looks the same inside as one of runc: status, capabilities, mounts with options,
//! verdicts on system calls, cgroup values, limits, devices and environment. Each difference is listed here with its reason;
//! docs/isolation.md explains them to users.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use e2e::{Rig, RigOptions, with_rig};

/// What differs: the beginning of a line that only one of them prints, and why.
struct Difference {
    line: &'static str,
    reason: &'static str,
}

const fn only(line: &'static str, reason: &'static str) -> Difference {
    Difference { line, reason }
}

const COVERS: &str =
    "masked paths are covered by empty read-only files and directories of one file system, without devices";
/// `cachestat`, of Linux 6.5.
const FIRST_NEW_CALL: u32 = 451;
const MAX_CALL: u32 = 1000;
const NEW_CALLS: &str =
    "calls that are newer than the host's libseccomp: runc refuses what its library does not know";

const PARTS: &str =
    "of a sysfs only the parts are mounted that a sandbox sees, instead of covers over the others";
const NODES: &str = "devices are nodes of /dev, which the host's root owns, so that the sandbox cannot remove them, instead of mounts";
const QUOTA: &str = "programs count processors by the quota, which is 95 % of their time";
const HIERARCHIES: &str = "only the hierarchies are shown in which programs look for limits and use; in systemd and blkio it has no cgroup of its own";

#[cfg(target_arch = "x86_64")]
const ONLY_LAUNCHER: &[Difference] = &[
    only("mount /empty /proc/", COVERS),
    only("mount /none /proc/", COVERS),
    only("mount /boot-id /proc/sys/kernel/random/boot_id", "runc refuses mounts below /proc/sys"),
    only("mount /replacement-0 /sys/fs/cgroup/cpu/cpu.cfs_quota_us ", QUOTA),
    only("cgroup /sys/fs/cgroup/cpu/cpu.cfs_quota_us 40000", QUOTA),
    only("mount /sys /sys ", PARTS),
    only("mount /devices/system /sys/devices/system ", PARTS),
    only("mount /devices/virtual/net /sys/devices/virtual/net ", PARTS),
    only("mount /kernel/mm/transparent_hugepage ", PARTS),
    only("mount / /dev ", NODES),
    only("file /dev d drwxrwxr-t 65534 0", NODES),
    only("call new", NEW_CALLS),
    only("file /dev/mqueue d drwxrwxrwt 0 0", "the directory belongs to the sandbox's group too"),
    only(
        "file /sys/fs/cgroup d drwxr-xr-x 65534",
        "it belongs to the host's root: it is a part of the covers",
    ),
];
#[cfg(target_arch = "x86_64")]
const ONLY_RUNC: &[Difference] = &[
    only("cgroup /sys/fs/cgroup/cpu/cpu.cfs_quota_us 38000", QUOTA),
    only("mount /null /proc/", COVERS),
    only("mount / /proc/", COVERS),
    only("mount / /sys/firmware", COVERS),
    only("mount / /sys ", PARTS),
    only("mount /empty /sys/", PARTS),
    only("mount /sys/", PARTS),
    only("mount /kernel/mm/transparent_hugepage ", PARTS),
    only("writable /proc/", "writes to a masked file fail instead of being ignored"),
    only("mount / /dev ", NODES),
    only("mount /full /dev/full ", NODES),
    only("mount /null /dev/null ", NODES),
    only("mount /random /dev/random ", NODES),
    only("mount /tty /dev/tty ", NODES),
    only("mount /urandom /dev/urandom ", NODES),
    only("mount /zero /dev/zero ", NODES),
    only("file /dev d drwxr-xr-x 0 0", NODES),
    only("call new", NEW_CALLS),
    only("file /dev/mqueue d drwxrwxrwt 0 65534", "see above"),
    only("file /sys/fs/cgroup d drwxr-xr-x 0", "see above"),
    only("mount / /sys/fs/cgroup r", "one more file system, of which the covers are a part"),
    only("mount / /sys/fs/cgroup/blkio ", HIERARCHIES),
    only("mount / /sys/fs/cgroup/devices ", HIERARCHIES),
    only("mount / /sys/fs/cgroup/freezer ", HIERARCHIES),
    only("mount / /sys/fs/cgroup/systemd ", HIERARCHIES),
    only("file /sys/fs/cgroup/blkio ", HIERARCHIES),
    only("file /sys/fs/cgroup/devices ", HIERARCHIES),
    only("file /sys/fs/cgroup/freezer ", HIERARCHIES),
    only("file /sys/fs/cgroup/systemd ", HIERARCHIES),
    only("cgroup /sys/fs/cgroup/blkio/", HIERARCHIES),
    only("cgroup /sys/fs/cgroup/devices/", HIERARCHIES),
    only("cgroup /sys/fs/cgroup/freezer/", HIERARCHIES),
    only("cgroup /sys/fs/cgroup/systemd/", HIERARCHIES),
];

/// Prints one fact per line. Ids of sandboxes, numbers of devices and of users are replaced.
const FACTS: &str = r#"
for of in self 1; do
  grep -E '^(Uid|Gid|Groups|NStgid|NSsid|Cap|NoNewPrivs|Seccomp|Umask|Cpus_allowed_list|Mems_allowed_list|Sig|Shd)' /proc/$of/status |
    grep -vE '^(NStgid|NSsid|SigQ)' | sed "s/^/status $of /"
  sed "s/^/limit $of /" /proc/$of/limits 2>/dev/null
  for file in oom_score_adj coredump_filter timerslack_ns cgroup setgroups uid_map gid_map loginuid sessionid personality; do
    echo "$file $of $(cat /proc/$of/$file 2>&1 | tr '\n' ' ' | sed 's/bash.*://')"
  done
done
ls /proc/self/ns | sed 's/^/namespace /'
cut -d' ' -f4-6,7- /proc/self/mountinfo | sed -E 's/gid=[0-9]+,mode=620/gid=TTY,mode=620/; s/(size|nr_inodes)=[0-9]+k?,//g; s/^/mount /'
find /dev /proc/sys /sys/fs/cgroup -maxdepth 1 -printf 'file %p %y %M %U %G %l\n' 2>&1
for file in $(find /sys/fs/cgroup -type f \( -name '*limit*' -o -name '*.max' -o -name 'cpu.*' -o -name 'cpuset.*' \
    -o -name '*high' -o -name '*low' -o -name '*min' -o -name '*weight*' -o -name 'cgroup.*' \) ! -name cgroup.procs ! -name '*.stat' | sort); do
  echo "cgroup $file $(cat $file 2>&1 | head -3 | tr '\n' ' ')"
done
env | grep -v '^SANDBOX' | sed 's/^/environment /'
ulimit -a | sed 's/^/soft /'
ulimit -Ha | sed 's/^/hard /'
echo "host name $(hostname)" "$(cat /proc/sys/kernel/domainname)"
for file in /proc/1/oom_adj /proc/1/oom_score_adj /proc/kcore /proc/keys /proc/fs /proc/acpi /proc/pressure /sys/firmware; do
  echo "masked $file $(cat $file 2>/dev/null | wc -c) $(ls -A $file 2>/dev/null | grep -vc "^$file\$")"
  (echo 1 >$file) 2>/dev/null && echo "writable $file"
done
cat /etc/hosts /etc/resolv.conf 2>&1 | sed 's/^/names /'
"#;

/// The error of each system call with arguments that are not valid, and of each kind of socket.
const VERDICTS: &str = r#"
use strict;
my %skip = map { $_ => 1 } (SKIPPED);
sub verdict {
    my ($name, @call) = @_;
    my $pid = fork;
    if (!$pid) { alarm 5; my $got = syscall($call[0], @call[1 .. $#call]); POSIX::_exit($got == -1 ? $! + 0 : 0) }
    waitpid $pid, 0;
    print "$name ", $? & 127 ? "signal " . ($? & 127) : $? >> 8, "\n";
}
use POSIX ();
for my $number (0 .. 480) { verdict("call $number", $number, (-1) x 6) unless $skip{$number} }
for my $number (0x40000000, 0x40000027, 0x7fffffff) { verdict("call $number", $number, (-1) x 6) }
for my $family (0 .. 47) { for my $kind (0 .. 6, 10) { for my $protocol (0, 1, 6, 17, 58, 132, 255, 256, 262) {
    verdict("socket $family $kind $protocol", SOCKET, $family, $kind, $protocol);
} } }
for my $family (0 .. 3, 10, 16, 40) { verdict("pair $family", PAIR, $family, 1, 0, 0) }
for my $flags (map { 1 << $_ } 7, 16 .. 31) { verdict("clone $flags", CLONE, $flags | 0x11, -1, -1, -1, -1) if $flags != 0x4000 }
for my $persona (0, 8, 0x40000, 0x400000, 0xffffffff) { verdict("personality $persona", PERSONALITY, $persona) }
"#;

fn verdicts() -> String {
    let skipped = [
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_pause,
        libc::SYS_rt_sigreturn,
        libc::SYS_fork,
        libc::SYS_vfork,
        libc::SYS_clone,
        libc::SYS_rt_sigsuspend,
    ];
    let skipped: Vec<String> = skipped.iter().map(i64::to_string).collect();
    VERDICTS
        .replace("SKIPPED", &skipped.join(","))
        .replace("SOCKET,", &format!("{},", libc::SYS_socket))
        .replace("PAIR,", &format!("{},", libc::SYS_socketpair))
        .replace("CLONE,", &format!("{},", libc::SYS_clone))
        .replace("PERSONALITY,", &format!("{},", libc::SYS_personality))
}

/// The line with single spaces and without the first id on the host, in id maps and mount options. Elsewhere the same digits mean
/// something else: one base is 2147483648, which is also a limit of memory.
fn without_base(line: &str, base: &str) -> String {
    let is_map = line.starts_with("uid_map") || line.starts_with("gid_map");
    let words = line.split_whitespace().map(|word| if is_map && word == base { "BASE" } else { word });
    let line = words.collect::<Vec<_>>().join(" ");
    line.replace(&format!("uid={base}"), "uid=BASE").replace(&format!("gid={base}"), "gid=BASE")
}

/// Marks the calls that libseccomp of the oldest supported distribution does not know.
fn mark_new_call(line: &str) -> String {
    let number = line.strip_prefix("call ").and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
    if number.is_some_and(|number| (FIRST_NEW_CALL..MAX_CALL).contains(&number)) {
        line.replacen("call ", "call new ", 1)
    } else {
        line.to_owned()
    }
}

async fn facts(runtime: Option<&str>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let options = RigOptions { runtime: runtime.map(Into::into), ..RigOptions::default() };
    with_rig(options, async |rig: &Rig| {
        let id = rig.create().await.unwrap();
        let text = rig.output(&id, FACTS).await.unwrap() + &rig.perl(&id, &verdicts()).await.unwrap();
        let host_name = rig.output(&id, "hostname").await.unwrap();
        let base = rig.host_pids(&id).unwrap()[0];
        let base = std::fs::read_to_string(format!("/proc/{base}/uid_map")).unwrap();
        let base = base.split_whitespace().nth(1).unwrap();
        let normal =
            text.replace(id.as_str(), "SANDBOX").replace(host_name.trim(), "HOST").replace(&rig.name, "RIG");
        found = normal.lines().map(|line| mark_new_call(&without_base(line, base))).collect();
    })
    .await;
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn the_launcher_builds_what_runc_builds() {
    let launcher = facts(None).await;
    let runc = facts(Some("/usr/sbin/runc")).await;
    assert!(launcher.len() > 800, "{} facts", launcher.len());
    let mut unexpected = Vec::new();
    for (name, lines, known) in [
        ("launcher", launcher.difference(&runc), ONLY_LAUNCHER),
        ("runc", runc.difference(&launcher), ONLY_RUNC),
    ] {
        let lines: Vec<&String> = lines.collect();
        for line in &lines {
            if !known.iter().any(|known| line.starts_with(known.line)) {
                unexpected.push(format!("only {name}: {line}"));
            }
        }
        for known in known {
            if !lines.iter().any(|line| line.starts_with(known.line)) {
                unexpected.push(format!("no longer only {name}: {} ({})", known.line, known.reason));
            }
        }
    }
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}
