//! What the processes of a fake sandbox share: their life, their files, the mode of their agent, and its way out.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use guest_proto::{Channel, ToHost};
use tokio::io::{AsyncWriteExt, DuplexStream, WriteHalf};
use tokio::sync::{mpsc, watch};

use super::detached_op::DetachedOps;
use super::disk::Disk;

/// How an agent behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AgentMode {
    #[default]
    Correct,
    /// Reads and never says a word.
    Silent,
    /// Answers the greeting and nothing else.
    Deaf,
    /// Sends bytes that are no frame after so many honest frames.
    Garbage { after: usize },
    /// Announces a frame of four gigabytes after so many honest frames.
    Huge { after: usize },
    /// Closes the link after so many honest frames.
    HangUp { after: usize },
    /// Sends more than it was granted.
    OverCredit,
    /// Answers each request with what belongs to another.
    Wrong,
    /// Answers for operations that nobody asked for.
    Stranger,
    /// Welcomes with a version nobody speaks.
    BadVersion,
    /// Each frame comes so much later.
    Slow(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestState {
    Runs,
    Frozen,
    Dead,
}

/// What outlives each single link.
pub struct Inner {
    pub life: watch::Sender<GuestState>,
    /// The newest link; older ones end.
    pub newest: watch::Sender<u64>,
    pub mode: Mutex<AgentMode>,
    /// Commands that outlived their link.
    pub leftover: Mutex<BTreeSet<u64>>,
    /// Commands that outlive every link.
    pub kept: Mutex<DetachedOps>,
    /// Processes in the background.
    pub background: AtomicUsize,
    pub disk: Arc<Mutex<Disk>>,
}

impl Inner {
    /// Sleeps as a process does, whose clock stands still while it is frozen.
    pub async fn sleep(&self, mut duration: Duration) {
        let mut life = self.life.subscribe();
        loop {
            // The sender lives as long as we do.
            let _ = life.wait_for(|life| *life != GuestState::Frozen).await;
            let begin = tokio::time::Instant::now();
            tokio::select! {
                () = tokio::time::sleep(duration) => return,
                _ = life.wait_for(|life| *life == GuestState::Frozen) => duration = duration.saturating_sub(begin.elapsed()),
            }
        }
    }
}

/// Sends frames, in the agent's mode.
#[derive(Clone)]
pub struct Out {
    pub inner: Arc<Inner>,
    pub mode: AgentMode,
    pub stream: Arc<tokio::sync::Mutex<(WriteHalf<DuplexStream>, usize)>>,
}

impl Out {
    pub async fn send(&self, frame: &ToHost<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        guest_proto::encode_to_host(frame, &mut bytes).map_err(io::Error::other)?;
        if let AgentMode::Slow(delay) = self.mode {
            tokio::time::sleep(delay).await;
        }
        let mut stream = self.stream.lock().await;
        // The sender lives as long as we do.
        let _ = self.inner.life.subscribe().wait_for(|life| *life != GuestState::Frozen).await;
        match self.mode {
            AgentMode::Garbage { after } if stream.1 >= after => bytes = vec![3, 0, 0, 0, 0xff, 0xff, 0xff],
            AgentMode::Huge { after } if stream.1 >= after => bytes = vec![0xff, 0xff, 0xff, 0xff, 0],
            AgentMode::HangUp { after } if stream.1 >= after => return Err(io::ErrorKind::BrokenPipe.into()),
            _ => {}
        }
        stream.1 += 1;
        stream.0.write_all(&bytes).await
    }
}

/// What a command hears of its host.
pub struct Inbox {
    pub stdin: mpsc::UnboundedReceiver<Option<Vec<u8>>>,
    pub credit: watch::Receiver<[u64; 2]>,
    /// The signal that ends the command.
    pub killed: watch::Receiver<Option<i32>>,
}

pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn index(channel: Channel) -> usize {
    match channel {
        Channel::Stdout => 0,
        Channel::Stderr => 1,
    }
}
