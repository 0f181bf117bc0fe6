//! Messages from the host to the agent. Append-only: see the crate documentation.

use serde::{Deserialize, Serialize};

use crate::{Channel, FileRequest, RunAs, TerminalSize, lists};

/// A message of the host. `op` is a number that the host chooses and that no current operation has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGuest<'a> {
    /// First message on every link: the versions that the host supports.
    Hello { version: u16, min_version: u16 },
    /// Create these directories and their parents. Answered by `Done` or `Refused`.
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
    /// Connect to a TCP port of the sandbox's loopback. `window` is the first grant for the bytes received from it.
    Dial { op: u64, port: u16, window: u32 },
    /// Bytes for a command's stdin or a dialled socket.
    Data {
        op: u64,
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        bytes: &'a [u8],
    },
    /// End of this stdin or socket.
    Eof { op: u64 },
    /// Grant the agent this many bytes more.
    Credit { op: u64, channel: Channel, bytes: u32 },
    /// End a command with all its descendants, by SIGKILL.
    Kill { op: u64 },
    /// Send a signal to the command's process group.
    Signal { op: u64, signal: i32 },
    /// Close a dialled connection; for a command, read and drop the rest of its output.
    Close { op: u64 },
    /// Ask for a `Pong`.
    Ping { nonce: u64 },
    /// Start a file operation. `window` is the first grant for its output. Since version 2.
    File {
        op: u64,
        #[serde(borrow)]
        request: FileRequest<'a>,
        window: u32,
    },
    /// Start a detached command, on a terminal if a size is given. Since version 2, like the following.
    StartDetached {
        op: u64,
        #[serde(borrow)]
        spec: ExecSpec<'a>,
        terminal: Option<TerminalSize>,
    },
    /// Attach to a detached command; the host has received this many bytes of each channel.
    Attach { op: u64, stdout: u64, stderr: u64 },
    /// Change the size of a terminal.
    Resize { op: u64, size: TerminalSize },
    /// Release a detached command.
    Release { op: u64 },
    /// As `Exec`, on behalf of a user. Since version 3, like the following. An empty `cwd` is the user's home, or `/`
    /// if the user cannot enter it; a relative one is below the home.
    ExecAs {
        op: u64,
        #[serde(borrow)]
        spec: ExecSpec<'a>,
        run_as: RunAs<'a>,
        window: u32,
    },
    /// As `StartDetached`, on behalf of a user; `cwd` as in `ExecAs`.
    StartDetachedAs {
        op: u64,
        #[serde(borrow)]
        spec: ExecSpec<'a>,
        run_as: RunAs<'a>,
        terminal: Option<TerminalSize>,
    },
    /// As `File`, on behalf of a user: relative paths, `~` and `~/…` are below the user's home, and the user owns what
    /// the operation creates. Permissions are those of root.
    FileAs {
        op: u64,
        user: &'a str,
        #[serde(borrow)]
        request: FileRequest<'a>,
        window: u32,
    },
    /// Last message on a stream whose link continues on another one. Answered by `Suspended`. Since version 5, like the following.
    Suspend,
    /// First message on a stream that continues a suspended link, instead of `Hello`. Not answered.
    Continue,
    /// The processes continue from a stored state, maybe as another sandbox: take this host name, and a new generation. Answered by
    /// `Done` or `Refused`.
    Adopt { op: u64, host_name: &'a str },
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
    /// Working directory, absolute except on behalf of a user.
    pub cwd: &'a str,
    pub stdin: StdinMode,
}

/// The stdin of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StdinMode {
    /// Nothing: `/dev/null`.
    Null,
    /// A pipe, written by `Data` and closed by `Eof`.
    Pipe,
}
