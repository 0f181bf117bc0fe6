//! Requests specific to detached commands, which outlive their link, and to terminals.

use std::time::Instant;

use guest_proto::{DETACHED_WINDOW, ExecSpec, RefusalKind, RunAs, TerminalSize, USERS_SINCE};

use crate::agent::Agent;
use crate::terminal;

impl Agent {
    /// Starts a detached command.
    pub(crate) fn exec_detached(
        &mut self,
        op: u64,
        spec: &ExecSpec<'_>,
        run_as: Option<RunAs<'_>>,
        size: Option<TerminalSize>,
    ) {
        if !self.has_exec_room(op) {
            return;
        }
        let started = Instant::now();
        let spawned = match size {
            Some(size) => self.spawner.spawn_on_terminal(op, spec, run_as, size),
            None => self.spawner.spawn(op, spec, run_as),
        };
        if self.begin(op, spawned, started, DETACHED_WINDOW)
            && let Some(exec) = self.ops.exec_of(op)
        {
            exec.detach();
        }
    }

    /// Attaches this link to a detached command of an earlier link.
    pub(crate) fn attach(&mut self, op: u64, positions: [u64; 2]) {
        let Some(exec) = self.ops.exec_of(op).filter(|exec| exec.is_detached()) else {
            return self.refuse(op, RefusalKind::UnknownOp, "there is no such command");
        };
        let serial = exec.serial;
        let tells_pid = self.link.version >= USERS_SINCE;
        if exec.attach(positions, tells_pid, &mut self.link.out) {
            self.wake(serial);
        } else {
            self.refuse(op, RefusalKind::Failed, "the output from that position on is not available");
        }
    }

    pub(crate) fn resize(&mut self, op: u64, size: TerminalSize) {
        if let Some(master) = self.ops.exec_of(op).and_then(|exec| exec.terminal()) {
            // Fails only if the terminal hangs up at this moment.
            let _ = terminal::resize(master, size);
        }
    }

    /// Releases a detached command: its result is no longer needed.
    pub(crate) fn release(&mut self, op: u64) {
        let Some(exec) = self.ops.exec_of(op) else { return };
        let serial = exec.serial;
        if exec.release() {
            self.ops.remove(serial);
        } else {
            self.settle(serial);
        }
    }
}
