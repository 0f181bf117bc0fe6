//! The replay buffer: output of a detached command that was sent and is not acknowledged, for a later link. Used by
//! `exec`.
//!
//! Never larger than the window of the channel: nothing is sent without a grant, and each grant but the first acknowledges as
//! many bytes.

use std::collections::VecDeque;

use guest_proto::ProtoError;

/// The unacknowledged output of one channel.
#[derive(Default)]
pub struct ReplayBuffer {
    bytes: VecDeque<u8>,
    /// Position of the first byte in the channel.
    start: u64,
}

impl ReplayBuffer {
    /// Adds bytes that are sent now.
    pub fn sent(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// The host has received this many bytes more.
    pub fn acknowledged(&mut self, bytes: u32) -> Result<(), ProtoError> {
        let bytes = bytes as usize;
        if bytes > self.bytes.len() {
            let allowed = self.bytes.len();
            return Err(ProtoError::Credit { what: "an acknowledgement", got: bytes, allowed });
        }
        self.drop_first(bytes);
        Ok(())
    }

    /// The host has received this many bytes in all. False if the following ones are not buffered.
    pub fn resume_at(&mut self, position: u64) -> bool {
        let Some(skip) = position.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok()) else {
            return false;
        };
        if skip > self.bytes.len() {
            return false;
        }
        self.drop_first(skip);
        true
    }

    /// The buffered bytes, in two slices.
    pub fn pieces(&self) -> [&[u8]; 2] {
        let (first, second) = self.bytes.as_slices();
        [first, second]
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    fn drop_first(&mut self, bytes: usize) {
        self.bytes.drain(..bytes);
        self.start += bytes as u64;
        if self.bytes.is_empty() {
            // Free the memory while the command is idle.
            self.bytes = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(buffer: &ReplayBuffer) -> Vec<u8> {
        buffer.pieces().concat()
    }

    #[test]
    fn acknowledged_output_is_dropped_and_the_rest_replayed() {
        let mut buffer = ReplayBuffer::default();
        buffer.sent(b"abcdef");
        buffer.acknowledged(2).unwrap();
        assert_eq!(all(&buffer), b"cdef");
        assert!(buffer.resume_at(3) && all(&buffer) == b"def");
        assert!(buffer.resume_at(3) && buffer.len() == 3);
        buffer.sent(b"g");
        assert!(buffer.resume_at(7) && buffer.len() == 0);
    }

    #[test]
    fn a_position_outside_the_buffer_is_refused() {
        let mut buffer = ReplayBuffer::default();
        buffer.sent(b"abc");
        buffer.acknowledged(1).unwrap();
        for position in [0, 4, u64::MAX] {
            assert!(!buffer.resume_at(position), "{position}");
        }
        assert!(matches!(buffer.acknowledged(3), Err(ProtoError::Credit { allowed: 2, .. })));
        assert_eq!(all(&buffer), b"bc");
    }
}
