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

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> SandboxId {
        SandboxId::from_random([number; 20])
    }

    fn visible(account: &str, sandbox: u8, sequence: u64) -> VisibleEvent {
        VisibleEvent { account: account.to_owned(), sandbox: id(sandbox), sequence }
    }

    #[test]
    fn an_event_wakes_those_of_its_account_and_of_its_sandbox_only() {
        let followers = Followers::default();
        let mut one = followers.follow(Topic::Account("one".to_owned()));
        let mut two = followers.follow(Topic::Account("two".to_owned()));
        let mut sandbox = followers.follow(Topic::Sandbox(id(1)));
        let mut another = followers.follow(Topic::Sandbox(id(2)));
        followers.wake(&[visible("one", 1, 7), visible("one", 1, 8)]);
        for woken in [&mut one, &mut sandbox] {
            assert!(woken.has_changed().unwrap());
            assert_eq!(*woken.borrow_and_update(), 8, "the last event");
        }
        for asleep in [&mut two, &mut another] {
            assert!(!asleep.has_changed().unwrap());
        }
        followers.wake(&[]);
        assert!(!one.has_changed().unwrap());
    }

    #[test]
    fn followers_of_one_topic_share_it_and_a_topic_ends_with_its_last_follower() {
        let followers = Followers::default();
        let topic = || Topic::Account("one".to_owned());
        let (first, second) = (followers.follow(topic()), followers.follow(topic()));
        let topics = || followers.topics.lock().unwrap().len();
        assert_eq!(topics(), 1);
        drop(first);
        let _other = followers.follow(Topic::Account("two".to_owned()));
        assert_eq!(topics(), 2, "the second one still follows");
        drop(second);
        let _another = followers.follow(Topic::Sandbox(id(1)));
        assert_eq!(topics(), 2);
        // Nobody hears of it, and it is no error.
        followers.wake(&[visible("one", 3, 9)]);
    }
}
