//! The host: cgroup limits, kernel settings, device requests, and crashes.

use std::path::{Path, PathBuf};

use e2e::Rig;

use crate::{findings, in_sandbox};

/// The sandbox's cgroup directory, in a v1 hierarchy or in the v2 hierarchy.
pub fn cgroup(rig: &Rig, id: &api::SandboxId, controller: &str) -> PathBuf {
    let root = Path::new("/sys/fs/cgroup");
    let below = Path::new(&rig.name).join(id.as_str());
    if root.join("cgroup.controllers").exists() {
        root.join(below)
    } else {
        root.join(controller).join(below)
    }
}

fn limits(rig: &Rig, id: &api::SandboxId) -> Vec<String> {
    let files = [
        ("memory", "memory.limit_in_bytes", "memory.max"),
        ("cpu", "cpu.cfs_quota_us", "cpu.max"),
        ("pids", "pids.max", "pids.max"),
        ("cpuset", "cpuset.cpus", "cpuset.cpus"),
    ];
    let read = |(controller, old, new): (&str, &str, &str)| {
        let dir = cgroup(rig, id, controller);
        std::fs::read_to_string(dir.join(old)).or_else(|_| std::fs::read_to_string(dir.join(new))).unwrap()
    };
    files.into_iter().map(read).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_cannot_be_raised() {
    in_sandbox(async |rig, id| {
        let before = limits(rig, id);
        assert!(before[0].trim() == "2147483648" && before[1].starts_with("38000") && before[2].trim() == "512", "{before:?}");
        let shown = "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cat /sys/fs/cgroup/cpu.max";
        let shown = async || rig.output(id, shown).await.unwrap();
        let seen = shown().await;
        let script = r#"
            my $walk; $walk = sub {
                my ($dir) = @_;
                opendir(my $list, $dir) or return;
                if (mkdir "$dir/mine") { print "a directory was created in $dir\n"; rmdir "$dir/mine" }
                for my $path (map { "$dir/$_" } grep !/^\.\.?$/, readdir $list) {
                    next if -l $path;
                    if (-d _) { $walk->($path); next }
                    for my $mode (1, 2) { print "$path opens for writing\n" if sysopen(my $file, $path, $mode) }
                    print "$path changed mode\n" if chmod 0777, $path;
                }
            };
            $walk->('/sys/fs/cgroup');
        "#;
        assert_eq!(findings(rig, id, script).await, Vec::<String>::new());
        assert_eq!(limits(rig, id), before);
        assert_eq!(shown().await, seen);
        // The release agent would run as root on the host.
        let agent = Path::new("/sys/fs/cgroup/memory/release_agent");
        assert!(!agent.exists() || std::fs::read_to_string(agent).unwrap().trim().is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn device_access_is_limited() {
    in_sandbox(async |rig, id| {
        // On v2 a BPF program limits devices, which cannot be read back.
        let Ok(list) = std::fs::read_to_string(cgroup(rig, id, "devices").join("devices.list")) else {
            assert!(Path::new("/sys/fs/cgroup/cgroup.controllers").exists(), "no list on v1");
            return;
        };
        for line in list.lines() {
            let harmless = [
                "c 1:3 ",
                "c 1:5 ",
                "c 1:7 ",
                "c 1:8 ",
                "c 1:9 ",
                "c 5:0 ",
                "c 5:1 ",
                "c 5:2 ",
                "c 136:* ",
                "c 10:200 ",
            ];
            // In a user namespace the kernel refuses to create nodes, but not to open them.
            assert!(line.ends_with(" m") || harmless.iter().any(|known| line.starts_with(known)), "{line}");
        }
    })
    .await;
}

/// Settings that the host's root could change: each is written from the sandbox, and the host's value is compared.
#[tokio::test(flavor = "multi_thread")]
async fn host_settings_cannot_be_changed() {
    in_sandbox(async |rig, id| {
        let files = [
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/modprobe",
            "/proc/sys/kernel/hostname",
            "/proc/sys/kernel/domainname",
            "/proc/sys/kernel/pid_max",
            "/proc/sys/kernel/randomize_va_space",
            "/proc/sys/vm/overcommit_memory",
            "/proc/sys/vm/panic_on_oom",
            "/proc/sys/fs/file-max",
            "/proc/sys/net/ipv4/ip_forward",
            "/sys/kernel/uevent_helper",
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "/sys/power/state",
        ];
        let state = || files.map(|file| std::fs::read_to_string(file).ok());
        let before = state();
        let script: String = files
            .iter()
            .chain(&["/proc/sysrq-trigger"])
            .map(|file| format!("(echo c > {file}) 2>/dev/null && echo {file}; "))
            .collect();
        let result = rig.run(id, &script).await.unwrap();
        assert_eq!(result.stdout, "", "writes succeeded");
        assert_eq!(state(), before);
    })
    .await;
}

/// Requests to file systems, terminals and the random pool that require the host's root.
#[tokio::test(flavor = "multi_thread")]
async fn device_requests_are_refused() {
    in_sandbox(async |rig, id| {
        let script = r#"
            my %requests = ('/' => [FIFREEZE => 0xC0045877, FITHAW => 0xC0045878, FITRIM => 0xC0185879, SHUTDOWN => 0x8004587D, RESIZE => 0x40086610],
                '/workspace' => [FIFREEZE => 0xC0045877, FITRIM => 0xC0185879, SHUTDOWN => 0x8004587D, RESIZE => 0x40086610],
                '/dev/random' => [RNDADDTOENTCNT => 0x40045201, RNDADDENTROPY => 0x40085203, RNDCLEARPOOL => 0x5206],
                '/dev/ptmx' => [TIOCCONS => 0x541D, TIOCSTI => 0x5412, TIOCSLCKTRMIOS => 0x5457]);
            for my $path (sort keys %requests) {
                sysopen(my $file, $path, -d $path ? 0 : 2) or next;
                my @list = @{$requests{$path}};
                while (my ($name, $number) = splice @list, 0, 2) {
                    my $buffer = "\0" x 64;
                    print "$name on $path\n" if defined ioctl($file, $number, $buffer);
                }
            }
            # Immutable files could not be removed.
            open(my $file, '>', '/workspace/f'); my $flags = pack('l', 0x10);
            print "a file became immutable\n" if defined ioctl($file, 0x40086602, $flags);
        "#;
        assert_eq!(findings(rig, id, script).await, Vec::<String>::new());
    })
    .await;
}

/// A crash leaves no core file and starts no core handler on the host.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_leaves_nothing_on_the_host() {
    in_sandbox(async |rig, id| {
        // With the limit 0 the kernel would start a handler; 1 is rounded down to no block.
        let crash = r#"ulimit -c 0; ulimit -c unlimited; grep -o "core.*" /proc/self/limits | tr -s " "
            bash -c 'kill -SEGV $$'; echo $?; ls"#;
        let result = rig.run(id, crash).await.unwrap();
        assert_eq!(result.stdout, "core file size 1 1 bytes \n139\n", "{result:?}");
    })
    .await;
}
