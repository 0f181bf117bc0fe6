use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use api::EventKind;

use super::*;

/// Records batches with their time, and fails as often as configured.
#[derive(Clone)]
struct RecordingSink {
    begin: Instant,
    /// Seconds since the start, number of events, and key.
    received: Arc<Mutex<Vec<(f64, usize, String)>>>,
    refusals: Arc<Mutex<VecDeque<Error>>>,
}

impl EventSink for RecordingSink {
    async fn send(&self, batch: &Batch) -> Result<()> {
        let at_s = self.begin.elapsed().as_secs_f64();
        self.received.lock().unwrap().push((at_s, batch.events.len(), batch.key.clone()));
        self.refusals.lock().unwrap().pop_front().map_or(Ok(()), Err)
    }
}

impl RecordingSink {
    /// Time, rounded to tenths of a second, and number of events.
    fn posts(&self) -> Vec<(f64, usize)> {
        let tenths = |at_s: f64| (at_s * 10.0).round() / 10.0;
        self.received.lock().unwrap().iter().map(|(at_s, count, _)| (tenths(*at_s), *count)).collect()
    }

    fn refuse(&self, status: u16, code: &str, retry_after_s: Option<u64>) {
        let body = format!(r#"{{"error":{{"code":"{code}","message":"m"}}}}"#);
        let wait = retry_after_s.map(Duration::from_secs);
        self.refusals.lock().unwrap().push_back(Error::of_answer(status, body.as_bytes(), None, wait));
    }
}

fn begun() -> (RecordingSink, mpsc::Sender<Message>) {
    let (received, refusals) = (Arc::default(), Arc::default());
    let sink = RecordingSink { begin: Instant::now(), received, refusals };
    let (queue, messages) = mpsc::channel(4096);
    tokio::spawn(upload(sink.clone(), messages));
    (sink, queue)
}

async fn say(queue: &mpsc::Sender<Message>, times: usize) {
    for _ in 0..times {
        let event = EventBody {
            kind: EventKind::AgentThinking,
            run_id: "r".parse().unwrap(),
            data: serde_json::Map::new(),
            timestamp: None,
        };
        queue.send(Message::Event(event)).await.ok().unwrap();
    }
}

async fn sent(queue: &mpsc::Sender<Message>) -> Option<Error> {
    let (answer, answered) = oneshot::channel();
    queue.send(Message::Flush(answer)).await.ok().unwrap();
    answered.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn single_events_are_batched() {
    let (sink, queue) = begun();
    say(&queue, 1).await;
    sleep(Duration::from_millis(30)).await;
    for _ in 0..50 {
        say(&queue, 1).await;
        sleep(Duration::from_millis(100)).await;
    }
    // After 5 s a flush does not wait for the rest of the interval.
    assert!(sent(&queue).await.is_none());
    assert_eq!(sink.posts(), [(0.0, 1), (2.0, 20), (4.0, 20), (5.0, 10)]);
    // An event after an idle interval is sent at once.
    sleep(Duration::from_secs(60)).await;
    say(&queue, 1).await;
    sleep(Duration::from_millis(1)).await;
    assert_eq!(sink.posts()[4..], [(65.0, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_and_the_last_one_do_not_wait() {
    let (sink, queue) = begun();
    say(&queue, 1).await;
    sleep(Duration::from_millis(100)).await;
    say(&queue, 250).await;
    sleep(Duration::from_millis(100)).await;
    assert_eq!(sink.posts(), [(0.0, 1), (0.1, 100), (0.1, 100)]);
    drop(queue);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(sink.posts()[3..], [(0.2, 50)]);
}

#[tokio::test(start_paused = true)]
async fn batches_are_retried_after_429() {
    let (sink, queue) = begun();
    [Some(50), Some(0), None].iter().for_each(|wait| sink.refuse(429, "RATE_LIMITED", *wait));
    say(&queue, 3).await;
    assert!(sent(&queue).await.is_none());
    assert_eq!(sink.posts(), [(0.0, 3), (50.0, 3), (51.0, 3), (56.0, 3)]);
    let keys: Vec<String> = sink.received.lock().unwrap().iter().map(|(_, _, key)| key.clone()).collect();
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[tokio::test(start_paused = true)]
async fn retries_after_refusals_are_bounded() {
    let (sink, queue) = begun();
    (0..10).for_each(|_| sink.refuse(429, "RATE_LIMITED", Some(60)));
    say(&queue, 1).await;
    assert_eq!(sent(&queue).await.unwrap().code(), Code::RateLimited);
    assert_eq!(sink.posts().last(), Some(&(300.0, 1)));
    sink.refusals.lock().unwrap().clear();
    // A longer Retry-After is not waited for; other errors are not retried.
    for (status, code) in [(429, "RATE_LIMITED"), (404, "SANDBOX_NOT_FOUND")] {
        sink.refuse(status, code, Some(3600));
        say(&queue, 1).await;
        assert_eq!(sent(&queue).await.unwrap().code_name(), code);
    }
    assert_eq!(sink.posts().len(), 8);
    assert!(sink.begin.elapsed() < Duration::from_secs(310));
}
