//! Section 4.6: deleting a sandbox, after which nothing of it is on the host.

use e2e::Expected;
use e2e::service::{Service, ServiceOptions};
use serde_json::json;

use crate::{at, created, output, user, verb};

#[tokio::test]
async fn nothing_of_it_stays_on_the_host() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let (stays, goes, sleeps) = (created(&client).await, created(&client).await, created(&client).await);
    output(&client, &goes, "head -c 10000000 /dev/urandom > file; sleep 600 > /dev/null 2>&1 &").await;
    client.order(&verb(&sleeps, "pause")).await.unwrap().is(200).unwrap();
    for id in [&goes, &sleeps] {
        client.delete(&at(id)).await.unwrap().is(200).unwrap();
    }
    let alive = [stays.parse().unwrap()].into();
    let expected = Expected { alive, daemon: service.pid(), ..Expected::default() };
    assert_eq!(strays(&service, &expected).await, Vec::<String>::new());
    assert_eq!(output(&client, &stays, "echo here").await, "here\n");
}

/// What stands on the host and should not; the service's own files are named otherwise than any sandbox's.
async fn strays(service: &Service, expected: &Expected) -> Vec<String> {
    e2e::settled(&service.place, expected).await
}

#[tokio::test]
async fn a_command_that_runs_is_told() {
    let (_service, client) = user().await;
    let id = created(&client).await;
    let command = json!({ "command": "touch begun; sleep 60" });
    let running = {
        let (client, path) = (client.apart(), verb(&id, "execute"));
        tokio::spawn(async move { client.post(&path, &command).await.unwrap() })
    };
    crate::until("the command has begun", async || output(&client, &id, "ls").await == "begun\n").await;
    client.delete(&at(&id)).await.unwrap().is(200).unwrap();
    let result = running.await.unwrap().is(200).unwrap();
    assert_eq!((&result["exitCode"], &result["signal"]), (&json!(null), &json!("SIGKILL")));
}

#[tokio::test]
async fn of_many_at_once_one_deletes() {
    let (_service, client) = user().await;
    let id = created(&client).await;
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let (client, path) = (client.clone(), at(&id));
            tokio::spawn(async move { client.delete(&path).await.unwrap().status })
        })
        .collect();
    let mut statuses = Vec::new();
    for call in calls {
        statuses.push(call.await.unwrap());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 404, 404, 404, 404, 404, 404, 404]);
}
