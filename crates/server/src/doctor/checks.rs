//! Checks that only look.

use std::fs;
use std::path::Path;
use std::process::Command;

use api::Isolation;
use driver_oci::OLDEST_RELEASE;
use rustix::process::{Resource, getrlimit};

use super::{Finding, runc};
use crate::app::isolation::{Builder, InstalledGvisor};
use crate::app::{agent, find_program, lxcfs, total_memory_mb};
use crate::config::Config;
use crate::error::chain_text;

const KERNEL_NEEDED: (u32, u32) = (6, 1);
/// Enough for a few hundred busy sandboxes.
const RECOMMENDED_PIDS: u64 = 100_000;
const RECOMMENDED_FILES: u64 = 8_192;
const RECOMMENDED_DISK_MB: u64 = 10_240;

pub fn all(config: &Config) -> Vec<Finding> {
    let mut findings = vec![
        root(),
        kernel(),
        cgroups(),
        namespaces(),
        loop_devices(),
        builder(config),
        gvisor(config),
        agent_program(config),
        tool("mkfs.ext4", "disks of sandboxes", "apt-get install e2fsprogs", Finding::bad),
        tool(
            "mmdebstrap",
            "stand-ins for images that cannot be pulled",
            "apt-get install mmdebstrap",
            Finding::fair,
        ),
        tool("npm", "Node in the stand-in for node:22", "apt-get install npm", Finding::fair),
        memory(),
        swap(),
        disk(config),
        processes(),
        open_files(),
        lxcfs(config),
    ];
    if let Ok(Builder::Runtime(path)) = Builder::of(config) {
        findings.extend(runc::finding(&path, &version(&path)));
    }
    findings
}

fn root() -> Finding {
    if rustix::process::geteuid().is_root() {
        Finding::good("user", "root")
    } else {
        Finding::bad("user", "not root", "run as root: id maps of user namespaces require it")
    }
}

fn kernel() -> Finding {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= KERNEL_NEEDED {
        Finding::good("kernel", release)
    } else {
        let (major, minor) = KERNEL_NEEDED;
        Finding::bad(
            "kernel",
            release,
            format!("use Linux {major}.{minor} or later, for id-mapped overlay mounts"),
        )
    }
}

fn cgroups() -> Finding {
    let has = |path: &str| Path::new("/sys/fs/cgroup").join(path).exists();
    if has("cgroup.controllers") {
        let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
        let missing: Vec<&str> = ["cpu", "cpuset", "memory", "pids"]
            .into_iter()
            .filter(|wanted| !controllers.split_whitespace().any(|controller| controller == *wanted))
            .collect();
        return if missing.is_empty() {
            Finding::good("cgroups", "v2")
        } else {
            Finding::bad(
                "cgroups",
                format!("v2 without {}", missing.join(", ")),
                "boot with these controllers enabled",
            )
        };
    }
    let missing: Vec<&str> =
        ["cpu", "cpuset", "freezer", "memory", "pids"].into_iter().filter(|name| !has(name)).collect();
    if missing.is_empty() {
        Finding::good("cgroups", if has("unified") { "hybrid (v1 controllers)" } else { "v1" })
    } else {
        let remedy = "mount cgroup2 on /sys/fs/cgroup, or boot with systemd.unified_cgroup_hierarchy=1";
        Finding::bad("cgroups", format!("v1 without {}", missing.join(", ")), remedy)
    }
}

fn namespaces() -> Finding {
    match number("/proc/sys/user/max_user_namespaces") {
        Some(0) => Finding::bad("user namespaces", "off", "sysctl -w user.max_user_namespaces=100000"),
        Some(count) => Finding::good("user namespaces", format!("up to {count}")),
        None => Finding::bad("user namespaces", "not in this kernel", "use a kernel with CONFIG_USER_NS"),
    }
}

fn loop_devices() -> Finding {
    if Path::new("/dev/loop-control").exists() {
        Finding::good("loop devices", "/dev/loop-control")
    } else {
        Finding::bad(
            "loop devices",
            "no /dev/loop-control",
            "modprobe loop; in a container, give it access to this device",
        )
    }
}

fn builder(config: &Config) -> Finding {
    match Builder::of(config) {
        Ok(builder) if builder.is_substitute(config) => Finding::fair(
            "containers",
            format!("{builder:?}, because there is no launcher"),
            "install sandbox-launcher beside sandbox-agent: creating sandboxes takes longer without it",
        ),
        Ok(Builder::Launcher(path)) => Finding::good("containers", path.display().to_string()),
        Ok(Builder::Runtime(path)) => {
            Finding::good("containers", format!("{} ({})", path.display(), version(&path)))
        }
        Err(error) => Finding::bad("containers", "nothing builds them", error.to_string()),
    }
}

/// gVisor is optional, unless the configuration names it.
fn gvisor(config: &Config) -> Finding {
    const WHAT: &str = "gVisor";
    let policy = config.isolation.policy(Vec::new());
    let lacking =
        if policy.named().any(|named| named == Isolation::Gvisor) { Finding::bad } else { Finding::fair };
    let remedy = format!(
        "optional, for isolation by a kernel in user space: install runsc of {} or later, by 'apt-get install runsc' on Debian 13, \
         by './dev setup' in the source tree, or as the page about installation on gvisor.dev says",
        OLDEST_RELEASE / 10_000
    );
    match InstalledGvisor::of(config) {
        InstalledGvisor::Usable(gvisor) => {
            Finding::good(WHAT, format!("{} (release {})", gvisor.program().display(), gvisor.release()))
        }
        InstalledGvisor::Off => Finding::good(WHAT, "off by isolation.gvisor.program"),
        InstalledGvisor::Missing => lacking(WHAT, "not installed".to_owned(), remedy),
        InstalledGvisor::Unusable(error) => lacking(WHAT, error.to_string(), remedy),
    }
}

fn version(program: &Path) -> String {
    // starts: runc
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("version unknown").to_owned()
}

fn agent_program(config: &Config) -> Finding {
    match agent(config) {
        Ok(path) => Finding::good("agent", path.display().to_string()),
        Err(error) => Finding::bad("agent", "none", chain_text(&*error)),
    }
}

fn tool(
    name: &'static str,
    what_for: &str,
    remedy: &str,
    lacking: fn(&'static str, String, String) -> Finding,
) -> Finding {
    match find_program(name) {
        Some(path) => Finding::good(name, path.display().to_string()),
        None => lacking(name, format!("not installed; needed for {what_for}"), remedy.to_owned()),
    }
}

fn memory() -> Finding {
    match total_memory_mb() {
        Ok(total) => Finding::good("memory", format!("{total} MB")),
        Err(error) => Finding::bad("memory", error.to_string(), "mount /proc"),
    }
}

/// Paused containers can be moved there; sandboxes under gVisor are stored without it.
fn swap() -> Finding {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kb = text.lines().find_map(|line| line.strip_prefix("SwapTotal:")?.strip_suffix("kB"));
    match kb.and_then(|kb| kb.trim().parse::<u64>().ok()).unwrap_or(0) / 1024 {
        0 => Finding::good("swap", "none: paused containers stay in memory"),
        mb => Finding::good("swap", format!("{mb} MB: paused containers are moved there")),
    }
}

fn disk(config: &Config) -> Finding {
    // The directory may not exist before the first start; its nearest ancestor is on the same disk.
    let Some(dir) = config.data_dir.ancestors().find(|dir| dir.exists()) else {
        return Finding::bad("disk", "no such directory", "set data_dir");
    };
    let Ok(disk) = rustix::fs::statvfs(dir) else {
        return Finding::bad(
            "disk",
            format!("cannot read {}", dir.display()),
            "set data_dir to a readable directory",
        );
    };
    let free_mb = disk.f_bavail.saturating_mul(disk.f_frsize) >> 20;
    let found = format!("{free_mb} MB free for {}", config.data_dir.display());
    if free_mb >= RECOMMENDED_DISK_MB {
        Finding::good("disk", found)
    } else {
        Finding::fair("disk", found, format!("free {RECOMMENDED_DISK_MB} MB or more for images and disks"))
    }
}

fn processes() -> Finding {
    let limit = number("/proc/sys/kernel/pid_max").unwrap_or(0);
    if limit >= RECOMMENDED_PIDS {
        Finding::good("processes", format!("up to {limit}"))
    } else {
        Finding::fair(
            "processes",
            format!("up to {limit}"),
            "sysctl -w kernel.pid_max=4194304, for hundreds of busy sandboxes",
        )
    }
}

fn open_files() -> Finding {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let found = format!("up to {limit}");
    if limit >= RECOMMENDED_FILES {
        Finding::good("open files", found)
    } else {
        Finding::fair(
            "open files",
            found,
            format!("ulimit -n {RECOMMENDED_FILES}, or LimitNOFILE in the service's unit"),
        )
    }
}

fn lxcfs(config: &Config) -> Finding {
    const WHAT: &str = "lxcfs";
    match lxcfs::Source::of(config, &config.run_dir) {
        Ok(lxcfs::Source::Host(dir)) => {
            Finding::good(WHAT, format!("runs at {}: sandboxes see their own memory and CPUs", dir.display()))
        }
        Ok(lxcfs::Source::Own(_)) => {
            Finding::good(WHAT, "installed; sandboxd starts it: sandboxes see their own memory and CPUs")
        }
        Ok(lxcfs::Source::None { reason }) => Finding::fair(
            WHAT,
            format!("not used, sandboxes see the host's memory and CPUs: {reason}"),
            "apt-get install lxcfs, and set runtime.lxcfs to \"auto\"",
        ),
        Err(error) => Finding::bad(WHAT, chain_text(&*error), "set runtime.lxcfs to \"auto\""),
    }
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
