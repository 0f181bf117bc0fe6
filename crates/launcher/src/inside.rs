//! The steps of the container's first process, from its fork to the execution of the agent. No other process of the container
//! exists meanwhile, and none of another container has its user ids.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use launcher::{ContainerPlan, MountSource, Report, receive, send};
use rootfs::Attributes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, OpenTreeFlags, UnmountFlags, open_tree, unmount};
use rustix::process::{Signal, chdir, getcwd, pivot_root, set_parent_process_death_signal, setsid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, unshare_unsafe,
};
use serde::{Deserialize, Serialize};

use crate::failure::{StepFailure, failed};
use crate::host_files::HostFiles;
use crate::mounts::{KERNEL_VIEW, attach_over, attributes, create, name_of};
use crate::place::{self, MountPointKind};
use crate::sys;

/// What the launcher tells the first process. Not a unit struct: an empty message looks like the end of the socket.
#[derive(Serialize, Deserialize)]
pub enum Order {
    /// The root file system is complete.
    RootReady,
}

/// The descriptor of the agent's listening socket, and the one on which a failure is reported.
const LISTENER: i32 = 3;
const CONTROL: i32 = 4;
/// Higher than all descriptors of the agent.
const SPARE: i32 = 10;

/// The host's value would show sandboxes of different accounts that they share a host.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// All steps. A failure is reported to the launcher.
pub fn run(first: WaitingProcess) -> ! {
    let control = first.control.try_clone();
    let failure = match first.wait().and_then(become_agent) {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    if let Ok(control) = control {
        // After the descriptors were sealed the control has a fixed number.
        let report = Report::Failed { step: failure.step, error: failure.error };
        if send(&control, &report, &[]).is_err() {
            // SAFETY: the number is not -1, and the borrow lasts for one send of this process, which has one thread and closes
            // nothing meanwhile. Before `seal` something else can be open there, or nothing: then the send fails.
            let _ = send(unsafe { BorrowedFd::borrow_raw(CONTROL) }, &report, &[]);
        }
    }
    // SAFETY: ends this process without running anything that belongs to the launcher.
    unsafe { libc::_exit(1) }
}

fn become_agent(released: Released) -> Result<std::convert::Infallible, StepFailure> {
    released.unshare()?.mount()?.hide()?.pivot()?.seal()?.execute()
}

/// The first process, without ids of its own yet.
pub struct WaitingProcess {
    pub control: OwnedFd,
    pub plan: ContainerPlan,
    pub listener: OwnedFd,
    pub host_files: HostFiles,
}

impl WaitingProcess {
    /// Enters the cgroups and waits until the root file system is complete; then becomes the container's root.
    fn wait(self) -> Result<Released, StepFailure> {
        self.die_with_launcher()?;
        for tasks in &self.host_files.tasks {
            // 0 stands for the writing process. The kernel asks for the rights of the launcher, which has opened the file.
            rustix::io::write(tasks, b"0").map_err(failed("enter the cgroups"))?;
        }
        let go = receive::<Order>(&self.control).map_err(failed("wait for the launcher"))?;
        go.ok_or_else(|| failed("wait for the launcher")(Errno::PIPE))?;
        sys::become_root().map_err(failed("become the container's root"))?;
        // The change of ids has cleared the signal.
        self.die_with_launcher()?;
        Ok(Released(self))
    }

    /// Half-built containers end with the launcher.
    fn die_with_launcher(&self) -> Result<(), StepFailure> {
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed("watch the launcher"))?;
        // If the launcher died before the line above, the signal never comes, but the other end of the control is closed.
        let mut control = [PollFd::new(&self.control, PollFlags::empty())];
        poll(&mut control, Some(&Timespec::default())).map_err(failed("watch the launcher"))?;
        if control[0].revents().contains(PollFlags::HUP) {
            return Err(failed("watch the launcher")(Errno::SRCH));
        }
        Ok(())
    }
}

/// The root of the container's user namespace.
struct Released(WaitingProcess);

impl Released {
    fn unshare(self) -> Result<Unshared, StepFailure> {
        // SAFETY: there is one thread, and descriptors stay shared with nobody.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWCGROUP | UnshareFlags::NEWIPC) }
            .map_err(failed("leave the launcher's namespaces"))?;
        setsid().map_err(failed("begin a session"))?;
        sys::new_session_keyring().map_err(failed("leave the host's keys"))?;
        sys::raise_loopback().map_err(failed("raise the loopback interface"))?;
        for (file, value) in &self.0.plan.network_settings {
            // The file is that of the network namespace of whoever opens it.
            std::fs::write(file, value).map_err(failed(format!("write {}", file.display())))?;
        }
        rustix::system::sethostname(self.0.plan.host_name.as_bytes()).map_err(failed("set the host name"))?;
        Ok(Unshared(self.0))
    }
}

/// The process has namespaces of its own; all mounts of the launcher are locked in it.
struct Unshared(WaitingProcess);

impl Unshared {
    fn mount(self) -> Result<Mounted, StepFailure> {
        let WaitingProcess { plan, host_files, .. } = &self.0;
        // A locked mount cannot become the root; a copy of it can.
        let root = copy(CWD, "rootfs").map_err(failed("copy the root"))?;
        rootfs::attach(&root, Path::new("rootfs")).map_err(failed("attach the root"))?;
        for (mount, source) in plan.mounts.iter().zip(&host_files.sources) {
            let step = || format!("mount {}", mount.target.display());
            if mount.source == MountSource::Sys {
                mount_sys(&root, &mount.target).map_err(failed(step()))?;
                continue;
            }
            let created;
            let tree = match (source, &mount.source) {
                (Some(source), _) => source,
                (None, MountSource::New { kind, name, parameters }) => {
                    let cloexec = FsMountFlags::FSMOUNT_CLOEXEC;
                    created = create(name_of(*kind), name, parameters, mount.flags, cloexec)
                        .map_err(failed(step()))?;
                    &created
                }
                (None, _) => return Err(failed(step())(Errno::INVAL)),
            };
            let kind = place::kind_of(tree).map_err(failed(step()))?;
            let place = place::ensure(&root, &mount.target, kind).map_err(failed(step()))?;
            attach_over(tree, &place).map_err(failed(step()))?;
        }
        for (path, target) in &plan.links {
            let made = place::link(&root, path, target);
            made.map_err(failed(format!("create {}", path.display())))?;
        }
        for (target, tree) in &host_files.cgroups {
            let step = || format!("mount {}", target.display());
            let place = place::ensure(&root, target, MountPointKind::Directory).map_err(failed(step()))?;
            attach_over(tree, &place).map_err(failed(step()))?;
        }
        Ok(Mounted { waiting: self.0, root })
    }
}

/// Mounts the sandbox's `/sys`: a small file system, and over it parts of a sysfs.
fn mount_sys(root: &OwnedFd, target: &Path) -> std::io::Result<()> {
    // The kernel copies parts of attached mounts only. This one is left with the old root.
    let whole = create("sysfs", "sysfs", &[], KERNEL_VIEW, FsMountFlags::FSMOUNT_CLOEXEC)?;
    rootfs::attach(&whole, Path::new(rootfs::WHOLE_SYS))?;
    let base = copy(CWD, rootfs::SYS)?;
    rootfs::set_attributes(&base, attributes(KERNEL_VIEW))?;
    attach_over(&base, &place::ensure(root, target, MountPointKind::Directory)?)?;
    for part in rootfs::SYS_PARTS {
        match copy(CWD, Path::new(rootfs::WHOLE_SYS).join(part)) {
            Ok(tree) => {
                attach_over(&tree, &place::ensure(root, &target.join(part), MountPointKind::Directory)?)?;
            }
            // This kernel does not have it.
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn copy(at: BorrowedFd<'_>, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    open_tree(at, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
}

/// Mounts a file or directory of the small file system over a place.
fn cover_by(cover: &str, place: &OwnedFd, attributes: Attributes) -> std::io::Result<()> {
    let cover = copy(CWD, cover)?;
    rootfs::set_attributes(&cover, attributes)?;
    attach_over(&cover, place)
}

/// All mounts are in place.
struct Mounted {
    waiting: WaitingProcess,
    root: OwnedFd,
}

impl Mounted {
    /// Masks paths, replaces files, and makes other paths read-only.
    fn hide(self) -> Result<Hidden, StepFailure> {
        for path in &self.waiting.plan.masked {
            let step = || format!("mask {}", path.display());
            let Some(place) = place::find(&self.root, path).map_err(failed(step()))? else { continue };
            let cover = match place::kind_of(&place).map_err(failed(step()))? {
                MountPointKind::Directory => rootfs::EMPTY_DIR,
                MountPointKind::File => rootfs::EMPTY_FILE,
            };
            cover_by(cover, &place, Attributes::READ_ONLY).map_err(failed(step()))?;
        }
        self.replace(Path::new(BOOT_ID), rootfs::BOOT_ID, Attributes::READ_ONLY)?;
        for (number, (path, _)) in self.waiting.plan.replaced.iter().enumerate() {
            // The host's root writes to it; for all ids inside the file belongs to somebody else.
            self.replace(path, &rootfs::replacement(number), Attributes::NONE)?;
        }
        for path in &self.waiting.plan.read_only {
            let step = || format!("make {} read-only", path.display());
            let Some(place) = place::find(&self.root, path).map_err(failed(step()))? else { continue };
            if rustix::fs::fstatvfs(&place)
                .map_err(failed(step()))?
                .f_flag
                .contains(StatVfsMountFlags::RDONLY)
            {
                continue;
            }
            let flags = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_EMPTY_PATH
                | OpenTreeFlags::AT_RECURSIVE;
            let tree = open_tree(&place, "", flags).map_err(failed(step()))?;
            rootfs::set_attributes(&tree, Attributes::READ_ONLY).map_err(failed(step()))?;
            attach_over(&tree, &place).map_err(failed(step()))?;
        }
        Ok(Hidden { waiting: self.waiting, root: self.root })
    }

    /// Mounts a file of the small file system over one inside, if it exists.
    fn replace(&self, path: &Path, cover: &str, attributes: Attributes) -> Result<(), StepFailure> {
        let step = || format!("replace {}", path.display());
        match place::find(&self.root, path).map_err(failed(step()))? {
            Some(place) => cover_by(cover, &place, attributes).map_err(failed(step())),
            None => Ok(()),
        }
    }
}

/// What must not be seen or written is covered.
struct Hidden {
    waiting: WaitingProcess,
    root: OwnedFd,
}

impl Hidden {
    /// Makes the new root the root, and leaves no way back to the old one.
    fn pivot(self) -> Result<Pivoted, StepFailure> {
        rustix::process::fchdir(&self.root).map_err(failed("enter the root"))?;
        pivot_root(".", ".").map_err(failed("change the root"))?;
        unmount(".", UnmountFlags::DETACH).map_err(failed("leave the old root"))?;
        chdir("/").map_err(failed("enter the new root"))?;
        // The kernel prefixes a directory outside of the root.
        let here = getcwd(Vec::new()).map_err(failed("find the working directory"))?;
        if here.as_bytes() != b"/" {
            return Err(failed("leave the old root, which is still the working directory")(Errno::XDEV));
        }
        Ok(Pivoted(self.waiting))
    }
}

/// The process sees only the container's files. It has open descriptors of the host still.
struct Pivoted(WaitingProcess);

impl Pivoted {
    /// Closes every descriptor but those of the agent.
    fn seal(self) -> Result<Sealed, StepFailure> {
        let WaitingProcess { control, plan, listener, host_files } = self.0;
        let step = || failed::<std::io::Error>("close the descriptors of the host");
        send(&control, &Report::Done, &[]).map_err(step())?;
        // First out of the way of the numbers that they will get.
        let [control, listener, null] = [
            sys::lift(control.as_fd(), SPARE),
            sys::lift(listener.as_fd(), SPARE),
            sys::lift(host_files.null.as_fd(), SPARE),
        ];
        let (control, listener, null) =
            (control.map_err(step())?, listener.map_err(step())?, null.map_err(step())?);
        sys::inherit_as(null.as_fd(), 0).map_err(step())?;
        sys::inherit_as(listener.as_fd(), LISTENER).map_err(step())?;
        sys::inherit_as(control.as_fd(), CONTROL).map_err(step())?;
        // The objects of these descriptors must not close the numbers again.
        std::mem::forget((control, listener, null, host_files));
        sys::close_range(CONTROL + 1, i32::MAX).map_err(step())?;
        // SAFETY: the control was moved to this number, and nothing else uses it.
        let control = unsafe { BorrowedFd::borrow_raw(CONTROL) };
        rustix::io::fcntl_setfd(control, rustix::io::FdFlags::CLOEXEC)
            .map_err(failed("close the descriptors of the host"))?;
        Ok(Sealed(plan))
    }
}

/// The process has the descriptors of the agent only.
struct Sealed(ContainerPlan);

impl Sealed {
    /// Gives up all rights that the agent does not need, and becomes the agent.
    fn execute(self) -> Result<std::convert::Infallible, StepFailure> {
        let Self(plan) = self;
        let command: Result<Vec<CString>, _> =
            plan.command.iter().map(|word| CString::new(word.as_bytes())).collect();
        let command = command.map_err(|_| failed("execute the agent")(Errno::INVAL))?;
        let (Some(program), mut arguments) =
            (command.first(), command.iter().map(|word| word.as_ptr()).collect::<Vec<_>>())
        else {
            return Err(failed("execute the agent")(Errno::INVAL));
        };
        arguments.push(std::ptr::null());
        let environment = [std::ptr::null()];
        drop_capabilities(CapabilitySet::from_bits_retain(plan.capabilities))
            .map_err(failed("drop capabilities"))?;
        // From here on it lives without the launcher.
        set_parent_process_death_signal(None).map_err(failed("leave the launcher"))?;
        sys::set_filter(&plan.filter).map_err(failed("filter system calls"))?;
        // SAFETY: the strings and both lists, which end in null, live until the call returns.
        unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        Err(failed("execute the agent")(std::io::Error::last_os_error()))
    }
}

fn drop_capabilities(kept: CapabilitySet) -> Result<(), Errno> {
    clear_ambient_capability_set()?;
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The kernel knows no more capabilities.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
    }
    set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
    )
}
