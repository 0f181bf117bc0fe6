use api::ErrorCode;
use axum::http::StatusCode;
use http_body_util::BodyExt;

use super::*;

const MIB: usize = 1 << 20;

#[tokio::test(start_paused = true)]
async fn an_account_with_unread_responses_waits_is_refused_and_still_runs_small_commands() {
    let memory = OutputMemory::default();
    let [one, two]: [Arc<str>; 2] = ["one".into(), "two".into()];
    let mut first = memory.response(&one);
    first.start().await.unwrap();
    first.cover(32 * MIB).await.unwrap();
    // 36 MiB of 48 are for large outputs.
    let mut second = memory.response(&one);
    second.cover(4 * MIB).await.unwrap();
    let began = tokio::time::Instant::now();
    assert_eq!(second.reserve(5 * MIB).await, Err(Exhausted::OfAccount));
    assert!((5..=10).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    // The other account has 12 MiB, and small outputs have a budget of their own.
    memory.response(&two).cover(12 * MIB).await.unwrap();
    for account in [&one, &two] {
        let mut small = memory.response(account);
        small.start().await.unwrap();
        small.cover(SMALL_BYTES).await.unwrap();
    }
    drop(second);
    let mut third = memory.response(&one);
    let (covered, ()) = tokio::join!(third.cover(8 * MIB), async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        drop(first);
    });
    covered.unwrap();
    drop(third);
    assert_eq!((memory.reserved_bytes(), memory.large_responses.load(Ordering::Relaxed)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn commands_are_refused_before_they_start_when_even_small_outputs_do_not_fit() {
    let memory = OutputMemory::new(4 * MIB, 4 * MIB, 1024);
    let account: Arc<str> = "one".into();
    let mut held = Vec::new();
    for _ in 0..16 {
        let mut small = memory.response(&account);
        small.cover(SMALL_BYTES).await.unwrap();
        held.push(small);
    }
    let refused = memory.response(&account).start().await.unwrap_err();
    assert_eq!(
        (refused.code, refused.details["commandStarted"].as_bool()),
        (ErrorCode::ResourceExhausted, Some(false))
    );
    assert_eq!(refused.details["key"], "limits.buffered_output_bytes_per_account");
    assert_eq!((refused.details["value"].as_u64(), refused.retry_after_s), (Some(4 << 20), Some(RETRY_S)));
    held.pop();
    memory.response(&account).start().await.unwrap();
}

#[tokio::test]
async fn large_responses_of_other_endpoints_count_until_they_are_read() {
    let memory = OutputMemory::default();
    let account: Arc<str> = "one".into();
    let response = |bytes: usize| Response::new(Body::from(vec![b'x'; bytes]));
    let _small = memory.count(&account, response(1000)).unwrap();
    let large: Vec<_> = (0..36).map(|_| memory.count(&account, response(MIB)).unwrap()).collect();
    assert_eq!(memory.reserved_bytes(), 36 * MIB);
    let refused = memory.count(&account, response(MIB)).unwrap_err();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    for response in large {
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), MIB);
    }
    assert_eq!(memory.reserved_bytes(), 0);
}

#[test]
fn the_budget_always_holds_one_command_of_the_largest_output() {
    for most in [1024, 16 << 20, 1 << 30] {
        let memory = OutputMemory::new(1, 1, most);
        let mut one = memory.response(&"one".into());
        one.try_reserve(2 * most).unwrap();
    }
}
