use proptest::prelude::*;

use super::*;
use crate::{MIN_VERSION, VERSION, negotiate};

proptest! {
    /// Whatever the sizes and the order, sender and receiver never disagree, and the sender is never left waiting
    /// once the reader has used up all that came.
    #[test]
    fn both_ends_keep_the_same_count(size in 1u32..100_000, steps in prop::collection::vec((any::<u32>(), any::<u32>()), 1..200)) {
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
fn more_than_granted_is_a_violation() {
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
fn a_window_taken_over_grants_itself_first() {
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
fn versions_meet_at_the_newest_that_both_know() {
    assert_eq!(negotiate(VERSION, MIN_VERSION), Ok(VERSION));
    assert_eq!(negotiate(VERSION + 5, MIN_VERSION), Ok(VERSION));
    assert!(negotiate(VERSION + 5, VERSION + 1).is_err());
    assert!(negotiate(MIN_VERSION - 1, MIN_VERSION - 1).is_err());
}
