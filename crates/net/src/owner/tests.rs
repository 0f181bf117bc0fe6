use std::sync::{Arc, Mutex, mpsc as std_mpsc};
use std::time::{Duration, Instant};

use super::*;

#[derive(Default)]
struct List {
    entries: Vec<u32>,
    repaired: u32,
    repair_fails: bool,
}

impl Owned for List {
    fn after_panic(&mut self) {
        assert!(!self.repair_fails, "expected by a test");
        self.repaired += 1;
    }
}

fn list() -> OwnerThread<List> {
    OwnerThread::spawn("test", List::default()).unwrap()
}

#[tokio::test]
async fn requests_run_in_the_order_in_which_they_were_queued() {
    let owner = list();
    for number in 0..500 {
        // Queued without waiting for the previous one.
        let (request, _) = request("append", move |list: &mut List| {
            list.entries.push(number);
            Ok(())
        });
        owner.send(request).await.unwrap();
    }
    let entries = owner.call("read", |list| Ok(list.entries.clone())).await.unwrap();
    assert_eq!(entries, (0..500).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_slow_request_does_not_block_the_async_worker() {
    let owner = Arc::new(list());
    let (go, wait) = std_mpsc::channel::<()>();
    let slow = tokio::spawn({
        let owner = Arc::clone(&owner);
        async move { owner.call("wait", move |_| Ok(wait.recv().is_ok())).await }
    });
    let since = Instant::now();
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(since.elapsed() < Duration::from_secs(5) && !slow.is_finished());
    go.send(()).unwrap();
    assert!(slow.await.unwrap().unwrap());
}

#[tokio::test]
async fn the_queue_is_bounded() {
    let owner = Arc::new(list());
    let (go, wait) = std_mpsc::channel::<()>();
    let mut calls: Vec<_> = vec![tokio::spawn({
        let owner = Arc::clone(&owner);
        async move { owner.call("wait", move |_| Ok(wait.recv().is_ok())).await }
    })];
    calls.extend((0..2 * QUEUE_MAX).map(|_| {
        let owner = Arc::clone(&owner);
        tokio::spawn(async move { owner.call("nothing", |_| Ok(true)).await })
    }));
    let since = Instant::now();
    while owner.requests.capacity() > 0 {
        assert!(since.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(owner.requests.max_capacity(), QUEUE_MAX);
    go.send(()).unwrap();
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_panic_fails_only_its_own_request() {
    let owner = list();
    let failed = owner.call::<()>("divide", |_| panic!("expected by a test")).await.unwrap_err();
    assert!(failed.to_string().contains("cannot divide: the thread test panicked"), "{failed}");
    assert_eq!(owner.call("read", |list| Ok(list.repaired)).await.unwrap(), 1);
}

#[tokio::test]
async fn later_requests_fail_after_the_end_of_the_thread() {
    let owner = list();
    owner
        .call("prepare", |list| {
            list.repair_fails = true;
            Ok(())
        })
        .await
        .unwrap();
    owner.call::<()>("divide", |_| panic!("expected by a test")).await.unwrap_err();
    let since = Instant::now();
    loop {
        let failed = owner.call("read", |_| Ok(())).await.unwrap_err().to_string();
        if failed.contains("cannot read: the thread test has ended; restart the daemon") {
            return;
        }
        assert!(since.elapsed() < Duration::from_secs(5), "{failed}");
    }
}

#[tokio::test]
async fn an_abandoned_request_is_undone_or_not_started() {
    let owner = Arc::new(list());
    let (go, wait) = std_mpsc::channel::<()>();
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let undone = Arc::new(Mutex::new(0));
    let running = tokio::spawn({
        let (owner, undone) = (Arc::clone(&owner), Arc::clone(&undone));
        async move {
            let work = move |list: &mut List| {
                let _ = begun.send(());
                let _ = wait.recv();
                list.entries.push(1);
                Ok(())
            };
            owner.call_or_undo("append", work, move |_| *undone.lock().unwrap() += 1).await
        }
    });
    has_begun.await.unwrap();
    let queued = tokio::spawn({
        let owner = Arc::clone(&owner);
        async move {
            owner
                .call_or_undo(
                    "append",
                    |list| {
                        list.entries.push(2);
                        Ok(())
                    },
                    |_| {},
                )
                .await
        }
    });
    let since = Instant::now();
    while owner.requests.capacity() == QUEUE_MAX {
        assert!(since.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    running.abort();
    queued.abort();
    assert!(running.await.is_err() && queued.await.is_err());
    go.send(()).unwrap();
    assert_eq!(owner.call("read", |list| Ok(list.entries.clone())).await.unwrap(), [1]);
    assert_eq!(*undone.lock().unwrap(), 1);
}
