//! Requests for file operations: starts them, and kills abandoned ones that do not end. Called by `serve` and the loop.

use std::time::Instant;

use guest_proto::{FileRequest, RefusalKind, ToHost};

use crate::agent::Agent;
use crate::exec::Exec;
use crate::file_op;

impl Agent {
    /// Starts a file operation; from then on the loop handles it like a command.
    pub(crate) fn start_file_op(
        &mut self,
        op: u64,
        request: &FileRequest<'_>,
        user: Option<&str>,
        window: u32,
    ) {
        let (max, current, what) = match request {
            FileRequest::Watch { .. } => (file_op::MAX_WATCHES, self.ops.watches(), "watches"),
            _ => (file_op::MAX_FILE_OPS, self.ops.file_ops(), "file operations in progress"),
        };
        if current >= max || !self.ops.exec_room() {
            let message = format!("the sandbox has {max} {what}, the maximum");
            return self.refuse(op, RefusalKind::TooMany, &message);
        }
        let started = Instant::now();
        let spawned = match file_op::start(request, user, self.spawner.caps()) {
            Ok(spawned) => spawned,
            Err((kind, message)) => return self.refuse(op, kind, &message),
        };
        let pid = spawned.pid;
        let stdin = if spawned.stdin.is_some() { file_op::WINDOW } else { 0 };
        let serial = self.serial();
        match Exec::new(op, serial, spawned, started, window, &self.poll) {
            Ok(exec) => {
                self.ops.add_exec(exec);
                let pid = pid.as_raw_nonzero().get().unsigned_abs();
                self.link.out.message(&ToHost::Started { op, pid, window: stdin });
            }
            // Its pipes are closed, so it ends; the reaper collects it as an orphan.
            Err(errno) => {
                self.refuse(op, RefusalKind::Failed, &format!("cannot watch a file operation: {errno}"));
            }
        }
    }

    /// Kills abandoned file operations whose grace period is over, and closes terminals whose waiting time is over.
    pub(crate) fn end_file_ops(&mut self) {
        let now = Instant::now();
        let mut expired_terminals = Vec::new();
        for exec in self.ops.execs().filter(|exec| exec.deadline.is_some_and(|at| at <= now)) {
            if exec.on_deadline() {
                // The child may have ended, but is not collected yet, so its pid is not reused.
                let _ = rustix::process::kill_process(exec.pid, rustix::process::Signal::KILL);
            } else {
                expired_terminals.push(exec.serial);
            }
        }
        expired_terminals.into_iter().for_each(|serial| self.wake(serial));
    }
}
