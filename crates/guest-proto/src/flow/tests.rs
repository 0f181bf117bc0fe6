use proptest::prelude::*;

use super::*;
use crate::{MIN_VERSION, VERSION, negotiate};

proptest! {
    /// Sender and receiver agree for any sizes and order, and the sender has credit again once the reader has
    /// consumed everything.
    #[test]
    fn sender_and_receiver_agree_on_the_credit(size in 1u32..100_000, steps in prop::collection::vec((any::<u32>(), any::<u32>()), 1..200)) {
        let mut sender = Credits::new(size);
        let mut receiver = Window::new(size);
        let mut unread = 0;
        for (send, read) in steps {
            let sent = (send as usize) % (sender.left() + 1);
            sender.spend(sent);
            receiver.received(sent).unwrap();
            unread += sent;
            let read = (read as usize) % (unread + 1);
            unread -= read;
            receiver.consumed(read);
            if let Some(grant) = receiver.due() {
                sender.grant(grant).unwrap();
            }
            prop_assert!(sender.left() + unread <= size as usize);
        }
        receiver.consumed(unread);
        if let Some(grant) = receiver.due() {
            sender.grant(grant).unwrap();
        }
        prop_assert!(sender.left() > 0);
    }
}

#[test]
fn receiving_more_than_granted_is_an_error() {
    let mut window = Window::new(10);
    window.received(10).unwrap();
    assert!(window.received(1).is_err());
    window.consumed(4);
    assert_eq!(window.due(), None);
    window.consumed(1);
    assert_eq!(window.due(), Some(5));
    assert!(window.received(6).is_err());
    window.received(5).unwrap();
}

#[test]
fn grants_are_bounded() {
    let mut credits = Credits::new(MAX_WINDOW - 1);
    credits.grant(1).unwrap();
    assert!(credits.grant(1).is_err());
    assert!(credits.grant(u32::MAX).is_err());
    assert_eq!(credits.left(), MAX_WINDOW as usize);
    credits.reset();
    assert_eq!(credits.left(), 0);
}

#[test]
fn a_closed_window_grants_its_size_first() {
    let mut window = Window::closed(10, 2);
    assert!(window.received(1).is_err());
    assert_eq!(window.due(), Some(8));
    assert_eq!(window.due(), None);
    window.received(8).unwrap();
    window.consumed(2);
    window.consumed(8);
    assert_eq!(window.due(), Some(10));
}

#[test]
fn negotiation_picks_the_newest_common_version() {
    assert_eq!(negotiate(VERSION, MIN_VERSION), Ok(VERSION));
    assert_eq!(negotiate(VERSION + 5, MIN_VERSION), Ok(VERSION));
    assert!(negotiate(VERSION + 5, VERSION + 1).is_err());
    assert!(negotiate(MIN_VERSION - 1, MIN_VERSION - 1).is_err());
}
