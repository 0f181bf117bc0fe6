//! The link to a sandbox's agent: one connection, shared by all operations in the sandbox.
//!
//! One task reads and writes the connection and dispatches incoming frames to operations. Callers hold an [`Agent`] and start
//! a [`Command`] or a [`Tunnel`] on it. The agent is untrusted: a frame that violates the protocol ends the
//! link, and each operation buffers at most the window that it granted. The end of the link ends all its operations.

mod command;
mod detached_command;
pub mod error;
mod io;
mod op;
mod suspension;
mod tunnel;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::IgnorePoison;
use bytes::Bytes;
use driver::ByteStream;
use guest_proto::{
    DETACHED_SINCE, ExecSpec, FILES_SINCE, FileReply, FileRequest, MIN_VERSION, PREFIX, RefusalKind, RunAs,
    SUSPEND_SINCE, SYNC_SINCE, StdinMode, ToGuest, ToHost, USERS_SINCE, VERSION,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, mpsc, oneshot, watch};

pub use command::{Command, CommandEvent, Killer, Stdin};
pub use detached_command::{DetachedCommand, DetachedInput};
pub use error::LinkError;
use op::{FirstReply, Op};
pub use tunnel::Tunnel;

/// Receive window of each output channel of a command, in bytes.
const WINDOW: u32 = 256 * 1024;
/// Receive window of a tunnel. A sandbox may have hundreds of tunnels whose readers are stalled.
const TUNNEL_WINDOW: u32 = 64 * 1024;
/// Senders wait while more bytes than this are queued for the agent.
const BACKPRESSURE_BYTES: usize = 1024 * 1024;
/// Receive window of a file operation. The window limits the throughput; few file operations run at a time.
const FILE_WINDOW: u32 = 1024 * 1024;
/// The link ends if more bytes than this are queued: the agent has stopped reading. The windows of all file operations fit.
const MAX_UNSENT: usize = 16 * 1024 * 1024;

/// A handle to the link. Clones share one link, which ends when the last of them is dropped.
#[derive(Clone)]
pub struct Agent {
    inner: Arc<Inner>,
    _guard: Arc<LinkGuard>,
}

/// Ends the I/O task when it is dropped. Separate from [`Inner`], which the task itself holds.
struct LinkGuard(watch::Sender<bool>);

impl Drop for LinkGuard {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

/// A frame for the agent. The payload of an upload is apart, so that it is not copied.
struct OutgoingFrame {
    head: Vec<u8>,
    payload: Vec<Bytes>,
    /// The last one on its stream.
    is_last: bool,
}

impl OutgoingFrame {
    fn len(&self) -> usize {
        self.head.len() + self.payload.iter().map(Bytes::len).sum::<usize>()
    }
}

pub(crate) struct Inner {
    ops: Mutex<HashMap<u64, Arc<Op>>>,
    outgoing: mpsc::UnboundedSender<OutgoingFrame>,
    /// Bytes queued for the connection.
    unsent: AtomicUsize,
    /// Notified when queued bytes were written.
    drained: Notify,
    next_op: AtomicU64,
    /// The protocol version that both sides agreed on.
    version: u16,
    ended: watch::Sender<bool>,
    /// Gets the queue of frames when the link is suspended.
    suspending: Mutex<Option<oneshot::Sender<FrameQueue>>>,
}

type FrameQueue = mpsc::UnboundedReceiver<OutgoingFrame>;

impl Agent {
    /// Opens the link on a new stream. Kills the commands of earlier links that still run in the sandbox, because their callers
    /// are gone. Detached commands (`detached`) continue.
    pub async fn greet(
        mut stream: Box<dyn ByteStream>,
        first_op: u64,
        detached: &[u64],
        timeout: Duration,
    ) -> Result<Self, LinkError> {
        let greeting = tokio::time::timeout(timeout, exchange_hello(&mut stream));
        let (version, leftover) = greeting.await.map_err(|_| LinkError::Silent(timeout))??;
        let (outgoing, to_write) = mpsc::unbounded_channel();
        let (stop, stopped) = watch::channel(false);
        let inner = Arc::new(Inner {
            ops: Mutex::default(),
            outgoing,
            unsent: AtomicUsize::new(0),
            drained: Notify::new(),
            // Greater than the numbers of detached commands, even if the host's clock went back.
            next_op: AtomicU64::new(
                detached.iter().fold(first_op, |first, op| first.max(op.saturating_add(1))),
            ),
            version,
            ended: watch::channel(false).0,
            suspending: Mutex::default(),
        });
        io::spawn(stream, Arc::clone(&inner), to_write, stopped);
        for op in leftover.into_iter().filter(|op| !detached.contains(op)) {
            inner.send(&ToGuest::Kill { op })?;
            if version >= DETACHED_SINCE {
                inner.send(&ToGuest::Release { op })?;
            }
        }
        Ok(Self { inner, _guard: Arc::new(LinkGuard(stop)) })
    }

    /// Creates directories in the sandbox, with their parents.
    pub async fn make_dirs(&self, dirs: &[&str], timeout: Duration) -> Result<(), LinkError> {
        self.request(|op| ToGuest::Setup { op, dirs: dirs.to_vec() }, timeout).await
    }

    /// Sends a request that the agent answers with `Done`.
    async fn request<'a>(
        &self,
        request: impl FnOnce(u64) -> ToGuest<'a>,
        timeout: Duration,
    ) -> Result<(), LinkError> {
        let (number, op) = self.inner.begin(WINDOW);
        let waiting = Waiting { inner: &self.inner, number };
        self.inner.send(&request(number))?;
        let answer =
            tokio::time::timeout(timeout, op.answered()).await.map_err(|_| LinkError::Silent(timeout))?;
        drop(waiting);
        match answer? {
            FirstReply::Done => Ok(()),
            FirstReply::Refused { kind, message } => Err(LinkError::Refused { kind, message }),
            other => Err(LinkError::Unexpected { wanted: "done", got: other.name() }),
        }
    }

    /// Starts a command. Dropping the future or the command kills it.
    pub async fn exec(&self, spec: ExecSpec<'_>, run_as: Option<RunAs<'_>>) -> Result<Command, LinkError> {
        if run_as.is_some() {
            self.require_users()?;
        }
        let wants_stdin = spec.stdin == StdinMode::Pipe;
        let (number, op) = self.inner.begin(WINDOW);
        let command = Command::new(self.clone(), number, Arc::clone(&op), wants_stdin);
        self.inner.send(&match run_as {
            Some(run_as) => ToGuest::ExecAs { op: number, spec, run_as, window: WINDOW },
            None => ToGuest::Exec { op: number, spec, window: WINDOW },
        })?;
        command.started(op.answered().await?)
    }

    /// Starts a file operation. Dropping the future or the command aborts it.
    pub async fn file(&self, request: FileRequest<'_>, user: Option<&str>) -> Result<Command, LinkError> {
        if self.inner.version < FILES_SINCE {
            return Err(LinkError::TooOld);
        }
        if user.is_some() {
            self.require_users()?;
        }
        let (number, op) = self.inner.begin(FILE_WINDOW);
        let command = Command::new(self.clone(), number, Arc::clone(&op), true);
        self.inner.send(&match user {
            Some(user) => ToGuest::FileAs { op: number, user, request, window: FILE_WINDOW },
            None => ToGuest::File { op: number, request, window: FILE_WINDOW },
        })?;
        command.started(op.answered().await?)
    }

    /// Fails if the agent does not know users.
    fn require_users(&self) -> Result<(), LinkError> {
        if self.inner.version < USERS_SINCE { Err(LinkError::TooOld) } else { Ok(()) }
    }

    /// Runs a file operation that answers with [`guest_proto::FileReply::Done`].
    pub async fn run_file_op(
        &self,
        request: FileRequest<'_>,
        user: &str,
        timeout: Duration,
    ) -> Result<(), LinkError> {
        self.require_users()?;
        let (number, op) = self.inner.begin(FILE_WINDOW);
        // Not a file channel, whose timeout needs the status of a sandbox with a record.
        let command = Command::new(self.clone(), number, Arc::clone(&op), false);
        self.inner.send(&ToGuest::FileAs { op: number, user, request, window: FILE_WINDOW })?;
        let answer = tokio::time::timeout(timeout, op.answered()).await;
        let mut command = command.started(answer.map_err(|_| LinkError::Silent(timeout))??)?;
        let run = async {
            let mut output = Vec::new();
            loop {
                match command.next().await {
                    CommandEvent::Output(_, bytes) => output.extend_from_slice(&bytes),
                    CommandEvent::Exited { exit: guest_proto::Exit::Code(0), .. } => return Ok(()),
                    CommandEvent::Exited { .. } => return Err(refusal(&output)),
                    CommandEvent::Lost => return Err(LinkError::Closed),
                }
            }
        };
        tokio::time::timeout(timeout, run).await.map_err(|_| LinkError::Silent(timeout))?
    }

    /// Makes the sandbox take a host name, and a new generation, after its processes continued from a stored state. False if the
    /// agent is too old.
    pub async fn adopt(&self, host_name: &str, timeout: Duration) -> Result<bool, LinkError> {
        if self.inner.version < SUSPEND_SINCE {
            return Ok(false);
        }
        let adopt = |op| ToGuest::Adopt { op, host_name };
        self.request(adopt, timeout).await.map(|()| true)
    }

    /// Makes the sandbox's kernel write everything that it caches to the disk.
    pub async fn sync(&self, timeout: Duration) -> Result<(), LinkError> {
        if self.inner.version < SYNC_SINCE {
            return Err(LinkError::TooOld);
        }
        self.run_file_op(FileRequest::Sync, "root", timeout).await
    }

    /// Connects to a TCP port in the sandbox.
    pub async fn dial(&self, port: u16, timeout: Duration) -> Result<Tunnel, LinkError> {
        let (number, op) = self.inner.begin(TUNNEL_WINDOW);
        let tunnel = Tunnel::new(self.clone(), number, Arc::clone(&op));
        self.inner.send(&ToGuest::Dial { op: number, port, window: TUNNEL_WINDOW })?;
        match tokio::time::timeout(timeout, op.answered()).await.map_err(|_| LinkError::Silent(timeout))?? {
            FirstReply::Opened => Ok(tunnel),
            FirstReply::Refused { kind, message } => Err(LinkError::Refused { kind, message }),
            other => Err(LinkError::Unexpected { wanted: "opened", got: other.name() }),
        }
    }

    /// Whether both handles refer to the same link.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub fn is_closed(&self) -> bool {
        *self.inner.ended.borrow()
    }

    /// A receiver that turns true when the link has ended. Does not keep the link open.
    pub fn ended(&self) -> watch::Receiver<bool> {
        self.inner.ended.subscribe()
    }
}

/// The failure that a file operation reported.
fn refusal(output: &[u8]) -> LinkError {
    let body = guest_proto::split_reply(output).ok().flatten().map(|end| &output[guest_proto::PREFIX..end]);
    match body.map(guest_proto::decode_reply) {
        Some(Ok(FileReply::Failed { message, .. })) => {
            LinkError::Refused { kind: RefusalKind::Failed, message: message.to_owned() }
        }
        _ => LinkError::Unexpected { wanted: "the result of a file operation", got: "its end" },
    }
}

/// Takes the first `count` bytes.
fn split_off(parts: &mut VecDeque<Bytes>, mut count: usize) -> Vec<Bytes> {
    let mut taken = Vec::with_capacity(parts.len());
    while count > 0 {
        let Some(mut part) = parts.pop_front() else { break };
        if part.len() > count {
            parts.push_front(part.split_off(count));
        }
        count -= part.len();
        taken.push(part);
    }
    taken
}

/// Removes an operation without a handle from the table, also if its caller is cancelled.
struct Waiting<'a> {
    inner: &'a Inner,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.inner.forget(self.number);
    }
}

impl Inner {
    fn next_number(&self) -> u64 {
        self.next_op.fetch_add(1, Ordering::Relaxed)
    }

    fn begin(&self, window: u32) -> (u64, Arc<Op>) {
        let number = self.next_number();
        (number, self.begin_as(number, window))
    }

    fn begin_as(&self, number: u64, window: u32) -> Arc<Op> {
        let op = Arc::new(Op::new(window));
        self.table().insert(number, Arc::clone(&op));
        // The I/O task may have drained the table before this insertion; it will not end this operation.
        if *self.ended.borrow() {
            op.lose();
        }
        op
    }

    fn forget(&self, number: u64) {
        self.table().remove(&number);
    }

    fn find(&self, number: u64) -> Option<Arc<Op>> {
        self.table().get(&number).cloned()
    }

    fn table(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Op>>> {
        // A panic while the lock is held leaves a valid map.
        self.ops.lock().ignore_poison()
    }

    /// Queues a frame. The agent's credit bounds queued data; [`MAX_UNSENT`] bounds everything else.
    fn send(&self, frame: &ToGuest<'_>) -> Result<(), LinkError> {
        let mut bytes = Vec::with_capacity(64);
        guest_proto::encode_to_guest(frame, &mut bytes)?;
        self.queue(OutgoingFrame { head: bytes, payload: Vec::new(), is_last: false })
    }

    /// Sends bytes to an operation within its credit. Fails when the operation accepts no more.
    async fn send_data(&self, number: u64, op: &Op, mut bytes: &[u8]) -> Result<(), LinkError> {
        while !bytes.is_empty() {
            let Some(granted) = op.reserve(bytes.len().min(guest_proto::MAX_DATA)).await else {
                return Err(LinkError::Closed);
            };
            self.wait_until_drained().await;
            let (now, later) = bytes.split_at(granted);
            self.send(&ToGuest::Data { op: number, bytes: now })?;
            bytes = later;
        }
        Ok(())
    }

    /// Sends a part of an upload as pieces with their headers, within the operation's credit. Fails when the operation accepts no
    /// more.
    async fn send_pieces(&self, number: u64, op: &Op, mut parts: VecDeque<Bytes>) -> Result<(), LinkError> {
        loop {
            let left: usize = parts.iter().map(Bytes::len).sum();
            if left == 0 {
                return Ok(());
            }
            // Header and piece share one frame, because a frame of four bytes costs as much as a large one.
            let wanted = (PREFIX + left).min(guest_proto::MAX_DATA);
            let mut granted = 0;
            while granted <= PREFIX {
                granted += op.reserve(wanted - granted).await.ok_or(LinkError::Closed)?;
            }
            self.wait_until_drained().await;
            let piece = granted - PREFIX;
            let mut head = guest_proto::guest_data_header(number, granted).as_slice().to_vec();
            head.extend_from_slice(&guest_proto::piece_header(piece));
            self.queue(OutgoingFrame { head, payload: split_off(&mut parts, piece), is_last: false })?;
        }
    }

    /// Waits until few bytes are queued. Many operations with credit could fill the queue together.
    async fn wait_until_drained(&self) {
        loop {
            let mut drained = std::pin::pin!(self.drained.notified());
            // Registered before the check, so that no notification is missed.
            drained.as_mut().enable();
            if self.unsent.load(Ordering::Relaxed) <= BACKPRESSURE_BYTES || *self.ended.borrow() {
                return;
            }
            drained.await;
        }
    }

    fn queue(&self, frame: OutgoingFrame) -> Result<(), LinkError> {
        let unsent = self.unsent.fetch_add(frame.len(), Ordering::Relaxed);
        if unsent > MAX_UNSENT {
            self.end();
        }
        if *self.ended.borrow() {
            return Err(LinkError::Closed);
        }
        self.outgoing.send(frame).map_err(|_| LinkError::Closed)
    }

    /// Ends the link and all its operations.
    fn end(&self) {
        self.ended.send_replace(true);
        self.drained.notify_waiters();
        self.stop_suspending();
        for (_, op) in self.table().drain() {
            op.lose();
        }
    }
}

/// Exchanges the first frames. Returns the agreed version and the operations of earlier links that still run.
async fn exchange_hello(stream: &mut Box<dyn ByteStream>) -> Result<(u16, Vec<u64>), LinkError> {
    let mut hello = Vec::new();
    guest_proto::encode_to_guest(&ToGuest::Hello { version: VERSION, min_version: MIN_VERSION }, &mut hello)?;
    stream.write_all(&hello).await?;
    let mut frame = vec![0; guest_proto::PREFIX];
    stream.read_exact(&mut frame).await?;
    // Checks the length before the body is allocated.
    let body = match guest_proto::split(&frame)? {
        Some(_) => 0,
        None => u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize,
    };
    frame.resize(guest_proto::PREFIX + body, 0);
    stream.read_exact(&mut frame[guest_proto::PREFIX..]).await?;
    match guest_proto::decode_to_host(&frame[guest_proto::PREFIX..])? {
        ToHost::Welcome { version, ops, .. } if (MIN_VERSION..=VERSION).contains(&version) => {
            Ok((version, ops))
        }
        ToHost::Welcome { .. } => {
            Err(LinkError::Unexpected { wanted: "a known version", got: "an unknown version" })
        }
        _ => Err(LinkError::Unexpected { wanted: "welcome", got: "another frame" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_in_order_and_without_loss() {
        let whole: Vec<u8> = (0..100).collect();
        for size in 1..=whole.len() {
            let mut parts: VecDeque<Bytes> = whole.chunks(7).map(Bytes::copy_from_slice).collect();
            let mut taken = Vec::new();
            while !parts.is_empty() {
                let piece = split_off(&mut parts, size.min(whole.len() - taken.len())).concat();
                assert_eq!(piece.len(), size.min(whole.len() - taken.len()), "{size}");
                taken.extend(piece);
            }
            assert_eq!(taken, whole, "{size}");
        }
    }
}
