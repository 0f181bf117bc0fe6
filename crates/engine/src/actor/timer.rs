//! One timer for the deadlines of all sandboxes: a timer wheel with one entry per sandbox, and one task that notifies actors.
//!
//! A notification only makes the actor check what is due. A spurious notification is harmless.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::SandboxId;
use futures_util::StreamExt;
use tokio::sync::{Notify, mpsc};
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

#[derive(Debug)]
enum TimerCommand {
    Set { id: SandboxId, after: Duration, notify: Arc<Notify> },
    Clear(SandboxId),
}

/// Sets and clears deadlines. Each sandbox has at most one.
#[derive(Debug, Clone)]
pub struct Timer {
    /// Unbounded, because actors send few commands and the task only stores them.
    commands: mpsc::UnboundedSender<TimerCommand>,
}

impl Timer {
    /// Starts the task. It ends when the last handle is dropped.
    pub fn start() -> Self {
        let (commands, receiver) = mpsc::unbounded_channel();
        tokio::spawn(run(receiver));
        Self { commands }
    }

    pub fn set(&self, id: SandboxId, after: Duration, notify: Arc<Notify>) {
        // The task outlives all handles, so the command arrives.
        let _ = self.commands.send(TimerCommand::Set { id, after, notify });
    }

    pub fn clear(&self, id: SandboxId) {
        let _ = self.commands.send(TimerCommand::Clear(id));
    }
}

async fn run(mut commands: mpsc::UnboundedReceiver<TimerCommand>) {
    let mut wheel: DelayQueue<(SandboxId, Arc<Notify>)> = DelayQueue::new();
    let mut keys: HashMap<SandboxId, Key> = HashMap::new();
    loop {
        tokio::select! {
            command = commands.recv() => match command {
                None => return,
                Some(TimerCommand::Set { id, after, notify }) => {
                    if let Some(old) = keys.remove(&id) {
                        wheel.remove(&old);
                    }
                    let key = wheel.insert((id.clone(), notify), after);
                    keys.insert(id, key);
                }
                Some(TimerCommand::Clear(id)) => {
                    if let Some(old) = keys.remove(&id) {
                        wheel.remove(&old);
                    }
                }
            },
            Some(due) = wheel.next(), if !wheel.is_empty() => {
                let (id, notify) = due.into_inner();
                keys.remove(&id);
                notify.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> SandboxId {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn notifies_when_set_and_not_when_cleared_or_replaced() {
        let timer = Timer::start();
        let (first, second) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        timer.set(id("sb_aaaaaaaa"), Duration::from_secs(5), Arc::clone(&first));
        timer.set(id("sb_aaaaaaaa"), Duration::from_secs(3600), Arc::clone(&first));
        timer.set(id("sb_bbbbbbbb"), Duration::from_secs(60), Arc::clone(&second));
        timer.set(id("sb_cccccccc"), Duration::from_secs(10), Arc::clone(&first));
        timer.clear(id("sb_cccccccc"));
        let begun = tokio::time::Instant::now();
        second.notified().await;
        assert_eq!(begun.elapsed().as_secs(), 60);
        first.notified().await;
        assert_eq!(begun.elapsed().as_secs(), 3600);
    }
}
