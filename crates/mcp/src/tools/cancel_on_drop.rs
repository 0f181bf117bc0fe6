//! What a call has begun on the service, and what must not go on when nobody gets its result.

use futures_util::future::BoxFuture;

/// Sends a cancellation when its call is cancelled or dropped.
pub struct CancelOnDrop(Option<Cancellation>);

/// Sends the cancellation. Can be repeated.
type Cancellation = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

impl CancelOnDrop {
    /// `cancel` sends the cancellation.
    pub fn new<F: Future<Output = ()> + Send + 'static>(
        cancel: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Box::new(move || Box::pin(cancel()))))
    }

    /// The call was cancelled.
    pub async fn cancel(mut self) {
        if let Some(cancel) = &self.0 {
            cancel().await;
        }
        // Not earlier: a drop during the request has to repeat it.
        self.0 = None;
    }

    /// The call has its result.
    pub fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancel) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(cancel());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// The number of cancellations that were sent, and what sends them.
    fn counted() -> (Arc<AtomicU32>, CancelOnDrop) {
        let sent = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&sent);
        let cancel = CancelOnDrop::new(move || {
            let count = Arc::clone(&count);
            async move {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        (sent, cancel)
    }

    #[tokio::test]
    async fn a_cancellation_is_sent_once_unless_there_is_a_result() {
        let (sent, cancel) = counted();
        cancel.cancel().await;
        tokio::task::yield_now().await;
        assert_eq!(sent.load(Ordering::Relaxed), 1);
        let (sent, cancel) = counted();
        cancel.disarm();
        tokio::task::yield_now().await;
        assert_eq!(sent.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_call_that_is_dropped_is_cancelled_also_during_its_cancellation() {
        let (sent, cancel) = counted();
        drop(cancel);
        tokio::task::yield_now().await;
        assert_eq!(sent.load(Ordering::Relaxed), 1);
        let (sent, cancel) = counted();
        let mut cancelling = Box::pin(cancel.cancel());
        assert!(futures_util::poll!(cancelling.as_mut()).is_pending());
        drop(cancelling);
        tokio::task::yield_now().await;
        assert_eq!(sent.load(Ordering::Relaxed), 2);
    }
}
