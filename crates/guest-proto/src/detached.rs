//! Detached commands, which outlive the link they were started on.
//!
//! ```text
//! StartDetached ──> Started, then as Exec
//!               └─> Refused
//! Attach        ──> Attached, then the unacknowledged output again, then as Exec     (on a later link)
//!               ├─> Refused(UnknownOp): there is no such command
//!               └─> Refused(Failed): the output from these positions on is not buffered
//! Release       ──> no answer; removes an ended command, and makes a running one an ordinary command
//! ```
//!
//! Both output channels have a window of [`DETACHED_WINDOW`]. A `Credit` for them is also an acknowledgement: the
//! host has stored that many more bytes. The agent buffers the sent and unacknowledged output, which is at most the
//! window. `Attach` names the positions up to which the host has output, so no byte is lost or repeated. `Release`
//! acknowledges the end; until then the agent reports the end to each new link.

use serde::{Deserialize, Serialize};

/// Window of each channel of a detached command, and the limit of its unacknowledged output that the agent buffers.
pub const DETACHED_WINDOW: u32 = 64 * 1024;

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
