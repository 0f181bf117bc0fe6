//! The frames between the host and the agent of a sandbox, and their codec. No I/O: both sides bring their own stream.
//!
//! A frame is a little-endian `u32` length and that many bytes of body; a body is one [`ToGuest`] or [`ToHost`] in
//! the `postcard` encoding. Decoding borrows from the caller's buffer. For any input, decoding returns a value within
//! the bounds below or a [`ProtoError`]. It does not panic, and it allocates only for elements that are present, at
//! most [`MAX_ARGS`] and [`MAX_ENV`] of them.
//!
//! The enums are append-only: a new variant is added at the end and raises [`VERSION`]; a side sends only variants of
//! the agreed version.
//!
//! # Message sequence
//! The host sends `Hello`; the agent answers `Welcome`, or `Bye` and closes. Then the host starts operations under
//! numbers that it chooses:
//!
//! ```text
//! Setup ──> Done | Refused
//! Exec  ──> Started, then Data, Eof (stdout, stderr) and Credit (stdin) in any order, last Exited
//!       └─> Refused
//! Dial  ──> Opened, then Data, Eof, Credit; ends when both sides sent Eof, or at Close
//!       └─> Refused (after Opened: the connection broke)
//! File  ──> Started, then as a command; output and upload have formats of their own: see [`FileReply`]
//!       └─> Refused
//! StartDetached, Attach ──> a detached command: see [`DETACHED_WINDOW`]
//! ExecAs, StartDetachedAs, FileAs ──> as without a user; Refused(UserMissing) if there is no such user
//! Adopt ──> Done | Refused
//! Kill  ──> ends in the Exited of its operation; Refused(UnknownOp) if there is none
//! ```
//!
//! A frame for an operation that the receiver no longer has is ignored, because frames may cross; only `Kill` is
//! answered. `Exited` ends every channel without an `Eof`.
//!
//! # Suspension
//! `Suspend` and `Suspended` are the last messages of the two sides on a stream: each has received everything that the other has sent.
//! What either has to send later waits for the next stream. If that begins with `Continue`, all operations go on there; if it begins
//! with `Hello`, the suspended link is lost. While a link is suspended the processes can be stored.
//!
//! Back-pressure is counted in bytes per operation and channel. Each side may send only what the other granted: at
//! the start (`window`) and by `Credit`. Sending more is a violation that ends the link. [`Credits`] counts for the
//! sender, [`Window`] for the receiver.

mod attributes;
mod codec;
mod detached;
mod error;
mod files;
mod flow;
mod lists;
mod to_guest;
mod to_host;
mod users;
mod validate;
mod version;

pub use attributes::{AttributePrefix, Attributes, WatchEventKind};
pub use codec::{
    DataHeader, decode_to_guest, decode_to_host, encode_to_guest, encode_to_host, guest_data_header,
    host_data_header, split,
};
pub use detached::{DETACHED_WINDOW, MAX_CELLS, TerminalSize};
pub use error::ProtoError;
pub use files::{
    FileDetails, FileErrorKind, FileKind, FileReply, FileRequest, FileStat, LAST_PIECE, LinkTarget,
    MAX_ENTRIES, MAX_NAME, MAX_PIECE, MAX_REPLY, MODE_BITS, Tally, decode_reply, encode_reply, piece_header,
    split_reply,
};
pub use flow::{Credits, Window};
pub use to_guest::{ExecSpec, StdinMode, ToGuest};
pub use to_host::{Exit, RefusalKind, ToHost};
pub use users::{MAX_USER, NewPrivileges, RunAs};
pub use version::{
    DETACHED_SINCE, FILES_SINCE, MIN_VERSION, SUSPEND_SINCE, SYNC_SINCE, USERS_SINCE, VERSION, negotiate,
};

use serde::{Deserialize, Serialize};

/// Bytes of the length before every body.
pub const PREFIX: usize = 4;
/// Most bytes in the body of a frame.
pub const MAX_FRAME: usize = 1024 * 1024;
/// Most payload bytes in a `Data` frame.
pub const MAX_DATA: usize = 256 * 1024;
/// Most bytes in flight on a channel.
pub const MAX_WINDOW: u32 = 64 * 1024 * 1024;
/// Most file operations at a time in a sandbox, without watches.
pub const MAX_FILE_OPS: usize = 16;
/// Most watches of directories at a time in a sandbox.
pub const MAX_WATCHES: usize = 32;
/// Most connections of the host to ports in a sandbox at a time.
pub const MAX_DIALS: usize = 1024;
/// Most arguments of a command, its name included.
pub const MAX_ARGS: usize = 4096;
/// Most environment variables of a command.
pub const MAX_ENV: usize = 4096;
/// Most bytes in one argument, and in one `NAME=value`; the kernel takes no more (`MAX_ARG_STRLEN`).
pub const MAX_STRING: usize = 128 * 1024 - 1;
/// Most bytes in a path.
pub const MAX_PATH: usize = 4095;
/// Most directories in one `Setup`.
pub const MAX_DIRS: usize = 64;
/// Most operations that a `Welcome` lists.
pub const MAX_OPS: usize = 1024;
/// Most bytes in a host name; the kernel's limit.
pub const MAX_HOST_NAME: usize = 64;
/// Most bytes in a message, a reason or an agent's version.
pub const MAX_MESSAGE: usize = 4096;
/// Most extended attributes of a file in one message.
pub const MAX_ATTRIBUTES: usize = 128;
/// Most bytes in the names and values of one list of extended attributes.
pub const MAX_ATTRIBUTE_BYTES: usize = 8 * 1024;
/// Most bytes in the name of an attribute, and in a prefix; the kernel's limit.
pub const MAX_ATTRIBUTE_NAME: usize = 255;
/// Length of the token that an agent which connects to the host sends before its first frame.
pub const TOKEN_LEN: usize = 32;

/// One of the two output streams of a command. A dialled socket has only [`Channel::Stdout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Channel {
    Stdout,
    Stderr,
}
