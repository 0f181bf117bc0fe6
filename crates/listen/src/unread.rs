//! The unread timeout of HTTP/2 responses, one per stream.
//!
//! hyper runs each stream in a task of its own, which waits for flow-control capacity while the client grants no window. A
//! timeout of the connection does not bound that wait: one open event stream keeps the connection active, and the unread
//! responses beside it stay in memory. [`StreamExecutor`] therefore watches every stream's task and drops it after the
//! timeout. That resets the stream and releases its response body.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use crate::activity::Activity;
use crate::tasks::Tasks;
use crate::wire::Alarm;

tokio::task_local! {
    static RESPONSE: Arc<ResponseProgress>;
}

/// Whether a stream's response waits for its client. Set by the response body, read by the watch of the stream's task.
pub struct ResponseProgress {
    origin: Instant,
    /// Milliseconds after `origin` plus one; 0 while the response does not wait for the client.
    client_since: AtomicU64,
}

impl ResponseProgress {
    fn new() -> Self {
        Self { origin: Instant::now(), client_since: AtomicU64::new(0) }
    }

    /// The body has handed out bytes that the client has to read before the body is polled again.
    pub fn wait_for_client(&self) {
        let elapsed_ms = base::millis(self.origin.elapsed());
        self.client_since.store(elapsed_ms.saturating_add(1), Ordering::Relaxed);
    }

    /// The body is polled: the client has read the previous bytes.
    pub fn frame_requested(&self) {
        self.client_since.store(0, Ordering::Relaxed);
    }

    fn waits_since(&self) -> Option<Instant> {
        let since = self.client_since.load(Ordering::Relaxed);
        since.checked_sub(1).map(|elapsed_ms| self.origin + Duration::from_millis(elapsed_ms))
    }
}

/// Calls `f` with the progress of the HTTP/2 stream whose task runs; does nothing in the task of an HTTP/1 connection.
pub fn with_stream<T>(f: impl FnOnce(&ResponseProgress) -> T) -> Option<T> {
    RESPONSE.try_with(|progress| f(progress)).ok()
}

/// Runs the streams of one HTTP/2 connection.
#[derive(Clone)]
pub struct StreamExecutor {
    pub tasks: Tasks,
    pub write_timeout: Duration,
    pub activity: Arc<Activity>,
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        let Self { tasks, write_timeout, activity } = self.clone();
        tasks.spawn(async move {
            if !read_in_time(stream, write_timeout).await {
                tracing::debug!(?write_timeout, "reset a stream whose client left the response unread");
                activity.unread.notify_one();
            }
        });
    }
}

/// Drives a stream to its end and returns `true`, or returns `false` when its response waited `timeout` for the client.
async fn read_in_time(stream: impl Future<Output = ()>, timeout: Duration) -> bool {
    let progress = Arc::new(ResponseProgress::new());
    let mut stream = pin!(RESPONSE.scope(Arc::clone(&progress), stream));
    let mut alarm: Option<Alarm> = None;
    std::future::poll_fn(|cx| {
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        let Some(since) = progress.waits_since() else { return Poll::Pending };
        let until = since + timeout;
        alarm.get_or_insert_with(|| Alarm::new(until)).poll(until, cx).map(|()| false)
    })
    .await
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use hyper::body::Body as _;

    use super::*;
    use crate::body::ResponseBody;

    #[tokio::test(start_paused = true)]
    async fn only_a_response_that_waits_for_its_client_times_out() {
        let limit = Duration::from_secs(60);
        let quiet = async {
            tokio::time::sleep(10 * limit).await;
        };
        assert!(read_in_time(quiet, limit).await, "an event stream without events stays");
        let slow = async {
            for _ in 0..10 {
                with_stream(ResponseProgress::wait_for_client).unwrap();
                tokio::time::sleep(limit / 2).await;
                with_stream(ResponseProgress::frame_requested).unwrap();
            }
        };
        assert!(read_in_time(slow, limit).await, "a slow reader stays");
        let begun = Instant::now();
        let unread = async {
            with_stream(ResponseProgress::wait_for_client).unwrap();
            std::future::pending::<()>().await;
        };
        assert!(!read_in_time(unread, limit).await);
        assert!(begun.elapsed() >= limit && begun.elapsed() < 2 * limit);
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_nobody_polls_times_out() {
        let limit = Duration::from_secs(60);
        let activity = Activity::new();
        let respond = |body: Body| {
            let flight = activity.begin();
            async move {
                let body = ResponseBody::new(body, flight);
                if body.is_end_stream() {
                    return;
                }
                std::future::pending::<()>().await;
            }
        };
        let begun = Instant::now();
        assert!(!read_in_time(respond(Body::from("unread")), limit).await);
        assert!(begun.elapsed() >= limit && begun.elapsed() < 2 * limit);
        assert!(read_in_time(respond(Body::empty()), limit).await, "there is nothing to read");
        assert!(!activity.is_busy());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_an_unpolled_response_is_stalled() {
        let activity = Activity::new();
        let body = ResponseBody::new(Body::from("unread"), activity.begin());
        assert!(activity.stalled_for().is_some());
        drop(body);
        assert!(activity.idle_for().is_some());
    }
}
