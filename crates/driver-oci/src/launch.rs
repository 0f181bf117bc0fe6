//! Starts a sandbox: from its layers and disk to a running agent.
//!
//! Blocking. Call it on a thread that ends afterwards: it leaves the host's mount namespace, and a plug the network's. A failure leaves
//! files in the sandbox's directories and possibly a partial container, which `stop` and `destroy` remove.

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
use crate::priority::put_first;
use crate::rootfs;
use crate::runtime::{self, Lifeline};
use crate::settings::{Flavour, Settings};

/// Length of the token of gVisor's agent.
pub const TOKEN_BYTES: usize = 32;

pub fn launch(
    settings: &Settings,
    cgroups: &Cgroups,
    spec: &SandboxSpec,
    plug: Option<&NetworkHook>,
) -> Result<(), DriverError> {
    let paths = Paths::of(settings, &spec.id);
    let uid_base = bundle::uid_base(settings, spec.slot)?;
    make_traversable(&paths.run)
        .map_err(|error| DriverError::failed("make the sandbox's directory", error))?;
    // After a power failure the disk of a sandbox that never synced may be missing: no synced data is lost.
    fs::create_dir_all(&paths.data)
        .map_err(|error| DriverError::failed("make the disk's directory", error))?;
    disk::ensure(settings, &paths, spec.disk_mb)?;
    let cpus = placement::cpus_of(spec);

    let lifeline = match settings.flavour {
        Flavour::Native => listen(&paths),
        Flavour::Gvisor => hand_over_token(&paths),
    }
    .map_err(|error| DriverError::failed("prepare the agent's way out", error))?;
    let mut entry_files = Vec::new();
    if settings.flavour == Flavour::Gvisor {
        // The limits apply to the process of gVisor's kernel, which the daemon starts.
        cgroups
            .make(spec.id.as_str(), spec.limits, &cpus, settings.pids_max)
            .map_err(|error| DriverError::failed("make the sandbox's cgroups", error))?;
        entry_files = cgroups.entry_files(spec.id.as_str());
    }

    rootfs::leave_host_namespace()
        .map_err(|error| DriverError::failed("leave the host's mount namespace", error))?;
    let device = rootfs::assemble(spec, &paths, uid_base)?;
    // Now the sandbox's disk is attached, so the host's /sys has every directory that is to be covered.
    bundle::write(settings, cgroups, spec, &paths, &cpus)?;
    runtime::run(settings, &spec.id, &paths, lifeline, &entry_files)?;
    // Only the agent runs inside so far. The number is stored for the removal of the limits.
    fs::write(paths.disk_device(), device.to_string())
        .and_then(|()| cgroups.limit_disk(spec.id.as_str(), device, settings.disk_rates))
        .map_err(|error| DriverError::failed("limit the rates of the disk", error))?;
    if settings.flavour == Flavour::Native {
        put_agent_first(cgroups, spec);
        if let Some(plug) = plug {
            netns::plug(&paths, plug)
                .map_err(|error| DriverError::failed("connect the sandbox to the network", error))?;
        }
    }
    Ok(())
}

fn put_agent_first(cgroups: &Cgroups, spec: &SandboxSpec) {
    // No command was started yet: the agent is the only process.
    let done = cgroups.processes(spec.id.as_str()).and_then(|pids| pids.into_iter().try_for_each(put_first));
    if let Err(error) = done {
        tracing::warn!(id = %spec.id, %error, "could not put an agent before its commands");
    }
}

/// The container's root has no rights on the host and still has to pass through.
fn make_traversable(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o711))
}

fn listen(paths: &Paths) -> io::Result<Lifeline> {
    let socket = paths.socket();
    remove_if_there(&socket)?;
    let listener = UnixListener::bind(&socket)?;
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600))?;
    Ok(Lifeline::Listener(listener.into()))
}

fn hand_over_token(paths: &Paths) -> io::Result<Lifeline> {
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
    Ok(Lifeline::Token(reader))
}

pub fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
