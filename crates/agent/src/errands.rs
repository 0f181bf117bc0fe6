//! The loop's part in errands: to start one, and to end one that nobody waits for and that does not end by itself.

use std::time::Instant;

use guest_proto::{FileRequest, RefusalKind, ToHost};

use crate::agent::Agent;
use crate::errand;
use crate::exec::Exec;

impl Agent {
    /// Starts an errand; from then on it is driven as a command.
    pub(crate) fn errand(&mut self, op: u64, request: &FileRequest<'_>, window: u32) {
        let most = errand::MOST;
        if self.ops.errands() >= most || !self.ops.exec_room() {
            let message = format!("{most} operations on files are under way, the most there may be");
            return self.refuse(op, RefusalKind::TooMany, &message);
        }
        let started = Instant::now();
        let spawned = match errand::start(request, self.spawner.caps()) {
            Ok(spawned) => spawned,
            Err((kind, message)) => return self.refuse(op, kind, &message),
        };
        let pid = spawned.pid;
        let stdin = if spawned.stdin.is_some() { errand::WINDOW } else { 0 };
        let serial = self.serial();
        match Exec::new(op, serial, spawned, started, window, &self.poll) {
            Ok(exec) => {
                self.ops.add_exec(exec);
                let pid = pid.as_raw_nonzero().get().unsigned_abs();
                self.link.out.message(&ToHost::Started { op, pid, window: stdin });
            }
            // Its pipes are gone, and so will it be. It is collected as an orphan.
            Err(errno) => self.refuse(op, RefusalKind::Failed, &format!("cannot watch an errand: {errno}")),
        }
    }

    /// Kills the errands whose time to tidy up is over, and closes the terminals whose time to linger is.
    pub(crate) fn end_errands(&mut self) {
        let now = Instant::now();
        let mut lingered = Vec::new();
        for exec in self.ops.execs().filter(|exec| exec.ends_at.is_some_and(|at| at <= now)) {
            if exec.time_is_over() {
                // It may have ended in this moment; it is not collected yet, so its number is nobody else's.
                let _ = rustix::process::kill_process(exec.pid, rustix::process::Signal::KILL);
            } else {
                lingered.push(exec.serial);
            }
        }
        lingered.into_iter().for_each(|serial| self.wake(serial));
    }
}
