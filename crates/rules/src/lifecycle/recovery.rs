//! Recovery: how the host and the record of a sandbox are made to agree after a daemon has ended.
//!
//! | Recorded | Found running | Found frozen | Found stored | Found none |
//! |---|---|---|---|---|
//! | running | adopted | thawed: the pause was not committed | hibernated: that was not committed | recorded as lost |
//! | frozen | frozen: the resume was not committed | adopted | hibernated: that was not committed | recorded as lost |
//! | stored | frozen, and recorded so: the resume was not committed | recorded as frozen | adopted | adopted: its resume says what is missing |
//! | ended | ended: their start was not committed | ended | discarded: that was committed before | adopted |
//!
//! The engine's recovery calls [`reconcile`] for each recorded sandbox, acts on the host, and commits the record.

use crate::ProcessState;

/// What is done with the processes on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostRepair {
    Nothing,
    Freeze,
    Thaw,
    /// Ends what runs, and removes what a container has left. Stored processes stay.
    Stop,
    /// Removes what a container has left, if anything.
    RemoveRemains,
}

/// What is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordRepair {
    Nothing,
    /// The processes have ended.
    Lost,
    /// The processes are stored.
    Hibernated,
    /// The stored processes are in memory again, frozen.
    Woken,
}

/// How host and record come to agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reconciliation {
    pub host: HostRepair,
    pub record: RecordRepair,
}

/// The table. The record decides, but processes that are lost or stored stay so.
pub fn reconcile(recorded: ProcessState, found: ProcessState) -> Reconciliation {
    use ProcessState::{Ended, Frozen, Running, Stored};
    let (host, record) = match (recorded, found) {
        (Running, Running) | (Frozen, Frozen) => (HostRepair::Nothing, RecordRepair::Nothing),
        (Running, Frozen) => (HostRepair::Thaw, RecordRepair::Nothing),
        (Frozen, Running) => (HostRepair::Freeze, RecordRepair::Nothing),
        (Running | Frozen, Stored) => (HostRepair::Stop, RecordRepair::Hibernated),
        (Running | Frozen, Ended) => (HostRepair::Stop, RecordRepair::Lost),
        (Stored, Running) => (HostRepair::Freeze, RecordRepair::Woken),
        (Stored, Frozen) => (HostRepair::Nothing, RecordRepair::Woken),
        (Stored, Stored) => (HostRepair::RemoveRemains, RecordRepair::Nothing),
        (Stored, Ended) | (Ended, Running | Frozen | Stored | Ended) => {
            (HostRepair::Stop, RecordRepair::Nothing)
        }
    };
    Reconciliation { host, record }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [ProcessState; 4] =
        [ProcessState::Running, ProcessState::Frozen, ProcessState::Stored, ProcessState::Ended];

    /// The host after a repair.
    fn repaired(found: ProcessState, repair: HostRepair) -> ProcessState {
        match (repair, found) {
            (HostRepair::Freeze, _) => ProcessState::Frozen,
            (HostRepair::Thaw, _) => ProcessState::Running,
            (HostRepair::Stop, ProcessState::Running | ProcessState::Frozen) => ProcessState::Ended,
            (HostRepair::Nothing | HostRepair::RemoveRemains | HostRepair::Stop, found) => found,
        }
    }

    /// The record after a repair.
    fn recorded_as(recorded: ProcessState, repair: RecordRepair) -> ProcessState {
        match repair {
            RecordRepair::Nothing => recorded,
            RecordRepair::Lost => ProcessState::Ended,
            RecordRepair::Hibernated => ProcessState::Stored,
            RecordRepair::Woken => ProcessState::Frozen,
        }
    }

    #[test]
    fn the_whole_table() {
        // Rows: recorded, columns: found, both in the order of ALL. The host, then the record; `.` is nothing.
        let rows = ["..t.shsl", "f...shsl", "fw.wr.s.", "s.s.s.s."];
        for (recorded, row) in ALL.into_iter().zip(rows) {
            for (column, found) in ALL.into_iter().enumerate() {
                let Reconciliation { host, record } = reconcile(recorded, found);
                let host = match host {
                    HostRepair::Nothing => '.',
                    HostRepair::Freeze => 'f',
                    HostRepair::Thaw => 't',
                    HostRepair::Stop => 's',
                    HostRepair::RemoveRemains => 'r',
                };
                let record = match record {
                    RecordRepair::Nothing => '.',
                    RecordRepair::Lost => 'l',
                    RecordRepair::Hibernated => 'h',
                    RecordRepair::Woken => 'w',
                };
                assert_eq!(
                    format!("{host}{record}"),
                    row[2 * column..2 * column + 2],
                    "{recorded:?} {found:?}"
                );
            }
        }
    }

    #[test]
    fn host_and_record_agree_afterwards() {
        for recorded in ALL {
            for found in ALL {
                let Reconciliation { host, record } = reconcile(recorded, found);
                let (now, host) = (recorded_as(recorded, record), repaired(found, host));
                let agrees = match (now, host) {
                    // The resume of the sandbox reports that they are missing.
                    (ProcessState::Stored, ProcessState::Ended) => recorded == ProcessState::Stored,
                    // The recovery discards stored processes that the record does not have.
                    (ProcessState::Ended, ProcessState::Stored) => true,
                    (now, host) => now == host,
                };
                assert!(agrees, "{recorded:?} {found:?}: recorded as {now:?}, {host:?} on the host");
                // A recovery that is interrupted before its end is repeated: the record does not change again.
                assert_eq!(reconcile(now, host).record, RecordRepair::Nothing);
            }
        }
    }
}
