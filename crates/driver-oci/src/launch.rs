//! Starts a sandbox: from its layers and disk to a running agent.
//!
//! Blocking. Call it on a thread that ends afterwards: it leaves the host's mount namespace, and a network hook may
//! leave the network namespace. A failure leaves files in the sandbox's directories and possibly a partial container,
//! which `stop` and `destroy` remove.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

use driver::{DriverError, NetworkHook, SandboxSpec};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::bundle;
use crate::cgroup::Cgroups;
use crate::disk;
use crate::netns;
use crate::paths::Paths;
use crate::placement;
use crate::priority::raise_priority;
use crate::rootfs;
use crate::runtime::{self, AgentChannel};
use crate::settings::{Flavour, Settings};

/// Length of the token of gVisor's agent.
pub const TOKEN_BYTES: usize = 32;

pub fn launch(
    settings: &Settings,
    cgroups: &Cgroups,
    spec: &SandboxSpec,
    network: Option<&NetworkHook>,
) -> Result<(), DriverError> {
    let paths = Paths::of(settings, &spec.id);
    let uid_base = bundle::uid_base(settings, spec.slot)?;
    make_traversable(&paths.run)
        .map_err(|error| DriverError::failed("make the sandbox's directory", error))?;
    // After a power failure the disk of a sandbox that did not sync may be missing. A new disk loses no synced data.
    fs::create_dir_all(&paths.data)
        .map_err(|error| DriverError::failed("make the disk's directory", error))?;
    disk::ensure(settings, &paths, spec.disk_mb)?;
    let cpus = placement::cpus_of(spec);

    let agent_channel = match settings.flavour {
        Flavour::Native => listen(&paths),
        Flavour::Gvisor => prepare_token(&paths),
    }
    .map_err(|error| DriverError::failed("prepare the agent's link", error))?;
    let mut entry_files = Vec::new();
    if settings.flavour == Flavour::Gvisor {
        // The limits apply to the process of gVisor's kernel, which the daemon starts.
        cgroups
            .create(spec.id.as_str(), spec.limits, &cpus, settings.pids_max)
            .map_err(|error| DriverError::failed("make the sandbox's cgroups", error))?;
        entry_files = cgroups.entry_files(spec.id.as_str());
    }

    rootfs::leave_host_namespace()
        .map_err(|error| DriverError::failed("leave the host's mount namespace", error))?;
    let device = rootfs::assemble(spec, &paths, uid_base)?;
    // After the disk is attached: the host's /sys then has all directories to cover.
    bundle::write(settings, cgroups, spec, &paths, &cpus)?;
    runtime::run(settings, &spec.id, &paths, agent_channel, &entry_files)?;
    // No command runs yet. The device number is stored for the removal of the limits.
    fs::write(paths.disk_device(), device.to_string())
        .and_then(|()| cgroups.limit_disk(spec.id.as_str(), device, settings.disk_rates))
        .map_err(|error| DriverError::failed("limit the rates of the disk", error))?;
    if settings.flavour == Flavour::Native {
        prioritise_agent(cgroups, spec);
        if let Some(hook) = network {
            netns::connect(&paths, hook)
                .map_err(|error| DriverError::failed("connect the sandbox to the network", error))?;
        }
    }
    Ok(())
}

fn prioritise_agent(cgroups: &Cgroups, spec: &SandboxSpec) {
    // No command was started yet: the agent is the only process.
    let done =
        cgroups.processes(spec.id.as_str()).and_then(|pids| pids.into_iter().try_for_each(raise_priority));
    if let Err(error) = done {
        tracing::warn!(id = %spec.id, %error, "cannot raise the priority of an agent above that of its commands");
    }
}

/// Creates a directory that the container's root, an unprivileged user on the host, can traverse.
fn make_traversable(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o711))
}

fn listen(paths: &Paths) -> io::Result<AgentChannel> {
    let socket = paths.socket();
    remove_if_exists(&socket)?;
    let listener = UnixListener::bind(&socket)?;
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600))?;
    Ok(AgentChannel::Listener(listener.into()))
}

fn prepare_token(paths: &Paths) -> io::Result<AgentChannel> {
    make_traversable(&paths.link_dir())?;
    let mut token = [0; TOKEN_BYTES];
    rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())?;
    fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(paths.token())?
        .write_all(&token)?;
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    // The token fits into the pipe at once; the writer is closed before the agent reads.
    fs::File::from(writer).write_all(&token)?;
    Ok(AgentChannel::Token(reader))
}

pub fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
