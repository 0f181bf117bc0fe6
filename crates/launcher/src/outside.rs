//! The steps of the launcher, outside of the container: it prepares what only the host's root may touch.

use std::os::fd::{AsFd, OwnedFd};

use launcher::{ContainerPlan, Layer, Report, receive, send};
use rootfs::{UserNamespace, leave_host_namespace, reset_oom_score};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::failure::{StepFailure, failed};
use crate::host_files::HostFiles;
use crate::inside::{self, WaitingProcess};
use crate::sys::{self, Side, fork_into};

/// The namespaces of the first process. It creates the others itself: what they contain then belongs to its root.
const NAMESPACES: libc::c_int =
    libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNET | libc::CLONE_NEWUTS;

/// The daemon's socket, which is the standard input.
pub fn socket() -> Result<OwnedFd, StepFailure> {
    let socket = rustix::io::dup(rustix::stdio::stdin()).map_err(failed("open the standard input"))?;
    let kind = sockopt::socket_type(&socket).map_err(failed("the standard input is not its socket"))?;
    if kind != SocketType::SEQPACKET {
        return Err(failed("the standard input is not its socket")(rustix::io::Errno::PROTOTYPE));
    }
    Ok(socket)
}

/// All steps. Returns the container's root, as a mount of its own.
pub fn launch(socket: &OwnedFd) -> Result<OwnedFd, StepFailure> {
    Connected::receive(socket)?.leave_mounts()?.fork()?.map_ids()?.assemble()?.release()
}

/// The launcher has its plan.
struct Connected<'a> {
    socket: &'a OwnedFd,
    plan: ContainerPlan,
    disk: OwnedFd,
    listener: OwnedFd,
    snapshots: Vec<OwnedFd>,
    cgroup: Option<OwnedFd>,
}

impl<'a> Connected<'a> {
    fn receive(socket: &'a OwnedFd) -> Result<Self, StepFailure> {
        // A launcher that outlived its daemon could create a sandbox that the next daemon has removed already.
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed("watch the daemon"))?;
        let no_plan = || failed("receive the plan")(rustix::io::Errno::PROTO);
        let (plan, files) =
            receive::<ContainerPlan>(socket).map_err(failed("receive the plan"))?.ok_or_else(no_plan)?;
        if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(plan.daemon) {
            return Err(failed("find the daemon")(rustix::io::Errno::SRCH));
        }
        let mut files = files.into_iter();
        let (Some(disk), Some(listener)) = (files.next(), files.next()) else { return Err(no_plan()) };
        let count = plan.layers.iter().filter(|layer| **layer == Layer::Snapshot).count();
        let snapshots: Vec<OwnedFd> = files.by_ref().take(count).collect();
        if snapshots.len() < count {
            return Err(no_plan());
        }
        Ok(Self { socket, plan, disk, listener, snapshots, cgroup: files.next() })
    }

    /// Leaves the host's mounts, and opens all files that the container gets from the host.
    fn leave_mounts(self) -> Result<PrivateMounts<'a>, StepFailure> {
        leave_host_namespace().map_err(failed("leave the host's mount namespace"))?;
        rustix::process::umask(Mode::from_raw_mode(0o022));
        rootfs::prepare(&self.plan.place, self.plan.layers.len())?;
        for (number, (path, text)) in self.plan.replaced.iter().enumerate() {
            let step = failed(format!("replace {}", path.display()));
            std::fs::write(rootfs::replacement(number), text).map_err(step)?;
        }
        let host_files = HostFiles::of(&self.plan)?;
        Ok(PrivateMounts { connected: self, host_files })
    }
}

/// The launcher has a mount namespace of its own.
struct PrivateMounts<'a> {
    connected: Connected<'a>,
    host_files: HostFiles,
}

impl<'a> PrivateMounts<'a> {
    fn fork(self) -> Result<Forked<'a>, StepFailure> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(failed("make a socket"))?;
        let Connected { socket, plan, disk, listener, snapshots, cgroup } = self.connected;
        let cgroup = cgroup.as_ref().map(AsFd::as_fd);
        // Inherited, and the limits of the namespace for all of its users together.
        for (resource, value) in &plan.limits {
            sys::set_limit(*resource, *value).map_err(failed("limit the first process"))?;
        }
        reset_oom_score().map_err(failed("reset the score of the out-of-memory killer"))?;
        match fork_into(NAMESPACES, cgroup, plan.uid_base).map_err(failed("create the namespaces"))? {
            Side::Child => {
                drop((ours, disk, snapshots));
                inside::run(WaitingProcess { control: theirs, plan, listener, host_files: self.host_files })
            }
            Side::Parent(pid) => Ok(Forked { socket, plan, disk, snapshots, pid, control: ours }),
        }
    }
}

/// The first process exists and waits. It dies with the launcher.
struct Forked<'a> {
    socket: &'a OwnedFd,
    plan: ContainerPlan,
    disk: OwnedFd,
    snapshots: Vec<OwnedFd>,
    pid: i32,
    control: OwnedFd,
}

impl<'a> Forked<'a> {
    fn map_ids(self) -> Result<Mapped<'a>, StepFailure> {
        UserNamespace::map(self.pid, self.plan.uid_base).map_err(failed("map the user ids"))?;
        rootfs::hide_host_counters(self.pid).map_err(failed("hide the host's counters"))?;
        let users = UserNamespace::of(self.pid).map_err(failed("open the user namespace"))?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let network = rustix::fs::open(format!("/proc/{}/ns/net", self.pid), flags, Mode::empty())
            .map_err(failed("open the network namespace"))?;
        // The daemon connects the network while the rest is built.
        send(self.socket, &Report::Forked { pid: self.pid }, &[network.as_fd()])
            .map_err(failed("report the first process"))?;
        Ok(Mapped { forked: self, users })
    }
}

/// The user ids of the first process are mapped.
struct Mapped<'a> {
    forked: Forked<'a>,
    users: UserNamespace,
}

impl Mapped<'_> {
    fn assemble(self) -> Result<Assembled, StepFailure> {
        let Forked { plan, disk, snapshots, .. } = &self.forked;
        let mut snapshots = snapshots.iter();
        let layers = plan.layers.iter().filter_map(|layer| match layer {
            Layer::Directory(path) => Some(rootfs::Layer::Directory(path)),
            Layer::Snapshot => snapshots.next().map(rootfs::Layer::Snapshot),
        });
        let layers: Vec<_> = layers.collect();
        let root = rootfs::assemble(disk, &layers, &self.users, plan.uid_base)?;
        Ok(Assembled { control: self.forked.control, root })
    }
}

/// The root file system is mounted in the launcher's namespace.
struct Assembled {
    control: OwnedFd,
    root: OwnedFd,
}

impl Assembled {
    /// Lets the first process go on, and waits until it has executed the agent or failed.
    fn release(self) -> Result<OwnedFd, StepFailure> {
        let Self { control, root } = self;
        send(&control, &inside::Order::RootReady, &[]).map_err(failed("release the first process"))?;
        let mut is_pivoted = false;
        loop {
            match receive::<Report>(&control).map_err(failed("hear from the first process"))? {
                Some((Report::Done, _)) => is_pivoted = true,
                Some((Report::Failed { step, error }, _)) => return Err(StepFailure { step, error }),
                // The descriptor closes when the process executes the agent.
                None if is_pivoted => return Ok(root),
                _ => return Err(failed("run the first process, which ended")(rustix::io::Errno::SRCH)),
            }
        }
    }
}
