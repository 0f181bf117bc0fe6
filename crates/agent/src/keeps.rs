//! The loop's part in commands that outlive their link, and in terminals: what the host asks of them. `serve` calls it with each
//! request; all else is as with any command.

use std::time::Instant;

use guest_proto::{ExecSpec, KEPT_WINDOW, RefusalKind, TerminalSize};

use crate::agent::Agent;
use crate::terminal;

impl Agent {
    /// Starts a command that outlives the link.
    pub(crate) fn keep(&mut self, op: u64, spec: &ExecSpec<'_>, size: Option<TerminalSize>) {
        if !self.has_exec_room(op) {
            return;
        }
        let started = Instant::now();
        let spawned = match size {
            Some(size) => self.spawner.spawn_on_terminal(op, spec, size),
            None => self.spawner.spawn(op, spec),
        };
        if self.begin(op, spawned, started, KEPT_WINDOW)
            && let Some(exec) = self.ops.exec_of(op)
        {
            exec.keep();
        }
    }

    /// This link goes on with a command that another one began.
    pub(crate) fn take(&mut self, op: u64, positions: [u64; 2]) {
        let Some(exec) = self.ops.exec_of(op).filter(|exec| exec.is_kept()) else {
            return self.refuse(op, RefusalKind::UnknownOp, "there is no such command");
        };
        let serial = exec.serial;
        if exec.take(positions, &mut self.link.out) {
            self.wake(serial);
        } else {
            self.refuse(op, RefusalKind::Failed, "that place in the command's output is gone");
        }
    }

    pub(crate) fn resize(&mut self, op: u64, size: TerminalSize) {
        if let Some(master) = self.ops.exec_of(op).and_then(|exec| exec.terminal()) {
            // A terminal that hangs up in this moment has no size.
            let _ = terminal::resize(master, size);
        }
    }

    /// What is kept of a command is not wanted any more.
    pub(crate) fn forget(&mut self, op: u64) {
        let Some(exec) = self.ops.exec_of(op) else { return };
        let serial = exec.serial;
        if exec.forget() {
            self.ops.remove(serial);
        } else {
            self.settle(serial);
        }
    }
}
