//! Describes the inside of a sandbox in the terms of the OCI runtime specification: mounts, capabilities, limits. Each backend
//! builds the container of this description, so all of them build the same.
//!
//! The allowed system calls are in `description/seccomp.json`; those that depend on arguments in a way that takes many rules are in
//! [`call_rules`].

mod call_rules;
mod kernel_memory;
mod mounts;
mod process_limits;
mod resolv_conf;
mod sockets;

use std::collections::HashMap;
use std::path::Path;

use api::Isolation;
use driver::{AtStep, DriverError, DriverStep};
use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Capabilities, Capability, Linux, LinuxBuilder, LinuxCapabilitiesBuilder, LinuxCpuBuilder, LinuxIdMapping,
    LinuxIdMappingBuilder, LinuxMemoryBuilder, LinuxNamespace, LinuxNamespaceBuilder, LinuxNamespaceType,
    LinuxPidsBuilder, LinuxResources, LinuxResourcesBuilder, LinuxSeccomp, Mount, PosixRlimit,
    PosixRlimitBuilder, PosixRlimitType, Process, ProcessBuilder, RootBuilder, Spec, SpecBuilder,
    UserBuilder,
};
use rootfs::IDS;
use rustix::process::{Resource, getrlimit};

use crate::agent::control_link;
use crate::backend::Start;
use crate::cgroup::{CPU_PERIOD_US, cpu_quota_us, shares};
use crate::description::call_rules::Rule;
use crate::paths::mount_place;
use crate::settings::Settings;

pub use mounts::{LXCFS_FILES, PSEUDO_TERMINALS};
pub use resolv_conf::write as write_resolv_conf;

/// Path of the agent in the sandbox: on the sandbox's own `/dev`, which exists with any image.
pub const AGENT_INSIDE: &str = "/dev/sandbox-agent";
const OPEN_FILES: u64 = 65_536;
/// No core file is that small, and with this limit alone the kernel starts no handler of core dumps on the host.
const CORE_BYTES: u64 = 1;
/// Queued signals and timers, of all users of a sandbox together.
const PENDING_SIGNALS: u64 = 16_384;
/// Bytes in POSIX message queues, likewise.
const QUEUED_MESSAGE_BYTES: u64 = 819_200;
/// Bytes that are locked in memory, which count in the memory of the sandbox, too.
const LOCKED_BYTES: u64 = 64 << 20;

/// Settings of the network stack of a container. The memory of a connection that no program has accepted is charged to nobody, and
/// neither is that of a closed one that the stack remembers: these settings bound what one takes.
const NETWORK_SETTINGS: [(&str, &str); 3] = [
    ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
    ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
    ("net.ipv4.tcp_max_tw_buckets", "16384"),
];
/// Memory for options and filters of one socket. Since Linux 6.9 a namespace has a limit of its own; before, the host's is as small.
const OPTION_MEMORY: (&str, &str) = ("net.core.optmem_max", "20480");
const OPTION_MEMORY_SINCE: (u32, u32) = (6, 9);

/// Additional capabilities of the agent, to mark commands and read the marks. It drops them in each command.
const AGENT_CAPABILITIES: [Capability; 2] = [Capability::SysAdmin, Capability::SysPtrace];
/// The capabilities of commands in their own user namespace.
const COMMAND_CAPABILITIES: [Capability; 14] = [
    Capability::AuditWrite,
    Capability::Chown,
    Capability::DacOverride,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::Kill,
    Capability::Mknod,
    Capability::NetBindService,
    Capability::NetRaw,
    Capability::Setfcap,
    Capability::Setgid,
    Capability::Setpcap,
    Capability::Setuid,
    Capability::SysChroot,
];
/// Masked files. The runtime skips paths that the kernel does not have.
const MASKED: [&str; 21] = [
    // Through these a command could make the out-of-memory killer choose the agent first.
    "/proc/1/oom_adj",
    "/proc/1/oom_score_adj",
    "/proc/1/task/1/oom_adj",
    "/proc/1/task/1/oom_score_adj",
    "/proc/acpi",
    "/proc/cmdline",
    // Statistics of every mounted disk, by name: /proc/fs/ext4/loop3, /proc/fs/jbd2/loop3-8.
    "/proc/fs",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/mdstat",
    "/proc/modules",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/slabinfo",
    "/proc/timer_list",
    "/sys/firmware",
];
/// Files that show the host's disks, unless lxcfs provides the sandbox's own values.
const MASKED_WITHOUT_LXCFS: [&str; 2] = ["/proc/diskstats", "/proc/swaps"];
/// Read-only paths. Under cgroup v1 the parent directory of the hierarchies is a separate file system, which stays
/// writable despite its mount option.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/sys/fs/cgroup"];

/// How a description has `/sys`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SysView {
    /// A sysfs. What a container must not see of it is covered.
    Covered,
    /// Not at all: the backend makes it.
    LeftOut,
}

/// Describes the inside of a sandbox. The filter of system calls is left out: it is the same for all sandboxes, and long. See
/// [`seccomp`].
pub fn describe(start: &Start<'_>, sys: SysView) -> Result<Spec, DriverError> {
    compose(start, sys).at(DriverStep::Describe)
}

fn compose(start: &Start<'_>, sys: SysView) -> Result<Spec, OciSpecError> {
    let mounts = mounts::all(start, sys)?;
    SpecBuilder::default()
        .version("1.0.2")
        .root(
            RootBuilder::default()
                .path(mount_place(start.settings).join("rootfs"))
                .readonly(false)
                .build()?,
        )
        .hostname(start.spec.id.host_name())
        .process(process(start.isolation)?)
        .linux(linux(start, &mounts)?)
        .mounts(mounts)
        .build()
}

/// The first host id of a sandbox.
pub fn uid_base(settings: &Settings, slot: u32) -> Result<u32, DriverError> {
    slot.checked_mul(IDS)
        .and_then(|offset| offset.checked_add(settings.uid_base))
        .filter(|base| base.checked_add(IDS).is_some())
        .ok_or_else(|| DriverError::failed(DriverStep::MakeIdMap, format!("slot {slot} is out of range")))
}

fn process(isolation: Isolation) -> Result<Process, OciSpecError> {
    let args = match isolation {
        Isolation::Container => vec![AGENT_INSIDE.to_owned(), "--listen-fd".to_owned(), "3".to_owned()],
        Isolation::Gvisor => {
            vec![AGENT_INSIDE.to_owned(), "--connect".to_owned(), control_link::HOST_SOCKET.to_string()]
        }
    };
    let all: Capabilities = AGENT_CAPABILITIES.into_iter().chain(COMMAND_CAPABILITIES).collect();
    let capabilities = LinuxCapabilitiesBuilder::default()
        .bounding(all.clone())
        .permitted(all.clone())
        .effective(all)
        .inheritable(Capabilities::default())
        .ambient(Capabilities::default())
        .build()?;
    ProcessBuilder::default()
        .terminal(false)
        .user(UserBuilder::default().uid(0u32).gid(0u32).build()?)
        .args(args)
        .env(Vec::<String>::new())
        .cwd("/")
        .capabilities(capabilities)
        .rlimits(rlimits()?)
        // The agent sets it for each command that may not use set-user-ID programs.
        .no_new_privileges(false)
        .build()
}

/// At most the host's hard limits: the daemon may lack the capability to raise them.
fn rlimits() -> Result<Vec<PosixRlimit>, OciSpecError> {
    let at_most = |resource, limit: u64| getrlimit(resource).maximum.unwrap_or(limit).min(limit);
    [
        (PosixRlimitType::RlimitNofile, at_most(Resource::Nofile, OPEN_FILES)),
        (PosixRlimitType::RlimitCore, CORE_BYTES),
        (PosixRlimitType::RlimitSigpending, at_most(Resource::Sigpending, PENDING_SIGNALS)),
        (PosixRlimitType::RlimitMsgqueue, at_most(Resource::Msgqueue, QUEUED_MESSAGE_BYTES)),
        (PosixRlimitType::RlimitMemlock, at_most(Resource::Memlock, LOCKED_BYTES)),
    ]
    .into_iter()
    .map(|(kind, limit)| PosixRlimitBuilder::default().typ(kind).soft(limit).hard(limit).build())
    .collect()
}

fn linux(start: &Start<'_>, mounts: &[Mount]) -> Result<Linux, OciSpecError> {
    let mut linux = LinuxBuilder::default();
    // gVisor has a network stack of its own, in the memory of the sandbox.
    if start.isolation == Isolation::Container {
        linux = linux.sysctl(network_settings(&rustix::system::uname().release().to_string_lossy()));
    }
    linux
        .namespaces(namespaces()?)
        .uid_mappings(id_mapping(start.uid_base)?)
        .gid_mappings(id_mapping(start.uid_base)?)
        .cgroups_path(start.cgroups.path_for_runtime(start.spec.id.as_str()))
        .resources(resources(start)?)
        .masked_paths(masked(mounts))
        .readonly_paths(READ_ONLY.map(str::to_owned).to_vec())
        .rootfs_propagation("private")
        .build()
}

/// The settings that a release of the kernel has in each network namespace.
fn network_settings(release: &str) -> HashMap<String, String> {
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let option_memory = (version >= OPTION_MEMORY_SINCE).then_some(OPTION_MEMORY);
    let all = NETWORK_SETTINGS.into_iter().chain(option_memory);
    all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The allowed system calls.
pub fn seccomp() -> Result<LinuxSeccomp, OciSpecError> {
    let mut seccomp: LinuxSeccomp = serde_json::from_str(include_str!("description/seccomp.json"))?;
    let mut syscalls = seccomp.syscalls().clone().unwrap_or_default();
    let by_arguments = [sockets::table(), kernel_memory::table(), process_limits::table()].concat();
    syscalls.extend(by_arguments.iter().map(Rule::to_oci).collect::<Result<Vec<_>, _>>()?);
    seccomp.set_syscalls(Some(syscalls));
    Ok(seccomp)
}

fn masked(mounts: &[Mount]) -> Vec<String> {
    let is_mounted = |path: &str| mounts.iter().any(|mount| mount.destination() == Path::new(path));
    let without_lxcfs = MASKED_WITHOUT_LXCFS.into_iter().filter(|path| !is_mounted(path));
    MASKED.into_iter().chain(without_lxcfs).map(str::to_owned).collect()
}

fn namespaces() -> Result<Vec<LinuxNamespace>, OciSpecError> {
    [
        LinuxNamespaceType::Pid,
        LinuxNamespaceType::Network,
        LinuxNamespaceType::Ipc,
        LinuxNamespaceType::Uts,
        LinuxNamespaceType::Mount,
        LinuxNamespaceType::User,
        LinuxNamespaceType::Cgroup,
    ]
    .into_iter()
    .map(|kind| LinuxNamespaceBuilder::default().typ(kind).build())
    .collect()
}

fn id_mapping(base: u32) -> Result<Vec<LinuxIdMapping>, OciSpecError> {
    Ok(vec![LinuxIdMappingBuilder::default().container_id(0u32).host_id(base).size(IDS).build()?])
}

fn resources(start: &Start<'_>) -> Result<LinuxResources, OciSpecError> {
    let Start { settings, spec, cpus, .. } = *start;
    let bytes = i64::from(spec.limits.memory_mb) << 20;
    let mut memory = LinuxMemoryBuilder::default().limit(bytes);
    if can_limit_swap() {
        memory = memory.swap(bytes);
    }
    let cpu = LinuxCpuBuilder::default()
        .shares(shares(spec.limits.cpu))
        .quota(cpu_quota_us(spec.limits.cpu).cast_signed())
        .period(CPU_PERIOD_US)
        .cpus(cpus)
        .build()?;
    LinuxResourcesBuilder::default()
        .memory(memory.build()?)
        .cpu(cpu)
        .pids(LinuxPidsBuilder::default().limit(i64::from(settings.pids_max)).build()?)
        .build()
}

/// Kernels with v1 may lack swap accounting, and then refuse the limit.
fn can_limit_swap() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
        || Path::new("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_a_namespace_does_not_have_are_left_out() {
        let has = |release| network_settings(release).contains_key(OPTION_MEMORY.0);
        assert!(has("6.18.44-fc") && has("6.9.0") && has("7.0") && !has("6.8.12-amd64") && !has("6.1.0"));
        assert_eq!(network_settings("6.1.0").len(), NETWORK_SETTINGS.len());
    }
}
