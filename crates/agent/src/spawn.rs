//! Starts commands: pipes, a child, and the rights that the child drops before its program runs. Called by `serve`.
//!
//! The child is made by `clone` with the agent's memory shared, and the agent is stopped until the program runs or the child
//! has ended (as with `vfork`): nothing is copied, and the child reports a failure in shared memory. It runs
//! on its own stack and only makes system calls.
//!
//! Each command gets its own cgroup namespace. It serves only as a mark that the kernel puts on
//! everything the command starts. Leaving it takes CAP_SYS_ADMIN, which commands lack. `tree` reads it.
//!
//! A failure leaves nothing behind: the child is collected and the pipes are closed.

mod caps;
mod child;

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use guest_proto::{ExecSpec, NewPrivileges, RefusalKind, RunAs, StdinMode, TerminalSize};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, WaitOptions};

use crate::error::BootError;
use crate::terminal::{self, Terminal};
use crate::users::User;
pub use caps::CapPlan;
pub use child::raise_oom_score;
use child::{ChildFailure, ChildPlan, ChildStep, Identity, Marking, Stdio};

/// Name of the variable that marks a command's processes where namespaces cannot.
pub const MARK: &str = "SANDBOX_EXEC";

/// Search path for programs if the environment has no PATH.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const ROOT_DIRECTORY: &CStr = c"/";

/// A started command.
pub struct Spawned {
    pub pid: Pid,
    pub stdin: Option<OwnedFd>,
    pub stdout: OwnedFd,
    /// None for a file operation and for a command on a terminal.
    pub stderr: Option<OwnedFd>,
    pub kind: ProgramKind,
}

/// What was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramKind {
    Command,
    /// A command on a terminal, which is its input and output.
    Terminal,
    /// A file operation: a child of the agent without children of its own, bound to its link.
    FileOp,
    /// A file operation that lasts: the watch of a directory.
    Watch,
}

/// A command that did not start.
pub type StartRefusal = (RefusalKind, String);

/// Starts commands; made once.
pub struct Spawner {
    stack: child::Stack,
    null: Option<OwnedFd>,
    caps: CapPlan,
    marking: Marking,
}

impl Spawner {
    pub fn new() -> Result<Self, BootError> {
        let caps = CapPlan::new().map_err(BootError::step("read the capabilities"))?;
        let stack = child::Stack::new().map_err(BootError::step("map a stack for children"))?;
        let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        let marking = if rustix::fs::stat("/proc/self/ns/cgroup").is_ok() {
            Marking::Namespace
        } else {
            Marking::Environment
        };
        Ok(Self { stack, null, caps, marking })
    }

    /// The capabilities of commands and file operations.
    pub fn caps(&self) -> &CapPlan {
        &self.caps
    }

    /// Starts a command.
    pub fn spawn(
        &mut self,
        op: u64,
        spec: &ExecSpec<'_>,
        run_as: Option<RunAs<'_>>,
    ) -> Result<Spawned, StartRefusal> {
        let user = find_user(run_as)?;
        let pipes =
            Pipes::new(spec.stdin, self.null.as_ref()).map_err(|errno| failed("make pipes", errno))?;
        if let Some((user, _)) = &user {
            pipes.give_to(user).map_err(|errno| failed("make pipes", errno))?;
        }
        let null = self.null.as_ref();
        let fds = [pipes.child_stdin(null), pipes.stdout.1.as_raw_fd(), pipes.stderr.1.as_raw_fd()];
        let pid = self.start(op, spec, user.as_ref(), Stdio::Given(fds))?;
        Ok(pipes.parent(pid))
    }

    /// Starts a command in a session with a controlling terminal of its own.
    pub fn spawn_on_terminal(
        &mut self,
        op: u64,
        spec: &ExecSpec<'_>,
        run_as: Option<RunAs<'_>>,
        size: TerminalSize,
    ) -> Result<Spawned, StartRefusal> {
        let user = find_user(run_as)?;
        let Terminal { master, slave } =
            terminal::open(size).map_err(|errno| failed("make a terminal", errno))?;
        let input =
            rustix::io::fcntl_dupfd_cloexec(&master, 3).map_err(|errno| failed("make a terminal", errno))?;
        if let Some((user, _)) = &user {
            // Its programs open the terminal by name. The group stays that of terminals.
            rustix::fs::fchown(&slave, Some(Uid::from_raw(user.uid)), None)
                .map_err(|errno| failed("make a terminal", errno))?;
        }
        let pid = self.start(op, spec, user.as_ref(), Stdio::Terminal(slave.as_raw_fd()))?;
        Ok(Spawned { pid, stdin: Some(input), stdout: master, stderr: None, kind: ProgramKind::Terminal })
    }

    fn start(
        &mut self,
        op: u64,
        spec: &ExecSpec<'_>,
        user: Option<&(User, NewPrivileges)>,
        stdio: Stdio,
    ) -> Result<Pid, StartRefusal> {
        let argv = strings(spec.argv.iter().copied())?;
        let programs = programs(spec)?;
        let cwd = match user {
            Some((user, _)) => user.path(spec.cwd.as_bytes()),
            None => spec.cwd.as_bytes().to_vec(),
        };
        let cwd = string(cwd)?;
        // As at a login: system users such as `nobody` have homes that do not exist.
        let cwd_instead = (user.is_some() && spec.cwd.is_empty()).then_some(ROOT_DIRECTORY);
        let own = own_environment(spec, user)?;
        let groups: Vec<Gid> = user
            .map(|(user, _)| user.groups.iter().copied().map(Gid::from_raw).collect())
            .unwrap_or_default();
        let identity = user.map(|(user, _)| Identity {
            uid: Uid::from_raw(user.uid),
            gid: Gid::from_raw(user.gid),
            groups: &groups,
        });
        let may_gain = user.is_some_and(|(_, privileges)| *privileges == NewPrivileges::Allowed);
        loop {
            let mark = (self.marking == Marking::Environment).then(|| format!("{MARK}={op}"));
            let marked = mark.is_some();
            let pairs = spec.env.iter().filter(|(name, _)| !marked || *name != MARK);
            let env = pairs.map(|(name, value)| format!("{name}={value}")).chain(mark);
            let env = env.map(string).chain(own.iter().cloned().map(Ok)).collect::<Result<Vec<_>, _>>()?;
            let argv = child::pointers(&argv);
            let env = child::pointers(&env);
            let plan = ChildPlan {
                stdio,
                cwd: &cwd,
                cwd_instead,
                programs: &programs,
                argv: &argv,
                env: &env,
                caps: &self.caps,
                identity,
                may_gain,
                failure: std::cell::Cell::new(None),
            };
            match child::start(&self.stack, &plan, self.marking) {
                Ok(pid) => {
                    if let Some(failure) = plan.failure.get() {
                        // The child has ended; nothing else waits for it.
                        let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
                        return Err(explain(failure, spec, &cwd));
                    }
                    return Ok(pid);
                }
                Err(Errno::PERM | Errno::INVAL | Errno::NOSYS) if self.marking == Marking::Namespace => {
                    // The kernel lacks cgroup namespaces, or the agent may not create them; neither changes later.
                    self.marking = Marking::Environment;
                }
                Err(errno) => return Err(no_process(errno)),
            }
        }
    }
}

/// The pipes of a command: (reading end, writing end). The agent's ends do not block, the child's do.
struct Pipes {
    stdin: Option<(OwnedFd, OwnedFd)>,
    stdout: (OwnedFd, OwnedFd),
    stderr: (OwnedFd, OwnedFd),
    mode: StdinMode,
}

impl Pipes {
    fn new(mode: StdinMode, null: Option<&OwnedFd>) -> Result<Self, Errno> {
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
        let stdout = pipe()?;
        let stderr = pipe()?;
        rustix::io::ioctl_fionbio(&stdout.0, true)?;
        rustix::io::ioctl_fionbio(&stderr.0, true)?;
        let stdin = match (mode, null) {
            (StdinMode::Null, Some(_)) => None,
            // Without /dev/null, a pipe with a closed writer reads as empty too.
            (StdinMode::Null, None) | (StdinMode::Pipe, _) => Some(pipe()?),
        };
        if let Some((_, writer)) = &stdin {
            rustix::io::ioctl_fionbio(writer, true)?;
        }
        Ok(Self { stdin, stdout, stderr, mode })
    }

    fn child_stdin(&self, null: Option<&OwnedFd>) -> i32 {
        match (&self.stdin, null) {
            (Some((reader, _)), _) => reader.as_fd().as_raw_fd(),
            (None, Some(null)) => null.as_raw_fd(),
            (None, None) => 0,
        }
    }

    /// Makes a user the owner, so that its programs can open them as `/dev/stdout`.
    fn give_to(&self, user: &User) -> Result<(), Errno> {
        let (uid, gid) = (Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)));
        let stdin = self.stdin.as_ref().map(|(reader, _)| reader);
        let ends = [Some(&self.stdout.1), Some(&self.stderr.1), stdin];
        ends.into_iter().flatten().try_for_each(|end| rustix::fs::fchown(end, uid, gid))
    }

    /// The agent's ends; the child's are closed.
    fn parent(self, pid: Pid) -> Spawned {
        let stdin = self.stdin.map(|(_, writer)| writer).filter(|_| self.mode == StdinMode::Pipe);
        Spawned { pid, stdin, stdout: self.stdout.0, stderr: Some(self.stderr.0), kind: ProgramKind::Command }
    }
}

/// Looks up the user of a command.
fn find_user(run_as: Option<RunAs<'_>>) -> Result<Option<(User, NewPrivileges)>, StartRefusal> {
    let Some(run_as) = run_as else { return Ok(None) };
    match User::find(run_as.user) {
        Ok(user) => Ok(Some((user, run_as.new_privileges))),
        Err(missing) => {
            let (what, name) = missing.described();
            Err((RefusalKind::UserMissing, format!("the sandbox has no {what} {}", short(name))))
        }
    }
}

/// The variables of a user that the environment does not set.
fn own_environment(
    spec: &ExecSpec<'_>,
    user: Option<&(User, NewPrivileges)>,
) -> Result<Vec<CString>, StartRefusal> {
    let Some((user, _)) = user else { return Ok(Vec::new()) };
    let variables = [("HOME", &user.home), ("USER", &user.name), ("LOGNAME", &user.name)];
    let missing = variables.into_iter().filter(|(name, _)| spec.env.iter().all(|(set, _)| set != name));
    missing.map(|(name, value)| string([name.as_bytes(), b"=", value].concat())).collect()
}

/// The candidate paths of the program in order. The usual directories come last: a command whose environment has
/// its own PATH still finds bash.
fn programs(spec: &ExecSpec<'_>) -> Result<Vec<CString>, StartRefusal> {
    let program = spec.argv.first().copied().unwrap_or_default();
    if program.contains('/') {
        return strings([program]);
    }
    let path =
        spec.env.iter().rev().find(|(name, _)| *name == "PATH").map_or(DEFAULT_PATH, |(_, value)| value);
    path.split(':')
        .chain(DEFAULT_PATH.split(':'))
        .map(|dir| if dir.is_empty() { string(program) } else { string(format!("{dir}/{program}")) })
        .collect()
}

fn strings<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Vec<CString>, StartRefusal> {
    texts.into_iter().map(string).collect()
}

fn string(text: impl Into<Vec<u8>>) -> Result<CString, StartRefusal> {
    CString::new(text).map_err(|_| (RefusalKind::Failed, "an argument has a NUL byte".into()))
}

fn explain(failure: ChildFailure, spec: &ExecSpec<'_>, cwd: &CStr) -> StartRefusal {
    let ChildFailure { stage, errno } = failure;
    let program = spec.argv.first().copied().unwrap_or_default();
    let program: String = program.chars().take(256).collect();
    let denied = matches!(errno, Errno::ACCESS | Errno::PERM);
    match stage {
        ChildStep::Cwd if matches!(errno, Errno::NOENT | Errno::NOTDIR) => (
            RefusalKind::CwdMissing,
            format!("the working directory {} does not exist", short(&cwd.to_string_lossy())),
        ),
        ChildStep::Cwd => {
            let kind = if denied { RefusalKind::NotAllowed } else { RefusalKind::Failed };
            (kind, format!("cannot enter the working directory {}: {errno}", short(&cwd.to_string_lossy())))
        }
        ChildStep::Program if matches!(errno, Errno::NOENT | Errno::NOTDIR) => {
            (RefusalKind::ProgramMissing, format!("the program {program} does not exist"))
        }
        ChildStep::Program => {
            let kind = if denied { RefusalKind::NotAllowed } else { RefusalKind::Failed };
            (kind, format!("cannot run the program {program}: {errno}"))
        }
        ChildStep::Session => failed("start a session", errno),
        ChildStep::Stdio => failed("set up stdin, stdout and stderr", errno),
        ChildStep::Caps => failed("drop capabilities", errno),
        ChildStep::User => failed("change to the user", errno),
    }
}

/// A path short enough for a message.
fn short(path: &str) -> String {
    path.chars().take(512).collect()
}

/// The refusal if the kernel does not create a process. The usual reason is that the sandbox has as many as it may.
pub fn no_process(errno: Errno) -> StartRefusal {
    match errno {
        Errno::AGAIN => {
            let message = "cannot create a process: the sandbox is at its limit of processes and threads; end some of them, or \
                           pause the sandbox and resume it with 'cold' true, which ends all";
            (RefusalKind::Failed, message.to_owned())
        }
        errno => failed("create a process", errno),
    }
}

fn failed(step: &str, errno: Errno) -> StartRefusal {
    (RefusalKind::Failed, format!("cannot {step}: {errno}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_process_table_is_named() {
        let (_, message) = no_process(Errno::AGAIN);
        assert!(message.starts_with("cannot create a process: the sandbox is at its limit"), "{message}");
        let (_, message) = no_process(Errno::NOMEM);
        assert_eq!(message, format!("cannot create a process: {}", Errno::NOMEM));
    }
}
