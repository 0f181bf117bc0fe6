//! Detached commands, which outlive the link they were started on.
//!
//! ```text
//! Keep ──> Started, then as Exec
//!      └─> Refused
//! Take ──> Taken, then the unacknowledged output again, then as Exec     (on a later link)
//!      └─> Refused(UnknownOp): there is no such command; Refused(Failed): the output from there on is not buffered
//! Forget ──> no answer; releases an ended command, and makes a running one an ordinary command
//! ```
//!
//! Both output channels have a window of [`KEPT_WINDOW`]. A `Credit` for them also acknowledges: the host has stored that many bytes
//! more. The agent buffers what is sent and not acknowledged, which
//! is never more than the window. With `Take` a new link says which positions it has reached, so nothing is lost or repeated. `Forget` acknowledges the
//! end; until then the agent reports it to each new link.

use serde::{Deserialize, Serialize};

/// Window of each channel of a detached command, and most bytes that the agent buffers of it.
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
    /// `None` if one of the two is not from 1 to [`MAX_CELLS`].
    pub fn new(columns: u16, rows: u16) -> Option<Self> {
        Some(Self { columns, rows }).filter(|size| size.fits())
    }

    pub(crate) fn fits(self) -> bool {
        [self.columns, self.rows].into_iter().all(|cells| (1..=MAX_CELLS).contains(&cells))
    }
}
