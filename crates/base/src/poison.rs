//! Locks whose holder has panicked.

use std::sync::{LockResult, PoisonError};

/// The guard of a lock, whether or not a thread has panicked while it held the lock.
///
/// A panic ends the work that caused it, not the daemon, so what the lock protects is used on. Its changes have to be complete before
/// anything can panic, or harmless if they are not.
pub trait IgnorePoison {
    /// What the lock gives access by.
    type Guard;

    /// The guard, also of a poisoned lock.
    fn ignore_poison(self) -> Self::Guard;
}

impl<G> IgnorePoison for LockResult<G> {
    type Guard = G;

    fn ignore_poison(self) -> G {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, RwLock};

    use super::*;

    #[test]
    fn a_lock_can_be_used_after_a_panic() {
        let (mutex, shared) = (Arc::new(Mutex::new(1)), Arc::new(RwLock::new(1)));
        let (of_thread, shared_of_thread) = (Arc::clone(&mutex), Arc::clone(&shared));
        let panicked = std::thread::spawn(move || {
            let (mut guard, mut other) = (of_thread.lock().unwrap(), shared_of_thread.write().unwrap());
            (*guard, *other) = (2, 3);
            panic!("while both locks are held");
        });
        assert!(panicked.join().is_err());
        assert!(mutex.lock().is_err() && shared.read().is_err());
        assert_eq!(*mutex.lock().ignore_poison(), 2);
        assert_eq!(*shared.read().ignore_poison(), 3);
        *shared.write().ignore_poison() = 4;
        assert_eq!(*shared.read().ignore_poison(), 4);
    }
}
