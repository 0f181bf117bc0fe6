//! Requests under one key: at once, one after the other, and when something goes wrong.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::join_all;
use http_body_util::BodyExt;
use rules::Scopes;
use store::{Batch, IdempotencyRecord, MemoryStore, StoreError};
use tokio::sync::Semaphore;

use super::*;

const CREATE: &str = "POST /v1/sandboxes";
const BODY: Bytes = Bytes::from_static(br#"{"image":"node:22"}"#);

struct Fixture {
    store: MemoryStore,
    idempotency: Idempotency,
    worked: Arc<AtomicUsize>,
}

impl Fixture {
    fn new() -> Self {
        Self::over(MemoryStore::new())
    }

    fn over(store: MemoryStore) -> Self {
        Self {
            idempotency: Idempotency::new(Arc::new(store.clone()), Arc::default()),
            store,
            worked: Arc::default(),
        }
    }

    fn worked(&self) -> usize {
        self.worked.load(Ordering::SeqCst)
    }

    /// Work that counts itself, waits for `gate` and gives what `result` says for the time it is called.
    async fn run_with(
        &self,
        key: Option<&str>,
        body: Bytes,
        gate: Arc<Semaphore>,
        result: impl FnOnce(usize) -> Result<ReplayableResponse, ApiError> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let worked = Arc::clone(&self.worked);
        let key = key.map(|key| Key(key.to_owned()));
        let work = move |_claim| async move {
            let time = worked.fetch_add(1, Ordering::SeqCst);
            drop(gate.acquire().await);
            result(time)
        };
        self.idempotency.run(&caller("one"), CREATE, key, body, work).await
    }

    async fn run(&self, key: &str) -> Result<Response, ApiError> {
        self.run_with(Some(key), BODY, open(), created).await
    }
}

fn caller(account: &str) -> Caller {
    let limits = rules::KeyLimits::default();
    Caller { account: account.into(), key_id: "key_1".into(), scopes: Scopes::ALL, limits }
}

fn open() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(1000))
}

fn created(time: usize) -> Result<ReplayableResponse, ApiError> {
    Ok(ReplayableResponse::new(StatusCode::CREATED, Bytes::from(format!("{{\"n\":{time}}}"))))
}

fn full(_time: usize) -> Result<ReplayableResponse, ApiError> {
    Err(ApiError::stopping("no room"))
}

fn missing(_time: usize) -> Result<ReplayableResponse, ApiError> {
    Err(ApiError::new(ErrorCode::SandboxNotFound, "gone").with_detail("sandboxId", "sb_aaaaaaaa"))
}

/// Status, body, and whether it is a replay.
async fn seen(response: Response) -> (u16, String, bool) {
    let (status, replayed) = (response.status().as_u16(), response.headers().contains_key(REPLAYED));
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap(), replayed)
}

fn first_response(replayed: bool) -> (u16, String, bool) {
    (201, "{\"n\":0}".to_owned(), replayed)
}

#[tokio::test]
async fn ten_concurrent_requests_create_one() {
    let fixture = Fixture::new();
    // All ten are polled before the first request gets its turn.
    let answers = join_all((0..10).map(|_| fixture.run("k"))).await;
    let mut replays = 0;
    for response in answers {
        let (status, body, replayed) = seen(response.unwrap()).await;
        assert_eq!((status, body.as_str()), (201, "{\"n\":0}"));
        replays += usize::from(replayed);
    }
    assert_eq!((fixture.worked(), replays, fixture.store.commits()), (1, 9, 1));
    assert!(lock(&fixture.idempotency.pending).is_empty());
    assert_eq!(seen(fixture.run("k").await.unwrap()).await, first_response(true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_requests_on_several_threads_create_one_each() {
    let fixture = Arc::new(Fixture::new());
    let tasks = (0..400).map(|n| {
        let fixture = Arc::clone(&fixture);
        tokio::spawn(async move { seen(fixture.run(&format!("k{}", n % 4)).await.unwrap()).await })
    });
    let answers: Vec<_> = join_all(tasks).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers.iter().filter(|(_, _, replayed)| !replayed).count(), 4);
    assert_eq!(fixture.worked(), 4);
}

#[tokio::test]
async fn a_disconnect_during_an_upload_changes_nothing() {
    let fixture = Fixture::new();
    let gate = Arc::new(Semaphore::new(0));
    let mut first = Box::pin(fixture.run_with(Some("k"), BODY, Arc::clone(&gate), created));
    assert!(first.as_mut().now_or_never().is_none());
    drop(first);
    let second = fixture.run("k");
    gate.add_permits(1);
    assert_eq!(seen(second.await.unwrap()).await, first_response(true));
    assert_eq!(fixture.worked(), 1);
}

#[tokio::test]
async fn the_end_waits_for_pending_requests_without_a_client() {
    let fixture = Fixture::new();
    let gate = Arc::new(Semaphore::new(0));
    assert!(fixture.run_with(Some("k"), BODY, Arc::clone(&gate), created).now_or_never().is_none());
    let mut settled = Box::pin(fixture.idempotency.settle());
    assert!(settled.as_mut().now_or_never().is_none());
    gate.add_permits(1);
    settled.await;
    assert!(fixture.store.idempotency_record("one", CREATE, "k").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn the_end_does_not_wait_for_ever() {
    let fixture = Fixture::new();
    let gate = Arc::new(Semaphore::new(0));
    assert!(fixture.run_with(Some("k"), BODY, gate, created).now_or_never().is_none());
    let begun = tokio::time::Instant::now();
    fixture.idempotency.settle().await;
    assert_eq!(begun.elapsed().as_secs(), SETTLE_TIMEOUT.as_secs());
    assert_eq!(fixture.worked(), 1);
}

#[tokio::test]
async fn without_a_key_nothing_is_stored() {
    let fixture = Fixture::new();
    for n in 0..2 {
        let response = fixture.run_with(None, BODY, open(), created).await.unwrap();
        assert_eq!(seen(response).await, (201, format!("{{\"n\":{n}}}"), false));
    }
    assert_eq!(fixture.store.commits(), 0);
}

#[tokio::test]
async fn followers_run_the_request_if_nothing_was_stored() {
    let fixture = Fixture::new();
    let result = |time| if time < 3 { full(time) } else { created(time) };
    let answers = join_all((0..10).map(|_| fixture.run_with(Some("k"), BODY, open(), result).boxed())).await;
    let (good, bad): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((good.len(), bad.len(), fixture.worked()), (7, 3, 4));
    for error in bad {
        assert_eq!(error.unwrap_err().retry_after_s, Some(5));
    }
    let mut fresh = 0;
    for response in good {
        let (status, body, replayed) = seen(response.unwrap()).await;
        assert_eq!((status, body.as_str()), (201, "{\"n\":3}"));
        fresh += usize::from(!replayed);
    }
    assert_eq!(fresh, 1);
}

#[tokio::test]
async fn a_panic_is_its_own_requests_alone() {
    let fixture = Fixture::new();
    let result = |time| if time == 0 { panic!("on purpose") } else { created(time) };
    let runs = (0..3).map(|_| {
        std::panic::AssertUnwindSafe(fixture.run_with(Some("k"), BODY, open(), result)).catch_unwind().boxed()
    });
    let mut answers = join_all(runs).await.into_iter();
    assert!(answers.next().unwrap().is_err());
    for response in answers {
        assert_eq!(seen(response.unwrap().unwrap()).await.0, 201);
    }
    assert_eq!(fixture.worked(), 2);
    assert!(lock(&fixture.idempotency.pending).is_empty());
}

#[tokio::test]
async fn another_body_is_refused_also_while_the_first_is_under_way() {
    let fixture = Fixture::new();
    let gate = Arc::new(Semaphore::new(0));
    let mut first = Box::pin(fixture.run_with(Some("k"), BODY, Arc::clone(&gate), created));
    assert!(first.as_mut().now_or_never().is_none());
    let other = Bytes::from_static(b"{\"image\":\"python:3.12\"}");
    let error = fixture.run_with(Some("k"), other.clone(), Arc::clone(&gate), created).await.unwrap_err();
    assert_eq!((error.code, error.status().as_u16()), (ErrorCode::InvalidRequest, 400));
    gate.add_permits(1);
    assert_eq!(seen(first.await.unwrap()).await, first_response(false));
    assert_eq!(
        fixture.run_with(Some("k"), other.clone(), Arc::clone(&gate), created).await.unwrap_err().code,
        ErrorCode::InvalidRequest
    );
    let spaced = Bytes::from_static(b"{ \"image\": \"node:22\" }");
    let same = fixture.run_with(Some("k"), spaced, Arc::clone(&gate), created).await.unwrap();
    assert_eq!(seen(same).await, first_response(true));
    assert_eq!(fixture.worked(), 1);
}

#[tokio::test]
async fn client_errors_are_stored_with_details() {
    let fixture = Fixture::new();
    let answers = join_all((0..3).map(|_| fixture.run_with(Some("k"), BODY, open(), missing).boxed())).await;
    let later = fixture.run("k").await;
    for (n, response) in answers.into_iter().chain([later]).enumerate() {
        let error = match response {
            Err(error) if n == 0 => error,
            Ok(response) if n > 0 => {
                assert_eq!(response.status(), 404);
                assert!(response.headers().contains_key(REPLAYED));
                response.extensions().get::<ApiError>().unwrap().clone()
            }
            other => panic!("request {n} got {other:?}"),
        };
        assert_eq!((error.code, error.message.as_str()), (ErrorCode::SandboxNotFound, "gone"));
        assert_eq!(error.details["sandboxId"], "sb_aaaaaaaa");
    }
    assert_eq!(fixture.worked(), 1);
}

#[tokio::test]
async fn a_temporary_error_is_not_stored_whatever_its_status() {
    let fixture = Fixture::new();
    let refused = |_time| Err(ApiError::new(ErrorCode::InvalidConfig, "not there yet").temporary());
    let error = fixture.run_with(Some("k"), BODY, open(), refused).await.unwrap_err();
    assert_eq!(error.status().as_u16(), 400);
    assert_eq!(seen(fixture.run("k").await.unwrap()).await, (201, "{\"n\":1}".to_owned(), false));
}

#[tokio::test]
async fn a_response_that_cannot_be_stored_is_an_error() {
    let fixture = Fixture::new();
    let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
    fixture.store.fail_next_commit(StoreError::failed("commit", full));
    // Not RESOURCE_EXHAUSTED, after which clients would repeat what was done.
    assert_eq!(fixture.run("k").await.unwrap_err().code, ErrorCode::InternalError);
    assert_eq!(seen(fixture.run("k").await.unwrap()).await, (201, "{\"n\":1}".to_owned(), false));
}

#[tokio::test]
async fn another_daemon_answers_the_same() {
    let fixture = Fixture::new();
    fixture.run("k").await.unwrap();
    let next = Fixture::over(fixture.store.clone());
    assert_eq!(seen(next.run("k").await.unwrap()).await, first_response(true));
    assert_eq!(next.worked(), 0);
}

/// Stores the record of a response, as a create does in its own commit.
async fn commit_record(store: &MemoryStore, header: RecordHeader) {
    let record = row(&header.scope.key, header.request_hash, now(), header.expires_at);
    store.commit(Batch::new().idempotency_record(record)).await.unwrap();
}

#[tokio::test]
async fn a_committed_record_is_not_stored_twice() {
    let fixture = Fixture::new();
    let store = fixture.store.clone();
    let work = move |header: Option<RecordHeader>| async move {
        commit_record(&store, header.unwrap()).await;
        Ok(ReplayableResponse::committed(StatusCode::CREATED, Bytes::from_static(b"{\"n\":0}")))
    };
    let key = Some(Key("k".to_owned()));
    let first = fixture.idempotency.run(&caller("one"), CREATE, key, BODY, work).await.unwrap();
    assert_eq!(seen(first).await, first_response(false));
    assert_eq!(fixture.store.commits(), 1);
    assert_eq!(seen(fixture.run("k").await.unwrap()).await, first_response(true));
}

#[tokio::test]
async fn the_first_stored_record_wins() {
    let fixture = Fixture::new();
    let store = fixture.store.clone();
    // As another daemon on the same store would.
    let work = move |header: Option<RecordHeader>| async move {
        commit_record(&store, header.unwrap()).await;
        Err(ApiError::internal("the response is recorded already"))
    };
    let key = Some(Key("k".to_owned()));
    let first = fixture.idempotency.run(&caller("one"), CREATE, key, BODY, work).await.unwrap();
    assert_eq!(seen(first).await, first_response(true));
}

#[tokio::test]
async fn a_key_is_free_again_after_a_day() {
    let fixture = Fixture::new();
    let (begun, over) = (now().before(IDEMPOTENCY_VALID_MS + 1), now().before(1));
    fixture.store.commit(Batch::new().idempotency_record(row("k", [7; 32], begun, over))).await.unwrap();
    assert_eq!(seen(fixture.run("k").await.unwrap()).await, first_response(false));
    let kept = fixture.store.idempotency_record("one", CREATE, "k").await.unwrap().unwrap();
    let left = kept.expires_at.since(now());
    assert!((IDEMPOTENCY_VALID_MS - 60_000..=IDEMPOTENCY_VALID_MS).contains(&left), "{left}");
}

#[tokio::test]
async fn a_key_belongs_to_an_account_and_an_endpoint() {
    let fixture = Fixture::new();
    for (n, (account, endpoint)) in
        [("one", CREATE), ("two", CREATE), ("one", "POST /v1/sandboxes/sb_aaaaaaaa/execute")]
            .into_iter()
            .enumerate()
    {
        let work = move |_| async move { created(n) };
        let key = Some(Key("k".to_owned()));
        let response = fixture.idempotency.run(&caller(account), endpoint, key, BODY, work).await.unwrap();
        assert_eq!(seen(response).await, (201, format!("{{\"n\":{n}}}"), false));
    }
}

#[test]
fn one_key_of_visible_characters_is_accepted() {
    let of = |values: &[&[u8]]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HEADER, HeaderValue::from_bytes(value).unwrap());
        }
        key_of(&headers)
    };
    assert_eq!(of(&[]).unwrap(), None);
    assert_eq!(of(&[b"a~!"]).unwrap(), Some(Key("a~!".to_owned())));
    for bad in [&[&b""[..]][..], &[b"a b"], &[b"\xff"], &[&[b'k'; 256]], &[b"a", b"a"]] {
        let error = of(bad).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidRequest);
        assert!(error.message.starts_with("header Idempotency-Key"), "{}", error.message);
    }
}

fn row(key: &str, request_hash: [u8; 32], created_at: TimeMs, expires_at: TimeMs) -> IdempotencyRecord {
    IdempotencyRecord {
        account: "one".to_owned(),
        endpoint: CREATE.to_owned(),
        key: key.to_owned(),
        request_hash,
        status: 201,
        content: b"{\"n\":0}".to_vec(),
        created_at,
        expires_at,
    }
}
