//! The operations in progress: commands and dialled connections, by the host's number and by the agent's serial.
//!
//! Bounded by [`MAX_EXECS`] and [`MAX_DIALS`]. A command counts until its end was reported to the host.

use std::collections::BTreeMap;

use rustix::process::Pid;

use crate::dial::Dial;
use crate::exec::Exec;

/// Commands at a time.
pub const MAX_EXECS: usize = 256;
/// Dialled connections at a time.
pub const MAX_DIALS: usize = guest_proto::MAX_DIALS;

/// All operations.
#[derive(Default)]
pub struct Ops {
    execs: BTreeMap<u64, Exec>,
    dials: BTreeMap<u64, Dial>,
    serials: BTreeMap<u64, u64>,
}

impl Ops {
    /// Whether the host's number is in use.
    pub fn has(&self, op: u64) -> bool {
        self.serials.contains_key(&op)
    }

    /// Whether another command may start.
    pub fn exec_room(&self) -> bool {
        self.execs.len() < MAX_EXECS
    }

    /// Whether another connection may be dialled.
    pub fn dial_room(&self) -> bool {
        self.dials.len() < MAX_DIALS
    }

    pub fn add_exec(&mut self, exec: Exec) {
        self.serials.insert(exec.op, exec.serial);
        self.execs.insert(exec.serial, exec);
    }

    pub fn add_dial(&mut self, dial: Dial) {
        self.serials.insert(dial.op, dial.serial);
        self.dials.insert(dial.serial, dial);
    }

    /// Removes an operation of either kind.
    pub fn remove(&mut self, serial: u64) {
        let op = self.execs.remove(&serial).map(|exec| exec.op);
        if let Some(op) = op.or_else(|| self.dials.remove(&serial).map(|dial| dial.op)) {
            self.serials.remove(&op);
        }
    }

    /// Removes all dialled connections.
    pub fn remove_dials(&mut self) {
        for (_, dial) in std::mem::take(&mut self.dials) {
            self.serials.remove(&dial.op);
        }
    }

    /// The command with this serial.
    pub fn exec(&mut self, serial: u64) -> Option<&mut Exec> {
        self.execs.get_mut(&serial)
    }

    /// The connection with this serial.
    pub fn dial(&mut self, serial: u64) -> Option<&mut Dial> {
        self.dials.get_mut(&serial)
    }

    /// The command with this number of the host.
    pub fn exec_of(&mut self, op: u64) -> Option<&mut Exec> {
        self.execs.get_mut(self.serials.get(&op)?)
    }

    /// The connection with this number of the host.
    pub fn dial_of(&mut self, op: u64) -> Option<&mut Dial> {
        self.dials.get_mut(self.serials.get(&op)?)
    }

    /// Number of file operations in progress, without watches.
    pub fn file_ops(&self) -> usize {
        self.execs.values().filter(|exec| exec.is_file_op() && !exec.is_watch()).count()
    }

    /// Number of watches.
    pub fn watches(&self) -> usize {
        self.execs.values().filter(|exec| exec.is_watch()).count()
    }

    /// The running command with this first process.
    pub fn exec_of_pid(&mut self, pid: Pid) -> Option<&mut Exec> {
        self.execs.values_mut().find(|exec| exec.pid == pid && exec.is_running())
    }

    pub fn execs(&mut self) -> impl Iterator<Item = &mut Exec> {
        self.execs.values_mut()
    }

    /// The first processes of the running commands.
    pub fn roots(&self) -> Vec<i32> {
        let running = self.execs.values().filter(|exec| exec.is_running());
        running.map(|exec| exec.pid.as_raw_nonzero().get()).collect()
    }
}
