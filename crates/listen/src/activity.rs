//! The activity of one connection: whether requests are open, whether any of them waits for the service, and the time of the last
//! progress. Requests update the counters, the connection's task reads them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;

/// The open requests of a connection, and when bytes last moved.
pub struct Activity {
    origin: Instant,
    open: AtomicUsize,
    /// Open requests that wait for the service: the response has not begun, or has nothing to send yet.
    ours: AtomicUsize,
    moved_ms: AtomicU64,
    waiting: AtomicWaker,
    /// Notified when a stream was reset because its client left the response unread.
    pub unread: Notify,
}

impl Activity {
    pub fn new() -> Arc<Self> {
        let (open, ours) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (moved_ms, waiting) = (AtomicU64::new(0), AtomicWaker::new());
        Arc::new(Self { origin: Instant::now(), open, ours, moved_ms, waiting, unread: Notify::new() })
    }

    /// Counts a request as open until the returned value is dropped.
    pub fn begin(self: &Arc<Self>) -> InFlight {
        self.open.fetch_add(1, Ordering::AcqRel);
        self.ours.fetch_add(1, Ordering::AcqRel);
        self.record_progress();
        InFlight { activity: self.clone(), waits_for: WaitsFor::Ours }
    }

    /// Whether a request has not received its whole response yet.
    pub fn is_busy(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// Registers the task to wake when a request ends. Only the last registration counts.
    pub fn wake_at_end(&self, waker: &Waker) {
        self.waiting.register(waker);
    }

    /// The time of the last progress of a request; initially the start of the connection.
    pub fn last_progress(&self) -> Instant {
        self.origin + Duration::from_millis(self.moved_ms.load(Ordering::Acquire))
    }

    /// How long the connection has been without an open request.
    pub fn idle_for(&self) -> Option<Duration> {
        (!self.is_busy()).then(|| self.still_for())
    }

    /// How long every open request has waited for the client to read.
    pub fn stalled_for(&self) -> Option<Duration> {
        (self.is_busy() && self.ours.load(Ordering::Acquire) == 0).then(|| self.still_for())
    }

    fn still_for(&self) -> Duration {
        self.last_progress().elapsed()
    }

    /// The connection is idle from now on, unless a request is open.
    pub fn record_progress(&self) {
        let now_ms = base::millis(self.origin.elapsed());
        self.moved_ms.store(now_ms, Ordering::Release);
    }
}

/// Whether a request waits for the service or for the client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    Ours,
    Clients,
}

/// One open request.
pub struct InFlight {
    activity: Arc<Activity>,
    waits_for: WaitsFor,
}

impl InFlight {
    /// Changes who has to act next.
    pub fn set_waits_for(&mut self, waits_for: WaitsFor) {
        if self.waits_for == waits_for {
            return;
        }
        match waits_for {
            WaitsFor::Ours => self.activity.ours.fetch_add(1, Ordering::AcqRel),
            WaitsFor::Clients => self.activity.ours.fetch_sub(1, Ordering::AcqRel),
        };
        self.waits_for = waits_for;
        self.activity.record_progress();
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.set_waits_for(WaitsFor::Clients);
        self.activity.record_progress();
        self.activity.open.fetch_sub(1, Ordering::AcqRel);
        self.activity.waiting.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_stalled_or_busy() {
        let activity = Activity::new();
        assert!(activity.idle_for().is_some() && activity.stalled_for().is_none());
        let (mut one, two) = (activity.begin(), activity.begin());
        assert!(activity.is_busy() && activity.idle_for().is_none() && activity.stalled_for().is_none());
        one.set_waits_for(WaitsFor::Clients);
        assert!(activity.stalled_for().is_none(), "the other one still waits for the service");
        drop(two);
        assert!(activity.stalled_for().is_some());
        one.set_waits_for(WaitsFor::Ours);
        assert!(activity.stalled_for().is_none());
        drop(one);
        assert!(activity.idle_for().is_some() && !activity.is_busy());
    }
}
