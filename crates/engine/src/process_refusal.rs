//! Why the sandbox did not start a process. Apart from `process`, because errors contain it.

use guest_proto::RefusalKind;

/// Why the sandbox did not start a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessRefusal {
    UnknownUser,
    CwdMissing,
    ProgramMissing,
    /// The user may not enter the working directory, or run the program.
    NotAllowed,
    TooMany,
    Other,
}

impl From<RefusalKind> for ProcessRefusal {
    fn from(kind: RefusalKind) -> Self {
        match kind {
            RefusalKind::UserMissing => Self::UnknownUser,
            RefusalKind::CwdMissing => Self::CwdMissing,
            RefusalKind::ProgramMissing => Self::ProgramMissing,
            RefusalKind::NotAllowed => Self::NotAllowed,
            RefusalKind::TooMany => Self::TooMany,
            RefusalKind::Connect | RefusalKind::UnknownOp | RefusalKind::Failed => Self::Other,
        }
    }
}
