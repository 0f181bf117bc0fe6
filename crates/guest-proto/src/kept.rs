//! Commands that outlive the link they were started on: what the two sides say of them, and what the agent keeps.
//!
//! ```text
//! Keep ──> Started, then as Exec
//!      └─> Refused
//! Take ──> Taken, then what was not yet acknowledged again, then as Exec     (on a later link)
//!      └─> Refused(UnknownOp): there is no such command; Refused(Failed): that place in its output is gone
//! Forget ──> nothing; a command that has ended is forgotten, one that runs is from now on as any other
//! ```
//!
//! Both output channels have a window of [`KEPT_WINDOW`], and a `Credit` does more for them than grant: it says that so many bytes
//! more, counted from the beginning, are where the host wants them. The agent keeps what it sent and was not told so of, which
//! is never more than the window. A new link says how far it has come with `Take`, and nothing is lost or comes twice. Of the end the
//! agent is told by `Forget`; until then it tells it to each new link.

use serde::{Deserialize, Serialize};

/// Bytes of each channel that may be on their way, and that the agent keeps.
pub const KEPT_WINDOW: u32 = 64 * 1024;

/// Most columns, and most rows, of a terminal.
pub const MAX_CELLS: u16 = 1000;

/// A terminal's size in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub columns: u16,
    pub rows: u16,
}

impl TerminalSize {
    /// `None` where one of the two is not from 1 to [`MAX_CELLS`].
    pub fn new(columns: u16, rows: u16) -> Option<Self> {
        Some(Self { columns, rows }).filter(|size| size.fits())
    }

    pub(crate) fn fits(self) -> bool {
        [self.columns, self.rows].into_iter().all(|cells| (1..=MAX_CELLS).contains(&cells))
    }
}
