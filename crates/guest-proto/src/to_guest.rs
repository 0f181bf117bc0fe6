//! Frames from the host to the agent. Append-only: see the crate's page.

use serde::{Deserialize, Serialize};

use crate::{Channel, FileRequest, TerminalSize, lists};

/// What the host asks of the agent. `op` is a number of the host's choice, not in use by a living operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGuest<'a> {
    /// First on every link: the versions the host speaks.
    Hello { version: u16, min_version: u16 },
    /// Make these directories and those above them. Answered by `Done` or `Refused`.
    Setup {
        op: u64,
        #[serde(borrow, deserialize_with = "lists::dirs")]
        dirs: Vec<&'a str>,
    },
    /// Start a command. `window` is the first grant for each of its two output channels.
    Exec {
        op: u64,
        #[serde(borrow)]
        spec: ExecSpec<'a>,
        window: u32,
    },
    /// Connect to a TCP port of the sandbox's loopback. `window` is the first grant for what comes from it.
    Dial { op: u64, port: u16, window: u32 },
    /// Bytes for a command's stdin or a dialled socket.
    Data {
        op: u64,
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        bytes: &'a [u8],
    },
    /// No more bytes will come for this stdin or socket.
    Eof { op: u64 },
    /// The agent may send this many bytes more.
    Credit { op: u64, channel: Channel, bytes: u32 },
    /// End a command with all that it started, by SIGKILL.
    Kill { op: u64 },
    /// Send a signal to the command's process group.
    Signal { op: u64, signal: i32 },
    /// Drop a dialled connection; or read and throw away what a command still prints.
    Close { op: u64 },
    /// Ask for a `Pong`.
    Ping { nonce: u64 },
    /// Run an errand among files. `window` is the first grant for its output. Since version 2.
    File {
        op: u64,
        #[serde(borrow)]
        request: FileRequest<'a>,
        window: u32,
    },
    /// Start a command that outlives the link, on a terminal if it has a size. Since version 2, as what follows.
    Keep {
        op: u64,
        #[serde(borrow)]
        spec: ExecSpec<'a>,
        terminal: Option<TerminalSize>,
    },
    /// Go on with a kept command; the host has so many bytes of each channel.
    Take { op: u64, stdout: u64, stderr: u64 },
    /// The terminal has another size.
    Resize { op: u64, size: TerminalSize },
    /// Nobody wants to hear of this kept command any more.
    Forget { op: u64 },
}

/// A command to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecSpec<'a> {
    /// Program and arguments; a program without a slash is looked up in the `PATH` of `env`.
    #[serde(borrow, deserialize_with = "lists::args")]
    pub argv: Vec<&'a str>,
    /// The whole environment, names and values.
    #[serde(borrow, deserialize_with = "lists::env")]
    pub env: Vec<(&'a str, &'a str)>,
    /// Working directory, absolute.
    pub cwd: &'a str,
    pub stdin: StdinMode,
}

/// What a command reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StdinMode {
    /// Nothing: `/dev/null`.
    Null,
    /// A pipe, fed by `Data` and closed by `Eof`.
    Pipe,
}
