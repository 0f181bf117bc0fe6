//! Messages from the agent to the host. Append-only: see the crate documentation. The host treats them as hostile.

use serde::{Deserialize, Serialize};

use crate::{Channel, lists};

/// A message of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToHost<'a> {
    /// Answer to `Hello`: the agreed version, and the commands that are running or whose `Exited` was not sent yet.
    /// They have no credit until the host grants some; detached ones send nothing before `Attach`.
    Welcome {
        version: u16,
        agent_version: &'a str,
        #[serde(deserialize_with = "lists::ops")]
        ops: Vec<u64>,
    },
    /// The command runs. `window` is the grant for its stdin, 0 without one.
    Started { op: u64, pid: u32, window: u32 },
    /// Bytes that a command printed or a dialled socket sent.
    Data {
        op: u64,
        channel: Channel,
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        bytes: &'a [u8],
    },
    /// No more bytes will come on this channel.
    Eof { op: u64, channel: Channel },
    /// The host may send this many bytes more.
    Credit { op: u64, bytes: u32 },
    /// The command has ended, and all its output was sent. Last message of its operation.
    Exited { op: u64, exit: Exit, duration_us: u64 },
    /// The operation was not started, or its connection broke. Last message of its operation.
    Refused { op: u64, kind: RefusalKind, message: &'a str },
    /// The port is connected. `window` is the first grant for bytes to it.
    Opened { op: u64, window: u32 },
    /// The `Setup` is done.
    Done { op: u64 },
    /// Answer to `Ping`.
    Pong { nonce: u64 },
    /// The agent closes the link because the host broke the protocol.
    Bye { reason: &'a str },
    /// The link is attached to the detached command. `stdin` is the number of bytes of its input received so far, `window` the grant for more. Since version 2.
    Attached { op: u64, stdin: u64, window: u32 },
    /// Before `Attached`: the pid of the command. Since version 3.
    Running { op: u64, pid: u32 },
    /// Answer to `Suspend`, and the last message on its stream. Since version 5.
    Suspended,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

/// Why an operation was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalKind {
    /// The working directory does not exist.
    CwdMissing,
    /// The program does not exist.
    ProgramMissing,
    /// The kernel refused it.
    NotAllowed,
    /// A limit of the agent is reached.
    TooMany,
    /// The port does not answer, or the connection broke.
    Connect,
    /// There is no such operation.
    UnknownOp,
    /// Anything else; see the message.
    Failed,
    /// The sandbox has no such user. Since version 3.
    UserMissing,
}
