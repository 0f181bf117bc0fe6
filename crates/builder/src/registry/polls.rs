//! The polls of the state of a build by its clients.
//!
//! [`BuildPolls`] decides whether a client waits; here is its clock. Nothing fails. A daemon that starts knows no polls.

use std::time::Duration;

use rules::BuildPolls;
use tokio::sync::watch;
use tokio::time::Instant;

/// The time of the last poll, as those who cancel abandoned builds see it.
#[derive(Debug)]
pub struct Polls {
    since: Instant,
    state: watch::Sender<BuildPolls>,
}

impl Polls {
    /// Of a build that nobody has asked for yet. Its time begins now.
    pub fn new() -> Self {
        Self { since: Instant::now(), state: watch::Sender::new(BuildPolls::default()) }
    }

    /// Counts a poll.
    pub fn record(&self) {
        let now_ms = base::millis(self.since.elapsed());
        self.state.send_modify(|polls| *polls = polls.polled(now_ms));
    }

    /// Returns when a client that waited for the build has gone away.
    pub async fn abandoned(&self) {
        let mut state = self.state.subscribe();
        loop {
            let abandoned_at = state.borrow_and_update().abandoned_at_ms();
            let abandoned = async {
                match abandoned_at {
                    Some(ms) => tokio::time::sleep_until(self.since + Duration::from_millis(ms)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // The sender is part of this value, so there always is another state.
                _ = state.changed() => {}
                () = abandoned => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    async fn poll(polls: &Polls, times: u32) {
        for _ in 0..times {
            polls.record();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_build_whose_client_stops_polling_is_abandoned() {
        let polls = Arc::new(Polls::new());
        let watched = Arc::clone(&polls);
        let abandoned = tokio::spawn(async move { watched.abandoned().await });
        poll(&polls, 100).await;
        // Shorter than the time after which it counts as gone.
        tokio::time::sleep(Duration::from_secs(8)).await;
        poll(&polls, 100).await;
        tokio::time::sleep(Duration::from_secs(25)).await;
        assert!(!abandoned.is_finished());
        tokio::time::timeout(Duration::from_secs(10), abandoned).await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_build_whose_client_asks_once_is_never_abandoned() {
        let polls = Polls::new();
        polls.record();
        assert!(tokio::time::timeout(Duration::from_secs(86_400), polls.abandoned()).await.is_err());
    }
}
