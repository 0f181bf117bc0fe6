//! The child between `clone` and `execve`: it shares the agent's memory, so it only makes system calls.
//! No allocation, no lock, no drop. Called by `spawn` alone.
//!
//! A failure is written into [`ChildPlan::failure`], and the child ends.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr;

use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::process::Pid;

use super::caps::CapPlan;

/// Enough for the calls below and the wrappers of the C library; untouched pages take no memory.
const STACK: usize = 64 * 1024;
/// Added to a command's score for the kernel's out-of-memory killer, so that it does not choose the agent.
const OOM_SCORE: &[u8] = b"200";

/// How the processes of a command are recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marking {
    /// By a cgroup namespace.
    Namespace,
    /// By a variable in the environment, on kernels without such namespaces.
    Environment,
}

/// The step at which the child failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildStep {
    Session,
    Stdio,
    Cwd,
    Caps,
    User,
    Program,
}

/// Why the program did not start.
#[derive(Debug, Clone, Copy)]
pub struct ChildFailure {
    pub stage: ChildStep,
    pub errno: Errno,
}

/// The child's stdin, stdout and stderr.
#[derive(Debug, Clone, Copy)]
pub enum Stdio {
    Given([c_int; 3]),
    /// One end of a terminal for all three, which becomes the controlling terminal.
    Terminal(c_int),
}

/// The user and the groups of the child.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    pub uid: Uid,
    pub gid: Gid,
    pub groups: &'a [Gid],
}

/// All that the child needs, prepared before `clone`.
pub struct ChildPlan<'a> {
    pub stdio: Stdio,
    pub cwd: &'a CStr,
    /// Where the child starts if it cannot enter `cwd`.
    pub cwd_instead: Option<&'a CStr>,
    pub programs: &'a [CString],
    pub argv: &'a Pointers<'a>,
    pub env: &'a Pointers<'a>,
    pub caps: &'a CapPlan,
    /// Root without one.
    pub identity: Option<Identity<'a>>,
    /// Whether set-user-ID programs get the rights of their owner.
    pub may_gain: bool,
    pub failure: Cell<Option<ChildFailure>>,
}

/// A null-terminated list of C strings for `execve`.
pub struct Pointers<'a> {
    list: Vec<*const c_char>,
    strings: PhantomData<&'a [CString]>,
}

/// The pointers to `strings`.
pub fn pointers(strings: &[CString]) -> Pointers<'_> {
    let list = strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect();
    Pointers { list, strings: PhantomData }
}

/// The stack of the children, used by one at a time.
pub struct Stack {
    base: *mut c_void,
}

impl Stack {
    pub fn new() -> Result<Self, Errno> {
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches nothing that exists.
        #[expect(unsafe_code, reason = "a stack is raw memory")]
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                STACK,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED { Err(Errno::NOMEM) } else { Ok(Self { base }) }
    }

    fn top(&self) -> *mut c_void {
        // Stacks grow down, and the mapping is page-aligned at both ends.
        self.base.wrapping_byte_add(STACK)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and no child uses it: the agent continues only when the child
        // has left it.
        #[expect(unsafe_code, reason = "a stack is raw memory")]
        unsafe {
            libc::munmap(self.base, STACK);
        }
    }
}

/// Starts the child and returns when `execve` succeeded or the child ended; see the plan's `failure`.
pub fn start(stack: &Stack, plan: &ChildPlan<'_>, marking: Marking) -> Result<Pid, Errno> {
    let mark = if marking == Marking::Namespace { libc::CLONE_NEWCGROUP } else { 0 };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD | mark;
    // SAFETY: the child runs `child` on a stack of its own while this thread, the only one, is stopped by CLONE_VFORK, so
    // `plan` outlives it and nobody else touches the shared memory. All signals are blocked and have default handlers.
    #[expect(unsafe_code, reason = "no safe way to make a child without copying the agent")]
    let pid = unsafe { libc::clone(child, stack.top(), flags, ptr::from_ref(plan).cast_mut().cast()) };
    Pid::from_raw(pid.max(0)).ok_or_else(last_error)
}

extern "C" fn child(plan: *mut c_void) -> c_int {
    // SAFETY: `start` passed a `ChildPlan` that lives until this process has left the shared memory.
    #[expect(unsafe_code, reason = "the argument of clone is untyped")]
    let plan = unsafe { &*plan.cast::<ChildPlan<'_>>() };
    let failure = become_program(plan);
    plan.failure.set(Some(failure));
    127
}

/// Returns only if it failed.
fn become_program(plan: &ChildPlan<'_>) -> ChildFailure {
    let fail = |stage| move |errno| ChildFailure { stage, errno };
    if let Err(failure) = prepare(plan) {
        return failure;
    }
    // SAFETY: an empty set, made by the call, is set as this process's mask; no handler exists that could run.
    #[expect(unsafe_code, reason = "no safe wrapper exists")]
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
    let mut worst = Errno::NOENT;
    for program in plan.programs {
        // SAFETY: the three are C strings and null-ended lists of C strings that live in the plan.
        #[expect(unsafe_code, reason = "no safe wrapper exists")]
        unsafe {
            libc::execve(program.as_ptr(), plan.argv.list.as_ptr(), plan.env.list.as_ptr());
        }
        match last_error() {
            // Not found here: try the next directory, and remember a permission error.
            Errno::NOENT | Errno::NOTDIR => {}
            Errno::ACCESS => worst = Errno::ACCESS,
            errno => return fail(ChildStep::Program)(errno),
        }
    }
    fail(ChildStep::Program)(worst)
}

fn prepare(plan: &ChildPlan<'_>) -> Result<(), ChildFailure> {
    let fail = |stage| move |errno| ChildFailure { stage, errno };
    rustix::process::setsid().map_err(fail(ChildStep::Session))?;
    let fds = match plan.stdio {
        Stdio::Given(fds) => fds,
        Stdio::Terminal(slave) => [slave; 3],
    };
    for (to, from) in fds.into_iter().enumerate() {
        // SAFETY: the numbers are open descriptors, all above 2; this process's table is its own.
        #[expect(unsafe_code, reason = "puts descriptors on given numbers")]
        let done = unsafe { libc::dup2(from, to as c_int) };
        if done < 0 {
            return Err(fail(ChildStep::Stdio)(last_error()));
        }
    }
    if let Stdio::Terminal(_) = plan.stdio {
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin()).map_err(fail(ChildStep::Session))?;
    }
    raise_oom_score();
    plan.caps.drop_rest().map_err(fail(ChildStep::Caps))?;
    if !plan.may_gain {
        rustix::thread::set_no_new_privs(true).map_err(fail(ChildStep::Caps))?;
    }
    if let Some(identity) = &plan.identity {
        become_user(identity).map_err(fail(ChildStep::User))?;
    }
    // With the rights of the user.
    let entered = match (rustix::process::chdir(plan.cwd), plan.cwd_instead) {
        (Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS), Some(instead)) => rustix::process::chdir(instead),
        (entered, _) => entered,
    };
    entered.map_err(fail(ChildStep::Cwd))
}

/// Changes to a user, which drops the capabilities of this process unless the user is root.
fn become_user(identity: &Identity<'_>) -> Result<(), Errno> {
    rustix::thread::set_thread_groups(identity.groups)?;
    let (uid, gid) = (identity.uid, identity.gid);
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

/// Raises this process's score for the out-of-memory killer. Best effort: without `/proc` the killer may choose the
/// agent.
pub fn raise_oom_score() {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(c"/proc/self/oom_score_adj", flags, Mode::empty()) {
        let _ = rustix::io::write(&file, OOM_SCORE);
    }
}

fn last_error() -> Errno {
    // SAFETY: reads this thread's error number. It is not `std::io::Error`, which may allocate.
    #[expect(unsafe_code, reason = "no allocation here")]
    let number = unsafe { *libc::__errno_location() };
    Errno::from_raw_os_error(number)
}
