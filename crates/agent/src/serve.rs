//! Handles the host's requests. Called by the loop with the body of each frame.
//!
//! An error is a violation of the protocol and ends the link; a request that fails gets an answer.

mod detached;
mod file_ops;
mod setup;

use std::time::Instant;

use guest_proto::{Channel, ExecSpec, ProtoError, RefusalKind, RunAs, ToGuest, ToHost};
use rustix::process::Pid;

use crate::agent::Agent;
use crate::dial::Dial;
use crate::exec::{Exec, STDIN_WINDOW};
use crate::identity;
use crate::link::LinkPhase;
use crate::poll::{PollToken, Role};
use crate::spawn::{Spawned, StartRefusal};
use crate::terminal;
use crate::tree::TreeKill;

impl Agent {
    /// Serves one frame.
    pub(crate) fn frame(&mut self, body: &[u8]) -> Result<(), ProtoError> {
        let message = guest_proto::decode_to_guest(body)?;
        match (self.link.phase, &message) {
            (LinkPhase::New, ToGuest::Hello { version, min_version }) => {
                return self.hello(*version, *min_version);
            }
            (LinkPhase::New, ToGuest::Continue) => return self.continue_link(),
            (LinkPhase::Open, ToGuest::Hello { .. } | ToGuest::Continue) => {
                return Err(violation("a hello", "came twice"));
            }
            (LinkPhase::Open, _) => {}
            _ => return Err(violation("the first frame", "is not a hello")),
        }
        match message {
            ToGuest::Hello { .. } | ToGuest::Continue => {}
            ToGuest::Setup { op, dirs } => {
                self.check_unused(op)?;
                self.answer(op, setup::make_dirs(&dirs));
            }
            ToGuest::Exec { op, spec, window } => {
                self.check_unused(op)?;
                self.exec(op, &spec, None, window);
            }
            ToGuest::ExecAs { op, spec, run_as, window } => {
                self.check_unused(op)?;
                self.exec(op, &spec, Some(run_as), window);
            }
            ToGuest::File { op, request, window } => {
                self.check_unused(op)?;
                self.start_file_op(op, &request, None, window);
            }
            ToGuest::FileAs { op, user, request, window } => {
                self.check_unused(op)?;
                self.start_file_op(op, &request, Some(user), window);
            }
            ToGuest::Dial { op, port, window } => {
                self.check_unused(op)?;
                self.dial(op, port, window);
            }
            ToGuest::Data { op, bytes } => self.data(op, bytes)?,
            ToGuest::Eof { op } => self.eof(op),
            ToGuest::Credit { op, channel, bytes } => self.credit(op, channel, bytes)?,
            ToGuest::Kill { op } => self.kill(op),
            ToGuest::Signal { op, signal } => self.signal(op, signal),
            ToGuest::Close { op } => self.close(op),
            ToGuest::StartDetached { op, spec, terminal } => {
                self.check_unused(op)?;
                self.exec_detached(op, &spec, None, terminal);
            }
            ToGuest::StartDetachedAs { op, spec, run_as, terminal } => {
                self.check_unused(op)?;
                self.exec_detached(op, &spec, Some(run_as), terminal);
            }
            ToGuest::Attach { op, stdout, stderr } => self.attach(op, [stdout, stderr]),
            ToGuest::Resize { op, size } => self.resize(op, size),
            ToGuest::Release { op } => self.release(op),
            ToGuest::Ping { nonce } => self.link.out.message(&ToHost::Pong { nonce }),
            ToGuest::Suspend => self.link.suspend(),
            ToGuest::Adopt { op, host_name } => {
                self.check_unused(op)?;
                self.answer(op, identity::adopt(host_name));
            }
        }
        Ok(())
    }

    fn hello(&mut self, version: u16, min_version: u16) -> Result<(), ProtoError> {
        let version = guest_proto::negotiate(version, min_version)?;
        if self.link.is_suspended() {
            // The host has lost the suspended link, or these processes are a copy.
            self.link.out.clear();
            self.forget_link();
        }
        self.link.phase = LinkPhase::Open;
        self.link.version = version;
        self.connector.answered();
        self.renew_signals();
        let ops = self.ops.execs().map(|exec| exec.op).collect();
        self.link.out.message(&ToHost::Welcome { version, agent_version: env!("CARGO_PKG_VERSION"), ops });
        let mut serials = Vec::new();
        for exec in self.ops.execs().filter(|exec| !exec.is_detached()) {
            exec.grant_stdin(&mut self.link.out);
            serials.push(exec.serial);
        }
        for serial in serials {
            self.wake(serial);
        }
        Ok(())
    }

    /// Continues the suspended link on this stream.
    fn continue_link(&mut self) -> Result<(), ProtoError> {
        if !self.link.is_suspended() {
            return Err(violation("a link", "is continued that was not suspended"));
        }
        self.link.continue_here();
        self.connector.answered();
        self.renew_signals();
        // What happened meanwhile was not reported.
        let serials: Vec<u64> = self.ops.execs().map(|exec| exec.serial).collect();
        for serial in serials {
            if let Some(exec) = self.ops.exec(serial) {
                exec.grant_stdin(&mut self.link.out);
            }
            self.wake(serial);
        }
        Ok(())
    }

    fn exec(&mut self, op: u64, spec: &ExecSpec<'_>, run_as: Option<RunAs<'_>>, window: u32) {
        if self.has_exec_room(op) {
            let started = Instant::now();
            let spawned = self.spawner.spawn(op, spec, run_as);
            self.begin(op, spawned, started, window);
        }
    }

    /// Whether there is room for one more command; if not, refuses this one.
    pub(crate) fn has_exec_room(&mut self, op: u64) -> bool {
        let has_room = self.ops.exec_room();
        if !has_room {
            let max = crate::ops::MAX_EXECS;
            let message = format!("the sandbox has {max} running commands, the maximum");
            self.refuse(op, RefusalKind::TooMany, &message);
        }
        has_room
    }

    /// Registers a started command with the loop, or reports why it did not start. True if it runs.
    pub(crate) fn begin(
        &mut self,
        op: u64,
        spawned: Result<Spawned, StartRefusal>,
        started: Instant,
        window: u32,
    ) -> bool {
        let spawned = match spawned {
            Ok(spawned) => spawned,
            Err((kind, message)) => {
                self.refuse(op, kind, &message);
                return false;
            }
        };
        let pid = spawned.pid;
        let stdin = if spawned.stdin.is_some() { STDIN_WINDOW } else { 0 };
        let serial = self.serial();
        match Exec::new(op, serial, spawned, started, window, &self.poll) {
            Ok(exec) => {
                self.ops.add_exec(exec);
                let pid = pid.as_raw_nonzero().get().unsigned_abs();
                self.link.out.message(&ToHost::Started { op, pid, window: stdin });
                true
            }
            Err(errno) => {
                // Without events its end would not be reported, so it is killed. The reaper collects it as an orphan.
                let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
                self.refuse(op, RefusalKind::Failed, &format!("cannot watch the command's output: {errno}"));
                false
            }
        }
    }

    fn dial(&mut self, op: u64, port: u16, window: u32) {
        if !self.ops.dial_room() {
            let max = crate::ops::MAX_DIALS;
            return self.refuse(
                op,
                RefusalKind::TooMany,
                &format!("the sandbox has {max} open connections, the maximum"),
            );
        }
        let serial = self.serial();
        match Dial::new(op, serial, port, window, &self.poll) {
            Ok(dial) => self.ops.add_dial(dial),
            Err(errno) => {
                self.refuse(op, RefusalKind::Connect, &format!("port {port} does not answer: {errno}"));
            }
        }
    }

    fn data(&mut self, op: u64, bytes: &[u8]) -> Result<(), ProtoError> {
        if let Some(exec) = self.ops.exec_of(op) {
            let stdin = exec.stdin.as_mut().ok_or(violation("data", "came for a command without stdin"))?;
            stdin.push(bytes)?;
            exec.grant_stdin(&mut self.link.out);
        } else if let Some(dial) = self.ops.dial_of(op) {
            let (_, sink) =
                dial.streams().ok_or(violation("data", "came for a connection that is not open"))?;
            sink.push(bytes)?;
            let (serial, next) = (dial.serial, dial.settle(&mut self.link.out));
            self.follow(serial, next);
        }
        Ok(())
    }

    fn eof(&mut self, op: u64) {
        if let Some(exec) = self.ops.exec_of(op) {
            if let Some(stdin) = &mut exec.stdin {
                stdin.end();
            }
        } else if let Some(dial) = self.ops.dial_of(op) {
            if let Some((_, sink)) = dial.streams() {
                sink.end();
            }
            let (serial, next) = (dial.serial, dial.settle(&mut self.link.out));
            self.follow(serial, next);
        }
    }

    fn credit(&mut self, op: u64, channel: Channel, bytes: u32) -> Result<(), ProtoError> {
        let (serial, role) = if let Some(exec) = self.ops.exec_of(op) {
            exec.credit(channel, bytes)?;
            (exec.serial, if channel == Channel::Stderr { Role::Stderr } else { Role::Stdout })
        } else if let Some(dial) = self.ops.dial_of(op) {
            if let Some((Some(source), _)) = dial.streams() {
                source.grant(bytes)?;
            }
            (dial.serial, Role::Socket)
        } else {
            return Ok(());
        };
        self.enqueue(PollToken { serial, role });
        Ok(())
    }

    fn kill(&mut self, op: u64) {
        // A command may just have ended. Then its background processes are not killed.
        self.schedule_reap();
        self.reap();
        let Some(exec) = self.ops.exec_of(op) else {
            return self.refuse(op, RefusalKind::UnknownOp, "there is no such command");
        };
        exec.drop_uncredited();
        if exec.is_file_op() {
            exec.abandon(Instant::now());
        } else if exec.is_running() && exec.tree_kill.is_none() {
            exec.tree_kill = Some(TreeKill::new(exec.pid, op, &self.proc, Instant::now()));
        }
        let serial = exec.serial;
        self.wake(serial);
    }

    fn signal(&mut self, op: u64, signal: i32) {
        let Some(exec) = self.ops.exec_of(op).filter(|exec| exec.is_running()) else { return };
        send(exec.pid, signal);
        if let Some(group) = exec.terminal().and_then(terminal::foreground).filter(|group| *group != exec.pid)
        {
            send(group, signal);
        }
    }

    fn close(&mut self, op: u64) {
        let serials = [self.serial(), self.serial()];
        if let Some(exec) = self.ops.exec_of(op) {
            let serial = exec.serial;
            exec.discard(&mut self.drains, &self.poll, serials);
            self.settle(serial);
        } else if let Some(serial) = self.ops.dial_of(op).map(|dial| dial.serial) {
            self.ops.remove(serial);
        }
    }

    /// Schedules a command's output and the report of its end.
    pub(crate) fn wake(&mut self, serial: u64) {
        self.enqueue(PollToken { serial, role: Role::Stdout });
        self.enqueue(PollToken { serial, role: Role::Stderr });
        self.settle(serial);
    }

    fn answer(&mut self, op: u64, done: Result<(), StartRefusal>) {
        match done {
            Ok(()) => self.link.out.message(&ToHost::Done { op }),
            Err((kind, message)) => self.refuse(op, kind, &message),
        }
    }

    pub(crate) fn refuse(&mut self, op: u64, kind: RefusalKind, message: &str) {
        self.link.out.message(&ToHost::Refused { op, kind, message });
    }

    fn check_unused(&self, op: u64) -> Result<(), ProtoError> {
        if self.ops.has(op) {
            Err(violation("an operation", "has the number of an active one"))
        } else {
            Ok(())
        }
    }
}

fn violation(field: &'static str, reason: &'static str) -> ProtoError {
    ProtoError::Invalid { field, reason }
}

/// Sends any signal number to a process group; rustix names only the known ones.
fn send(group: Pid, signal: i32) {
    // SAFETY: the call takes two numbers. The group's leader is a child that is not collected yet, so its pid is not
    // reused.
    #[expect(unsafe_code, reason = "real-time signals have no safe wrapper")]
    unsafe {
        libc::kill(-group.as_raw_nonzero().get(), signal);
    }
}
