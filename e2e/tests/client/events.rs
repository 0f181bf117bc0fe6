//! Events of a real service through the client library.

use std::time::Duration;

use e2e::service::Service;
use e2e::wait_until;
use futures_util::{StreamExt, TryStreamExt};
use sandboxd_client::{Code, EventKind, LlmCost, Run, RuntimeEvent};

use crate::{at, client, code, key, service};

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_run_are_in_one_list() {
    let service = service().await;
    let client = client(&service).await;
    let run = Run::with_id("nightly-17");
    let sandbox = client.create(Service::image()).run(&run).await.unwrap();
    let run = run.to_service(&sandbox);
    run.thinking("first");
    sandbox.execute("echo hi").await.unwrap();
    sandbox.files().write("a", "a").await.unwrap();
    run.llm_cost(&LlmCost {
        model: "m".into(),
        input_tokens: 1,
        output_tokens: 2,
        amount: 0.5,
        currency: "USD".into(),
    });
    run.delivered().await.unwrap();
    let run_events = || client.events().run("nightly-17");
    let kinds = async || -> Vec<EventKind> {
        run_events().stream().map(|event| event.unwrap().kind).collect::<Vec<_>>().await
    };
    // Events of commands become visible some milliseconds later.
    wait_until("all events are visible", async || kinds().await.len() >= 5).await;
    let mut found = kinds().await;
    found.sort_by_key(|kind| kind.as_str());
    use EventKind::*;
    assert_eq!(found, [AgentThinking, CostLlm, ExecCompleted, ExecStarted, FileCreated]);
    let cost = run_events().kind(CostLlm).page(0).await.unwrap().data.remove(0);
    assert_eq!((cost.data["amount"].as_f64(), cost.sandbox_id.as_ref()), (Some(0.5), Some(sandbox.id())));
    assert_eq!(code(client.events().kinds("no.such").page(0).await), Code::InvalidRequest);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_events_is_complete_in_both_orders_and_after_termination() {
    let service = service().await;
    let client = client(&service).await;
    let sandbox = client.create(Service::image()).await.unwrap();
    for n in 0..25 {
        sandbox.execute(format!("exit {n}")).await.unwrap();
    }
    sandbox.terminate().await.unwrap();
    let ascending: Vec<RuntimeEvent> = sandbox.events().page_size(7).stream().try_collect().await.unwrap();
    assert_eq!(ascending.len(), 2 + 25 * 2 + 1);
    assert!(ascending.is_sorted_by_key(|event| event.id));
    assert_eq!(ascending.last().unwrap().kind, EventKind::SandboxTerminated);
    let mut descending: Vec<RuntimeEvent> =
        sandbox.events().newest_first().page_size(7).stream().try_collect().await.unwrap();
    descending.reverse();
    assert_eq!(ascending, descending);
    let after = ascending[40].id;
    let rest: Vec<RuntimeEvent> =
        sandbox.events().after(after).page_size(5).stream().try_collect().await.unwrap();
    assert_eq!(rest, ascending[41..]);
    let descending: Vec<RuntimeEvent> =
        sandbox.events().after(after).newest_first().page_size(5).stream().try_collect().await.unwrap();
    assert_eq!(descending.len(), rest.len());
    assert_eq!(code(client.sandbox("sb_00000000").unwrap().events().page(0).await), Code::SandboxNotFound);
}

/// The daemon is killed repeatedly; a follower receives every acknowledged event exactly once and in order.
#[tokio::test(flavor = "multi_thread")]
async fn a_followed_event_stream_survives_kills_of_the_daemon() {
    let kills: u32 = std::env::var("SANDBOXD_EVENT_KILLS").map_or(5, |text| text.parse().unwrap());
    let service = service().await;
    let client = at(&service).key(key(&service).await).retries(10).build().unwrap();
    let sandbox = client.create(Service::image()).timeout(Duration::from_secs(3600)).await.unwrap();
    let of_account = client.events().kinds("sandbox.*").follow().await.unwrap();
    let of_sandbox = sandbox.events().kinds("sandbox.*").follow().await.unwrap();
    let mut expected = Vec::new();
    for kill in 0..kills {
        for (resumed, kind) in [(false, EventKind::SandboxPaused), (true, EventKind::SandboxResumed)] {
            if resumed {
                drop(sandbox.resume().await.unwrap());
            } else {
                drop(sandbox.pause().await.unwrap());
            }
            expected.push(kind);
        }
        service.kill().unwrap();
        if kill % 2 == 1 {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        service.start_process().await.unwrap();
    }
    // Kill again before the last event: the stream must reconnect and continue.
    service.kill().unwrap();
    service.start_process().await.unwrap();
    sandbox.terminate().await.unwrap();
    expected.push(EventKind::SandboxTerminated);
    let received: Vec<RuntimeEvent> = of_sandbox.try_collect().await.unwrap();
    assert_eq!(received.iter().map(|event| event.kind).collect::<Vec<_>>(), expected);
    let account_events: Vec<RuntimeEvent> = of_account.take(expected.len()).try_collect().await.unwrap();
    assert_eq!(account_events, received);
}
