//! Followers of events, by topic: an event wakes only the followers of its topics.

use std::collections::HashMap;
use std::sync::Mutex;

use api::SandboxId;
use base::IgnorePoison;
use tokio::sync::watch;

use crate::Topic;

/// Topics with followers; a topic without followers is removed at its next event.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    topics: Mutex<HashMap<Topic, watch::Sender<u64>>>,
}

/// An event that has become visible.
#[derive(Debug)]
pub(crate) struct VisibleEvent {
    pub(crate) account: String,
    pub(crate) sandbox: SandboxId,
    pub(crate) sequence: u64,
}

impl Followers {
    pub(crate) fn follow(&self, topic: Topic) -> watch::Receiver<u64> {
        let mut topics = self.topics.lock().ignore_poison();
        topics.retain(|_, sender| sender.receiver_count() > 0);
        topics.entry(topic).or_insert_with(|| watch::Sender::new(0)).subscribe()
    }

    pub(crate) fn wake(&self, events: &[VisibleEvent]) {
        if events.is_empty() {
            return;
        }
        let topics = self.topics.lock().ignore_poison();
        if topics.is_empty() {
            return;
        }
        for VisibleEvent { account, sandbox, sequence } in events {
            for topic in [Topic::Account(account.clone()), Topic::Sandbox(sandbox.clone())] {
                if let Some(sender) = topics.get(&topic) {
                    sender.send_replace(*sequence);
                }
            }
        }
    }
}
