//! The shared state of a fake sandbox's processes: their life cycle, their files, and the mode and output stream of
//! their agent.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::IgnorePoison;
use guest_proto::{Channel, ToHost};
use tokio::io::{AsyncWriteExt, DuplexStream, WriteHalf};
use tokio::sync::{mpsc, watch};

use super::detached_op::DetachedOps;
use crate::fake::files::Disk;

/// The behaviour of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AgentMode {
    #[default]
    Correct,
    /// Reads and never answers.
    Silent,
    /// Answers the handshake and nothing else.
    Deaf,
    /// Sends an invalid frame after `after` correct frames.
    Garbage { after: usize },
    /// Announces a frame of four gigabytes after `after` correct frames.
    Huge { after: usize },
    /// Closes the link after `after` correct frames.
    HangUp { after: usize },
    /// Sends more than its credit.
    OverCredit,
    /// Answers each request with the reply to another kind of request.
    Wrong,
    /// Answers for operations that were never requested.
    Stranger,
    /// Answers the handshake with an unknown version.
    BadVersion,
    /// Delays each frame.
    Slow(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestState {
    Runs,
    Frozen,
    Dead,
}

/// The state that outlives links.
pub struct Inner {
    pub life: watch::Sender<GuestState>,
    /// The number of the newest link. Older links end.
    pub newest: watch::Sender<u64>,
    pub mode: Mutex<AgentMode>,
    /// Attached commands whose link has ended.
    pub leftover: Mutex<BTreeSet<u64>>,
    /// Detached commands.
    pub detached_ops: Mutex<DetachedOps>,
    /// The number of background processes.
    pub background: AtomicUsize,
    pub disk: Arc<Mutex<Disk>>,
}

impl Inner {
    /// Sleeps. The clock stands still while the processes are frozen.
    pub async fn sleep(&self, mut duration: Duration) {
        let mut life = self.life.subscribe();
        loop {
            // Cannot fail: `self` has the sender.
            let _ = life.wait_for(|life| *life != GuestState::Frozen).await;
            let begin = tokio::time::Instant::now();
            tokio::select! {
                () = tokio::time::sleep(duration) => return,
                _ = life.wait_for(|life| *life == GuestState::Frozen) => duration = duration.saturating_sub(begin.elapsed()),
            }
        }
    }
}

/// Sends frames according to the agent's mode.
#[derive(Clone)]
pub struct Out {
    pub inner: Arc<Inner>,
    pub mode: AgentMode,
    pub stream: Arc<tokio::sync::Mutex<Output>>,
}

/// A stream to the host, and the number of frames sent on it.
pub type Output = (WriteHalf<DuplexStream>, usize);

impl Out {
    pub async fn send(&self, frame: &ToHost<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        guest_proto::encode_to_host(frame, &mut bytes).map_err(io::Error::other)?;
        if let AgentMode::Slow(delay) = self.mode {
            tokio::time::sleep(delay).await;
        }
        let mut stream = self.stream.lock().await;
        // Cannot fail: `self` has the sender.
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

/// What a command receives from the host.
pub struct Inbox {
    pub stdin: mpsc::UnboundedReceiver<Option<Vec<u8>>>,
    pub credit: watch::Receiver<[u64; 2]>,
    /// The signal that ends the command.
    pub killed: watch::Receiver<Option<i32>>,
}

pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

pub fn index(channel: Channel) -> usize {
    match channel {
        Channel::Stdout => 0,
        Channel::Stderr => 1,
    }
}
