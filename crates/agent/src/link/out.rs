//! Send buffer of the link. Output of commands is read directly into it, behind the header of its frame.
//!
//! Bounded: callers check [`OutBuf::is_full`] first, so it holds at most [`HIGH`] bytes and one more frame.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use guest_proto::{Channel, MAX_DATA, ToHost, host_data_header};
use rustix::io::Errno;

/// Above this size nothing is added until some is sent.
pub const HIGH: usize = 256 * 1024;
/// Capacity for the bound, a frame of data, and small frames in between.
const LARGE: usize = HIGH + MAX_DATA + 64 * 1024;
const SMALL: usize = 4 * 1024;

/// The send buffer.
#[derive(Default)]
pub struct OutBuf {
    bytes: Vec<u8>,
    head: usize,
    sent: u64,
    /// Stream position from which on nothing is sent.
    held_at: Option<u64>,
}

impl OutBuf {
    /// Whether nothing is left to send.
    pub fn is_empty(&self) -> bool {
        self.head == self.bytes.len()
    }

    /// Whether it holds more than one turn may add to.
    pub fn is_full(&self) -> bool {
        self.bytes.len() - self.head > HIGH
    }

    /// Whether requests may be read. While everything is held back, the next one releases or clears the buffer.
    pub fn takes_answers(&self) -> bool {
        self.is_held() || !self.is_full()
    }

    /// Bytes sent so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Stream position after the last buffered byte.
    pub fn end(&self) -> u64 {
        self.sent + (self.bytes.len() - self.head) as u64
    }

    /// Adds a message. An invalid message is dropped in release builds; it is a bug of the agent.
    pub fn message(&mut self, message: &ToHost<'_>) {
        let put = guest_proto::encode_to_host(message, &mut self.bytes);
        debug_assert!(put.is_ok(), "{put:?}");
    }

    /// Adds raw bytes.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Reads at most `want` bytes from `from` into a data frame. At 0 bytes or an error nothing is added.
    pub fn data(&mut self, op: u64, channel: Channel, want: usize, from: impl AsFd) -> Result<usize, Errno> {
        let want = want.min(MAX_DATA);
        let room = host_data_header(op, channel, want).as_slice().len();
        self.make_room(room + want);
        let start = self.bytes.len();
        let spare = &mut self.bytes.spare_capacity_mut()[..room + want];
        let (got, _) = rustix::io::read(from, &mut spare[room..])?;
        let n = got.len();
        if n == 0 {
            return Ok(0);
        }
        let header = host_data_header(op, channel, n);
        let header = header.as_slice();
        if header.len() < room {
            // Fewer bytes came and their length has a shorter encoding: move at most 16 KiB by one or two bytes.
            spare.copy_within(room..room + n, header.len());
        }
        for (to, byte) in spare.iter_mut().zip(header) {
            *to = MaybeUninit::new(*byte);
        }
        let end = start + header.len() + n;
        // SAFETY: the bytes from `start` on are initialised: the header by the loop, the payload by the kernel, which
        // wrote `n` bytes, and which was moved behind the header. `end` is within the capacity.
        #[expect(unsafe_code, reason = "saves zeroing what the kernel overwrites")]
        unsafe {
            self.bytes.set_len(end);
        }
        Ok(n)
    }

    /// The last added bytes.
    pub fn last(&self, n: usize) -> &[u8] {
        &self.bytes[self.bytes.len() - n..]
    }

    /// Adds bytes as data frames.
    pub fn data_of(&mut self, op: u64, channel: Channel, bytes: &[u8]) {
        for piece in bytes.chunks(MAX_DATA) {
            self.raw(host_data_header(op, channel, piece.len()).as_slice());
            self.raw(piece);
        }
    }

    /// Holds back what is added from now on, until [`OutBuf::release`] or [`OutBuf::clear`].
    pub fn hold(&mut self) {
        self.held_at = Some(self.end());
    }

    /// Sends what was held back.
    pub fn release(&mut self) {
        self.held_at = None;
    }

    /// Whether new data is held back.
    pub fn is_held(&self) -> bool {
        self.held_at.is_some()
    }

    /// Bytes that may be sent now.
    pub fn sendable(&self) -> usize {
        let end = self.held_at.unwrap_or_else(|| self.end());
        usize::try_from(end.saturating_sub(self.sent)).unwrap_or(usize::MAX)
    }

    /// Writes once. Returns the number of bytes written.
    pub fn write(&mut self, to: impl AsFd) -> Result<usize, Errno> {
        let n = rustix::io::write(to, &self.bytes[self.head..self.head + self.sendable()])?;
        self.head += n;
        self.sent += n as u64;
        if self.is_empty() {
            self.bytes.clear();
            self.head = 0;
        }
        Ok(n)
    }

    /// Drops what was not sent.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.head = 0;
        self.held_at = None;
    }

    /// Whether it holds memory that an idle agent should not hold.
    pub fn is_large(&self) -> bool {
        self.bytes.capacity() > 2 * SMALL
    }

    /// Frees the memory.
    pub fn shrink(&mut self) {
        if self.is_empty() {
            self.bytes = Vec::new();
        }
    }

    fn make_room(&mut self, want: usize) {
        if self.bytes.capacity() - self.bytes.len() >= want {
            return;
        }
        self.bytes.drain(..self.head);
        self.head = 0;
        let len = self.bytes.len();
        if self.bytes.capacity() - len < want {
            // One large reservation instead of doubling: the kernel allocates pages only when they are used.
            self.bytes.reserve_exact(want.max(LARGE.saturating_sub(len)));
        }
    }
}
