//! One connection to one agent, shared by everything that happens in its sandbox.
//!
//! One task carries the bytes both ways and hands each frame that comes in to its operation. Callers hold an [`Agent`] and get
//! a [`Command`] or a [`Tunnel`]. All that comes in is hostile: a frame that breaks the rules ends the link, and what an
//! operation may hold in memory is bounded by the window it granted. When the link ends every operation on it hears so.

mod command;
mod errand;
mod kept;
mod op;
mod tasks;
mod tunnel;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use driver::ByteStream;
use guest_proto::{
    ExecSpec, FILES_SINCE, FileRequest, KEPT_SINCE, MIN_VERSION, ProtoError, RefusalKind, StdinMode, ToGuest,
    ToHost, VERSION,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, mpsc, watch};

use crate::patience::Patience;
pub use command::{Command, CommandEvent, Killer, Stdin};
pub use errand::{Errand, Reply};
pub use kept::{Kept, KeptInput};
use op::{Answer, Op};
pub use tunnel::Tunnel;

/// Bytes of each output channel that may be under way to a reader.
const WINDOW: u32 = 256 * 1024;
/// The same of a connection. There may be hundreds, each with a reader that does not read.
const TUNNEL_WINDOW: u32 = 64 * 1024;
/// Past this whoever feeds an operation waits for what was fed before.
const CROWDED: usize = 1024 * 1024;
/// The same of an errand: a file is as fast as what is under way of it, and there are not many at a time.
const FILE_WINDOW: u32 = 1024 * 1024;
/// An agent that leaves so much unread is not serving us. All that it may be fed for errands fits in.
const MAX_UNSENT: usize = 16 * 1024 * 1024;

/// Why the agent could not be talked to.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("the link to the agent broke: {0}")]
    Io(#[from] std::io::Error),
    #[error("the agent broke the protocol: {0}")]
    Protocol(#[from] ProtoError),
    #[error("the agent said {got} where {wanted} was due")]
    Unexpected { wanted: &'static str, got: &'static str },
    #[error("the agent closed the link")]
    Closed,
    #[error("the agent is of a version that cannot do this")]
    TooOld,
    #[error("the agent did not answer within {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("the agent refused ({kind:?}): {message}")]
    Refused { kind: RefusalKind, message: String },
}

/// A handle on the link; clones are the same link, which ends when the last is dropped.
#[derive(Clone)]
pub struct Agent {
    inner: Arc<Inner>,
    _life: Arc<Life>,
}

/// Ends the tasks when nobody holds the link any more. Apart from [`Inner`], which the tasks themselves hold.
struct Life(watch::Sender<bool>);

impl Drop for Life {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

pub(crate) struct Inner {
    ops: Mutex<HashMap<u64, Arc<Op>>>,
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
    /// Bytes given to the writer and not yet written.
    unsent: AtomicUsize,
    /// Something of it was written.
    drained: Notify,
    next_op: AtomicU64,
    /// What both sides speak.
    version: u16,
    ended: watch::Sender<bool>,
}

impl Agent {
    /// Opens the link on a fresh stream. Operations of an earlier link that still run inside are ended, but those that are
    /// kept: whoever waited for the others went away with that link.
    pub async fn greet(
        mut stream: Box<dyn ByteStream>,
        first_op: u64,
        kept: &[u64],
        patience: Duration,
    ) -> Result<Self, LinkError> {
        let greeting = tokio::time::timeout(patience, exchange_hello(&mut stream));
        let (version, leftover) = greeting.await.map_err(|_| LinkError::Silent(patience))??;
        let (outgoing, to_write) = mpsc::unbounded_channel();
        let (stop, stopped) = watch::channel(false);
        let inner = Arc::new(Inner {
            ops: Mutex::default(),
            outgoing,
            unsent: AtomicUsize::new(0),
            drained: Notify::new(),
            // Also above those that live on, where the host's clock went back.
            next_op: AtomicU64::new(kept.iter().fold(first_op, |first, op| first.max(op.saturating_add(1)))),
            version,
            ended: watch::channel(false).0,
        });
        tasks::spawn(stream, Arc::clone(&inner), to_write, stopped);
        for op in leftover.into_iter().filter(|op| !kept.contains(op)) {
            inner.send(&ToGuest::Kill { op })?;
            if version >= KEPT_SINCE {
                inner.send(&ToGuest::Forget { op })?;
            }
        }
        Ok(Self { inner, _life: Arc::new(Life(stop)) })
    }

    /// Makes directories inside, parents included.
    pub async fn make_dirs(&self, dirs: &[&str], patience: Duration) -> Result<(), LinkError> {
        let (number, op) = self.inner.begin(WINDOW);
        let waiting = Waiting { inner: &self.inner, number };
        self.inner.send(&ToGuest::Setup { op: number, dirs: dirs.to_vec() })?;
        let answer =
            tokio::time::timeout(patience, op.answered()).await.map_err(|_| LinkError::Silent(patience))?;
        drop(waiting);
        match answer? {
            Answer::Done => Ok(()),
            Answer::Refused { kind, message } => Err(LinkError::Refused { kind, message }),
            other => Err(LinkError::Unexpected { wanted: "done", got: other.name() }),
        }
    }

    /// Starts a command. Dropping the future, or the command, kills it.
    pub async fn exec(&self, spec: ExecSpec<'_>, patience: &mut Patience) -> Result<Command, LinkError> {
        let wants_stdin = spec.stdin == StdinMode::Pipe;
        let (number, op) = self.inner.begin(WINDOW);
        let command = Command::new(self.clone(), number, Arc::clone(&op), wants_stdin);
        self.inner.send(&ToGuest::Exec { op: number, spec, window: WINDOW })?;
        match patience.wait(op.answered()).await.map_err(LinkError::Silent)?? {
            Answer::Started => Ok(command),
            Answer::Refused { kind, message } => {
                command.forget();
                Err(LinkError::Refused { kind, message })
            }
            other => Err(LinkError::Unexpected { wanted: "started", got: other.name() }),
        }
    }

    /// Starts an errand among files. Dropping the future, or the errand, ends it.
    pub async fn file(&self, request: FileRequest<'_>, mut patience: Patience) -> Result<Errand, LinkError> {
        if self.inner.version < FILES_SINCE {
            return Err(LinkError::TooOld);
        }
        let (number, op) = self.inner.begin(FILE_WINDOW);
        let command = Command::new(self.clone(), number, Arc::clone(&op), true);
        self.inner.send(&ToGuest::File { op: number, request, window: FILE_WINDOW })?;
        match patience.wait(op.answered()).await.map_err(LinkError::Silent)?? {
            Answer::Started => Ok(Errand::new(command, patience)),
            Answer::Refused { kind, message } => {
                command.forget();
                Err(LinkError::Refused { kind, message })
            }
            other => Err(LinkError::Unexpected { wanted: "started", got: other.name() }),
        }
    }

    /// Connects to a TCP port inside.
    pub async fn dial(&self, port: u16, patience: Duration) -> Result<Tunnel, LinkError> {
        let (number, op) = self.inner.begin(TUNNEL_WINDOW);
        let tunnel = Tunnel::new(self.clone(), number, Arc::clone(&op));
        self.inner.send(&ToGuest::Dial { op: number, port, window: TUNNEL_WINDOW })?;
        match tokio::time::timeout(patience, op.answered())
            .await
            .map_err(|_| LinkError::Silent(patience))??
        {
            Answer::Opened => Ok(tunnel),
            Answer::Refused { kind, message } => Err(LinkError::Refused { kind, message }),
            other => Err(LinkError::Unexpected { wanted: "opened", got: other.name() }),
        }
    }

    /// Whether both are the same link.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub fn is_closed(&self) -> bool {
        *self.inner.ended.borrow()
    }

    /// Resolves when the link has ended. Holds nothing that would keep it open.
    pub fn ended(&self) -> watch::Receiver<bool> {
        self.inner.ended.subscribe()
    }
}

/// Takes an operation without a handle of its own off the table, also when its caller goes away half-way.
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
        // The reader may have ended between a caller's look and this insertion; then nobody else would tell the operation.
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
        // A panic elsewhere leaves a map that is still whole.
        self.ops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a frame. The queue is bounded by what the agent's credits allow and, for the rest, by [`MAX_UNSENT`].
    fn send(&self, frame: &ToGuest<'_>) -> Result<(), LinkError> {
        let mut bytes = Vec::with_capacity(64);
        guest_proto::encode_to_guest(frame, &mut bytes)?;
        self.queue(bytes)
    }

    /// Sends bytes to an operation as fast as it takes them. An error when it takes no more.
    async fn feed(&self, number: u64, op: &Op, mut bytes: &[u8]) -> Result<(), LinkError> {
        while !bytes.is_empty() {
            let Some(granted) = op.reserve(bytes.len().min(guest_proto::MAX_DATA)).await else {
                return Err(LinkError::Closed);
            };
            self.room().await;
            let (now, later) = bytes.split_at(granted);
            self.send(&ToGuest::Data { op: number, bytes: now })?;
            bytes = later;
        }
        Ok(())
    }

    /// Waits until there is room among what is unsent. Many that each have credit could fill it all the same.
    async fn room(&self) {
        loop {
            let mut drained = std::pin::pin!(self.drained.notified());
            // From here on no wake-up is missed.
            drained.as_mut().enable();
            if self.unsent.load(Ordering::Relaxed) <= CROWDED || *self.ended.borrow() {
                return;
            }
            drained.await;
        }
    }

    fn queue(&self, bytes: Vec<u8>) -> Result<(), LinkError> {
        let unsent = self.unsent.fetch_add(bytes.len(), Ordering::Relaxed);
        if unsent > MAX_UNSENT {
            self.end();
        }
        if *self.ended.borrow() {
            return Err(LinkError::Closed);
        }
        self.outgoing.send(bytes).map_err(|_| LinkError::Closed)
    }

    /// Tells every operation that nothing more comes.
    fn end(&self) {
        self.ended.send_replace(true);
        self.drained.notify_waiters();
        for (_, op) in self.table().drain() {
            op.lose();
        }
    }
}

/// The first frame each way; returns the version to speak and the operations that still run from before.
async fn exchange_hello(stream: &mut Box<dyn ByteStream>) -> Result<(u16, Vec<u64>), LinkError> {
    let mut hello = Vec::new();
    guest_proto::encode_to_guest(&ToGuest::Hello { version: VERSION, min_version: MIN_VERSION }, &mut hello)?;
    stream.write_all(&hello).await?;
    let mut frame = vec![0; guest_proto::PREFIX];
    stream.read_exact(&mut frame).await?;
    // The bound is checked before anything is read for it.
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
            Err(LinkError::Unexpected { wanted: "a version we know", got: "another version" })
        }
        _ => Err(LinkError::Unexpected { wanted: "welcome", got: "another frame" }),
    }
}
