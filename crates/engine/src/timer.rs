//! One timer for all deadlines: a wheel with an entry a sandbox, and one task that rings at actors.
//!
//! A ring means only that it is time to look: the actor asks the rules what is due. A ring too many does no harm.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::SandboxId;
use futures_util::StreamExt;
use tokio::sync::{Notify, mpsc};
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

#[derive(Debug)]
enum Order {
    Set { id: SandboxId, after: Duration, bell: Arc<Notify> },
    Clear(SandboxId),
}

/// Sets and clears deadlines; cheap to call. Every sandbox has at most one.
#[derive(Debug, Clone)]
pub struct Timer {
    /// As many orders as actors give; each gives few, and the task only files them.
    orders: mpsc::UnboundedSender<Order>,
}

impl Timer {
    /// Starts the task. It ends when the last handle is dropped.
    pub fn start() -> Self {
        let (orders, to_do) = mpsc::unbounded_channel();
        tokio::spawn(run(to_do));
        Self { orders }
    }

    pub fn set(&self, id: SandboxId, after: Duration, bell: Arc<Notify>) {
        // The task outlives every handle, so the order arrives.
        let _ = self.orders.send(Order::Set { id, after, bell });
    }

    pub fn clear(&self, id: SandboxId) {
        let _ = self.orders.send(Order::Clear(id));
    }
}

async fn run(mut orders: mpsc::UnboundedReceiver<Order>) {
    let mut wheel: DelayQueue<(SandboxId, Arc<Notify>)> = DelayQueue::new();
    let mut keys: HashMap<SandboxId, Key> = HashMap::new();
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                None => return,
                Some(Order::Set { id, after, bell }) => {
                    if let Some(old) = keys.remove(&id) {
                        wheel.remove(&old);
                    }
                    let key = wheel.insert((id.clone(), bell), after);
                    keys.insert(id, key);
                }
                Some(Order::Clear(id)) => {
                    if let Some(old) = keys.remove(&id) {
                        wheel.remove(&old);
                    }
                }
            },
            Some(rung) = wheel.next(), if !wheel.is_empty() => {
                let (id, bell) = rung.into_inner();
                keys.remove(&id);
                bell.notify_one();
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
    async fn rings_when_set_and_not_when_cleared_or_overtaken() {
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
