//! Checks that only look.

use std::fs;
use std::path::Path;
use std::process::Command;

use api::Isolation;
use base::chain_text;
use driver_host::{HostSize, TableState, kernel_tables};
use rules::{Watermarks, disk_reserve_mb};
use rustix::process::{Resource, getrlimit};

use super::{Finding, runc};
use crate::app::isolation::{Builder, Cause, InstalledGvisor};
use crate::app::{agent, find_program, host_size, lxcfs, oom_score, server_scope, total_memory_mb};
use crate::config::Config;
use crate::start_check::{
    ExposedFile, ExposedSecret, certificate_warnings, exposed_files, exposed_own_secrets, unknown_accounts,
};

const KERNEL_NEEDED: (u32, u32) = (6, 1);
/// Descriptors for each sandbox, an estimate; those of all port connections to sandboxes; and those of everything that is not counted by
/// its number.
const FILES_OF_A_SANDBOX: u64 = 4;
const PORT_CONNECTIONS: u64 = 4_096;
const OTHER_FILES: u64 = 1_024;
/// The proxy may use three quarters of the limit (`egress::proxy::bounds`); the rest is a quarter of it.
const FILES_BESIDE_PROXY: u64 = 4;
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
        shared_tables(config),
        open_files(config),
        lxcfs(config),
    ];
    findings.push(own_places(config));
    findings.extend(private_files(config));
    findings.extend(accounts(config));
    findings.extend(certificate(config));
    findings.push(oom_score());
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
    let installed = InstalledGvisor::of(config);
    if let InstalledGvisor::Usable(gvisor) = &installed {
        return Finding::good(WHAT, format!("{} (release {})", gvisor.program().display(), gvisor.release()));
    }
    match installed.lack() {
        Some(lack) if lack.cause == Cause::Host => lacking(
            WHAT,
            lack.reason,
            format!("optional, for isolation by a kernel in user space: {}", lack.remedy),
        ),
        lack => Finding::good(WHAT, lack.map(|lack| lack.reason).unwrap_or_default()),
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
    let megabytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize) >> 20;
    let reserve_mb = disk_reserve_mb(megabytes(disk.f_blocks), config.capacity.reserve_disk_mb);
    free_disk(megabytes(disk.f_bavail), reserve_mb, &config.data_dir)
}

/// Whether so much free space is enough beside the reserve, below which creates are refused.
fn free_disk(free_mb: u64, reserve_mb: u64, dir: &Path) -> Finding {
    const WHAT: &str = "disk";
    let found = format!("{free_mb} MB free for {}", dir.display());
    let enough_mb = Watermarks::of_reserve(reserve_mb << 20).high >> 20;
    let remedy = format!("free {} MB, or lower capacity.reserve_disk_mb", enough_mb.saturating_sub(free_mb));
    if free_mb < reserve_mb {
        let found = format!("{found}, less than the reserve of {reserve_mb} MB: creates are refused");
        return Finding::bad(WHAT, found, remedy);
    }
    if free_mb < enough_mb {
        let found = format!(
            "{found}, little more than the reserve of {reserve_mb} MB; below that creates are refused until {enough_mb} MB are free"
        );
        return Finding::fair(WHAT, found, remedy);
    }
    if free_mb < RECOMMENDED_DISK_MB {
        let remedy = format!("free {RECOMMENDED_DISK_MB} MB or more for images and disks");
        return Finding::fair(WHAT, found, remedy);
    }
    Finding::good(WHAT, found)
}

/// Files with secrets that others can use.
fn private_files(config: &Config) -> Vec<Finding> {
    let finding = |file: ExposedFile<'_>| {
        let path = file.path.display();
        let found = format!("others can use {path} of {} (mode {:o})", file.key, file.mode);
        Finding::fair("private files", found, format!("chmod 600 {path}"))
    };
    let own = |ExposedSecret { path, mode, remedy }| {
        let file = path.display();
        let found = format!("others can use {file} (mode {mode:o})");
        Finding::fair("private files", found, format!("chmod 600 {file}; others may have read it: {remedy}"))
    };
    let named = exposed_files(config).into_iter().map(finding);
    named.chain(exposed_own_secrets(&config.data_dir).into_iter().map(own)).collect()
}

/// Settings of single accounts that no account has.
fn accounts(config: &Config) -> Vec<Finding> {
    let remedy = "correct the name; 'sandboxd key list' shows all accounts";
    unknown_accounts(config).into_iter().map(|found| Finding::fair("accounts", found, remedy)).collect()
}

/// The operator's own certificate.
fn certificate(config: &Config) -> Vec<Finding> {
    let remedy = "renew it; the daemon loads the new one within two seconds";
    certificate_warnings(config)
        .into_iter()
        .map(|found| Finding::fair("certificate", found, remedy))
        .collect()
}

/// Whether a daemon that is started as this command was can protect itself from the kernel's out-of-memory killer.
fn oom_score() -> Finding {
    const WHAT: &str = "out of memory";
    match oom_score::lack() {
        None => Finding::good(WHAT, "the daemon can be protected from the kernel's killer"),
        Some(lack) => Finding::fair(WHAT, "the daemon is not protected from the kernel's killer", lack),
    }
}

/// What belongs to this service on the host, for those who remove it.
fn own_places(config: &Config) -> Finding {
    let Config { data_dir, run_dir, runtime, .. } = config;
    let (data_dir, run_dir, cgroup) = (data_dir.display(), run_dir.display(), &runtime.cgroup_parent);
    Finding::good("own places", format!("data in {data_dir}, run directory {run_dir}, cgroup {cgroup}"))
}

/// Tables of the kernel that all sandboxes share. The daemon sets their sizes when it starts.
fn shared_tables(config: &Config) -> Finding {
    const WHAT: &str = "kernel tables";
    let host = match host_size(config, &server_scope(config)) {
        Ok(host) => host,
        Err(error) => return Finding::bad(WHAT, error.to_string(), "mount /proc"),
    };
    let mut settings = Vec::new();
    for table in kernel_tables(host) {
        match table.state() {
            Ok(TableState::Enough | TableState::Missing) => {}
            Ok(TableState::Other { sizes }) => settings.push(table.setting(&sizes)),
            Err(error) => return Finding::fair(WHAT, error.to_string(), "mount /proc"),
        }
    }
    if settings.is_empty() {
        return Finding::good(WHAT, "large enough for all sandboxes");
    }
    let can_raise = rustix::fs::access("/proc/sys/kernel/pid_max", rustix::fs::Access::WRITE_OK).is_ok();
    let remedy = format!("sysctl -w {}", settings.join(" "));
    if can_raise {
        Finding::good(WHAT, format!("sandboxd sets {} of them when it starts", settings.len()))
    } else {
        Finding::fair(WHAT, "some are not as wanted, and the host's settings are read-only", remedy)
    }
}

/// Descriptors of the daemon, whose start raises its limit to the hard one.
fn open_files(config: &Config) -> Finding {
    let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let host = host_size(config, &server_scope(config));
    let sandboxes = host.map_or(config.runtime.uid_slots.into(), HostSize::sandboxes);
    files_for(limit, u64::from(config.http.max_connections), sandboxes)
}

/// Whether a limit is enough for all connections to the service and to ports at once, beside as many sandboxes.
fn files_for(limit: u64, connections: u64, sandboxes: u64) -> Finding {
    const WHAT: &str = "open files";
    let own = connections + PORT_CONNECTIONS + sandboxes * FILES_OF_A_SANDBOX + OTHER_FILES;
    let needed = own * FILES_BESIDE_PROXY;
    let found = format!("up to {limit}");
    if limit >= needed {
        return Finding::good(WHAT, found);
    }
    Finding::fair(
        WHAT,
        format!("{found}; {connections} connections and {sandboxes} sandboxes at once need {needed}"),
        format!("set LimitNOFILE={needed} in the service's unit, or lower http.max_connections"),
    )
}

fn lxcfs(config: &Config) -> Finding {
    const WHAT: &str = "lxcfs";
    match lxcfs::LxcfsSource::of(config, &config.run_dir) {
        Ok(lxcfs::LxcfsSource::Host(dir)) => {
            Finding::good(WHAT, format!("runs at {}: sandboxes see their own memory and CPUs", dir.display()))
        }
        Ok(lxcfs::LxcfsSource::Own(_)) => {
            Finding::good(WHAT, "installed; sandboxd starts it: sandboxes see their own memory and CPUs")
        }
        Ok(lxcfs::LxcfsSource::None { reason }) => Finding::fair(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn free_disk_is_compared_with_the_reserve() {
        let of = |free_mb, reserve_mb| free_disk(free_mb, reserve_mb, Path::new("/data"));
        let refused = of(59_089, 63_000);
        assert_eq!(refused.verdict, Verdict::Bad);
        assert!(refused.found.contains("less than the reserve of 63000 MB"), "{}", refused.found);
        assert_eq!(refused.remedy, "free 35411 MB, or lower capacity.reserve_disk_mb");
        let little_more = of(63_001, 63_000);
        assert_eq!(little_more.verdict, Verdict::Fair);
        assert!(little_more.found.ends_with("refused until 94500 MB are free"), "{}", little_more.found);
        assert_eq!(of(94_500, 63_000), Finding::good("disk", "94500 MB free for /data"));
        assert_eq!(of(5_000, 2_048).verdict, Verdict::Fair);
        assert_eq!(of(1_000, 2_048).verdict, Verdict::Bad);
    }

    #[test]
    fn a_private_key_that_others_read_is_found() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("logins.json");
        fs::write(&file, "{}").unwrap();
        let mut config = Config::default();
        config.images.credentials.clone_from(&file);
        for (mode, count) in [(0o600, 0), (0o640, 1), (0o604, 1)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(private_files(&config).len(), count, "{mode:o}");
        }
    }

    #[test]
    fn a_secret_of_the_service_that_others_read_is_found() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("local.key");
        fs::write(&file, "a key").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let config = Config { data_dir: dir.path().to_owned(), ..Config::default() };
        let [finding] = &private_files(&config)[..] else { panic!("not one finding") };
        assert!(finding.found.contains("local.key (mode 644)"), "{}", finding.found);
        assert!(
            finding.remedy.contains("chmod 600") && finding.remedy.contains("key revoke"),
            "{}",
            finding.remedy
        );
    }

    #[test]
    fn the_places_of_the_service_are_named() {
        let mut config = Config { run_dir: "/run/sandboxd-0a1b2c3d".into(), ..Config::default() };
        config.runtime.cgroup_parent = "sandboxd-0a1b2c3d".to_owned();
        let found = own_places(&config).found;
        assert!(found.ends_with("run directory /run/sandboxd-0a1b2c3d, cgroup sandboxd-0a1b2c3d"), "{found}");
    }

    #[test]
    fn a_limit_of_files_that_is_too_small_is_named_with_what_needs_it() {
        // The hard limit of the unit, and the default settings.
        let enough = files_for(1_048_576, 10_000, 3_840);
        assert_eq!((enough.verdict, enough.found.as_str()), (Verdict::Good, "up to 1048576"));
        let small = files_for(65_536, 10_000, 3_840);
        assert_eq!(small.verdict, Verdict::Fair);
        assert_eq!(small.found, "up to 65536; 10000 connections and 3840 sandboxes at once need 121920");
        assert!(small.remedy.contains("LimitNOFILE=121920") && small.remedy.contains("http.max_connections"));
        assert_eq!(files_for(121_920, 10_000, 3_840).verdict, Verdict::Good);
    }
}
