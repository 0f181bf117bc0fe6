//! Accounting of credits for back-pressure: [`Credits`] for the sender, [`Window`] for the receiver.
//!
//! Both fail only if the other side violates the protocol.

use crate::{MAX_WINDOW, ProtoError};

/// The bytes that a sender may still send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Credits {
    left: u32,
}

impl Credits {
    /// Starts with a first grant.
    pub fn new(window: u32) -> Self {
        Self { left: window }
    }

    /// Bytes that may be sent now.
    pub fn left(self) -> usize {
        self.left as usize
    }

    /// Adds a grant of the other side.
    ///
    /// # Errors
    /// [`ProtoError::Credit`] if more than [`MAX_WINDOW`] would be open.
    pub fn grant(&mut self, bytes: u32) -> Result<(), ProtoError> {
        match self.left.checked_add(bytes) {
            Some(left) if left <= MAX_WINDOW => {
                self.left = left;
                Ok(())
            }
            _ => Err(ProtoError::Credit {
                what: "a grant",
                got: bytes as usize,
                allowed: (MAX_WINDOW - self.left) as usize,
            }),
        }
    }

    /// Subtracts sent bytes, saturating at 0.
    pub fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Voids all grants, for a new link.
    pub fn reset(&mut self) {
        self.left = 0;
    }
}

/// The grants of a receiver, and when to grant more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    size: u32,
    /// Granted and not yet received.
    open: u32,
    /// Consumed by the reader and not yet granted again.
    owed: u32,
}

impl Window {
    /// A window whose whole `size` was granted at the start.
    pub fn new(size: u32) -> Self {
        let size = size.min(MAX_WINDOW);
        Self { size, open: size, owed: 0 }
    }

    /// A window without grants, of which `held` bytes are still unread: for an operation that
    /// a new link takes over. [`Window::due`] gives its first grant.
    pub fn closed(size: u32, held: usize) -> Self {
        let size = size.min(MAX_WINDOW);
        let held = u32::try_from(held).unwrap_or(u32::MAX);
        Self { size, open: 0, owed: size.saturating_sub(held) }
    }

    /// Counts received bytes.
    ///
    /// # Errors
    /// [`ProtoError::Credit`] if they are more than was granted.
    pub fn received(&mut self, bytes: usize) -> Result<(), ProtoError> {
        match u32::try_from(bytes).ok().and_then(|n| self.open.checked_sub(n)) {
            Some(open) => {
                self.open = open;
                Ok(())
            }
            None => Err(ProtoError::Credit { what: "data", got: bytes, allowed: self.open as usize }),
        }
    }

    /// Counts bytes that the reader has consumed.
    pub fn consumed(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.owed = self.owed.saturating_add(bytes).min(self.size - self.open);
    }

    /// The grant to send now: once half the window is consumed. It counts as granted.
    pub fn due(&mut self) -> Option<u32> {
        if self.owed == 0 || self.owed < self.size / 2 {
            return None;
        }
        let grant = self.owed;
        self.owed = 0;
        self.open += grant;
        Some(grant)
    }
}

#[cfg(test)]
mod tests;
