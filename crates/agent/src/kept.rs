//! What was sent of a kept command's output and not acknowledged. `exec` puts in what goes out, and takes out what the host has.
//!
//! Never more than the window of the channel: nothing is sent without a grant, and each grant but the first acknowledges as
//! many bytes.

use std::collections::VecDeque;

use guest_proto::ProtoError;

/// One channel's.
#[derive(Default)]
pub struct Kept {
    bytes: VecDeque<u8>,
    /// Bytes of the channel before the first that is kept.
    start: u64,
}

impl Kept {
    /// What goes out now.
    pub fn sent(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// The host has so many bytes more.
    pub fn acknowledged(&mut self, bytes: u32) -> Result<(), ProtoError> {
        let bytes = bytes as usize;
        if bytes > self.bytes.len() {
            let allowed = self.bytes.len();
            return Err(ProtoError::Credit { what: "an acknowledgement", got: bytes, allowed });
        }
        self.drop_first(bytes);
        Ok(())
    }

    /// The host has so many bytes in all. False if what follows them is not here.
    pub fn goes_on_at(&mut self, position: u64) -> bool {
        let Some(had) = position.checked_sub(self.start).and_then(|had| usize::try_from(had).ok()) else {
            return false;
        };
        if had > self.bytes.len() {
            return false;
        }
        self.drop_first(had);
        true
    }

    /// All of it, in pieces.
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
            // An idle agent holds no memory for it.
            self.bytes = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(kept: &Kept) -> Vec<u8> {
        kept.pieces().concat()
    }

    #[test]
    fn what_is_acknowledged_goes_and_the_rest_comes_again() {
        let mut kept = Kept::default();
        kept.sent(b"abcdef");
        kept.acknowledged(2).unwrap();
        assert_eq!(all(&kept), b"cdef");
        assert!(kept.goes_on_at(3) && all(&kept) == b"def");
        assert!(kept.goes_on_at(3) && kept.len() == 3);
        kept.sent(b"g");
        assert!(kept.goes_on_at(7) && kept.len() == 0);
    }

    #[test]
    fn a_place_that_is_gone_or_still_to_come_is_none() {
        let mut kept = Kept::default();
        kept.sent(b"abc");
        kept.acknowledged(1).unwrap();
        for position in [0, 4, u64::MAX] {
            assert!(!kept.goes_on_at(position), "{position}");
        }
        assert!(matches!(kept.acknowledged(3), Err(ProtoError::Credit { allowed: 2, .. })));
        assert_eq!(all(&kept), b"bc");
    }
}
