//! `kill -9` of the daemon during builds: accepted builds are completed by the next daemon unless two kills hit the same step, finished
//! steps are not repeated, deleted templates stay deleted, and nothing is left over.

use std::collections::BTreeSet;
use std::time::Duration;

use e2e::Expected;
use e2e::service::{Client, Service, ServiceOptions, with};
use rand::RngExt;
use serde_json::{Value, json};

use crate::templates::{TEMPLATES, body, context, create_from, finished, path};
use crate::{SANDBOXES, output, rounds, sandbox_path, text, wait_until};

const ROUNDS: u32 = 10;

/// What a client has seen.
#[derive(Debug, Default)]
struct Seen {
    accepted: BTreeSet<String>,
    deleted: BTreeSet<String>,
}

fn request(number: u64) -> Value {
    // The first steps are the same in all builds.
    let instructions = format!(
        "RUN head -c 2000000 /dev/urandom > /base\nCOPY file /file\nRUN sleep 0.2; echo {} > /shared\nWORKDIR /srv\n\
         RUN sleep 0.1; echo {number} > own; cat /file >> own",
        number / 3
    );
    let files = [("file", format!("content {}\n", number / 2))];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, content)| (*name, content.as_str())).collect();
    let start = "while true; do sleep 1; done";
    let asked = with(body("killed", &instructions), "context", json!(context(&files)));
    match number % 4 {
        0 => with(asked, "startCommand", json!(start)),
        _ => asked,
    }
}

/// Requests and deletes builds until the daemon dies.
async fn work(client: Client, mut seen: Seen, first: u64) -> (Seen, u64) {
    let mut number = first;
    loop {
        number += 1;
        let key = format!("build-{number}");
        let call = client.call(hyper::Method::POST, TEMPLATES).header("idempotency-key", &key);
        let Ok(answer) = call.json(&request(number)).send().await else { return (seen, number - 1) };
        if answer.status == 429 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            number -= 1;
            continue;
        }
        seen.accepted.insert(text(&answer.is(201).unwrap()["id"]));
        if rand::rng().random_range(0..4) == 0 {
            let id = seen.accepted.pop_first().unwrap();
            // It is gone, or the request had no effect.
            seen.deleted.insert(id.clone());
            let Ok(answer) = client.delete(&path(&id)).await else { return (seen, number) };
            answer.is(200).unwrap();
        }
        let pause = rand::rng().random_range(0..400);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

#[tokio::test]
async fn accepted_builds_survive_kills_of_the_daemon() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let (mut seen, mut number) = (Seen::default(), 0);
    for _ in 0..rounds(ROUNDS) {
        let working = tokio::spawn(work(client.with_own_connections(), seen, number));
        tokio::time::sleep(Duration::from_millis(rand::rng().random_range(20..2500))).await;
        service.kill().unwrap();
        (seen, number) = working.await.unwrap();
        service.start_process().await.unwrap();
    }
    let mut ready = 0;
    for id in seen.accepted.clone() {
        let template = finished(&client, &id).await;
        if template["state"] == "failed" {
            let message = text(&template["error"]["message"]);
            assert!(message.contains("ended unexpectedly 2 times"), "{template}");
            continue;
        }
        assert_eq!(template["state"], "ready", "{template}");
        ready += 1;
        let sandbox = create_from(&client, &id).await;
        let content = output(&client, &sandbox, "wc -c < /base; wc -l < /srv/own; pwd").await;
        assert_eq!(content.split_whitespace().collect::<Vec<_>>(), ["2000000", "2", "/srv"], "{template}");
        client.delete(&sandbox_path(&sandbox)).await.unwrap().is(200).unwrap();
    }
    // Each kill interrupts the two builds that run, and the second one at the same step ends a build.
    let given_up = seen.accepted.len() - ready;
    assert!(
        given_up <= rounds(ROUNDS) as usize,
        "{given_up} of {} builds were given up",
        seen.accepted.len()
    );
    let known = |id: &String| seen.accepted.contains(id) || seen.deleted.contains(id);
    let mut unknown = 0;
    for _ in 0..=rounds(ROUNDS) {
        let listed = client.get(&format!("{TEMPLATES}?limit=100")).await.unwrap().is(200).unwrap();
        let page = listed["data"].as_array().unwrap();
        if page.is_empty() {
            break;
        }
        for id in page.iter().map(|template| text(&template["id"])) {
            unknown += u32::from(!known(&id));
            finished(&client, &id).await;
            client.delete(&path(&id)).await.unwrap().is(200).unwrap();
        }
    }
    // The response to at most one request a round was lost.
    assert!(unknown <= rounds(ROUNDS), "{unknown} unknown templates");
    nothing_is_left(&service, &client).await;
}

async fn nothing_is_left(service: &Service, client: &Client) {
    wait_until("the steps are deleted", async || {
        let usage = client.get("/v1/usage").await.unwrap().is(200).unwrap();
        usage["snapshotBytes"]["used"] == 0 && usage["sandboxes"]["used"] == 0
    })
    .await;
    let running = client.get(&format!("{SANDBOXES}?state=running")).await.unwrap().is(200).unwrap();
    assert_eq!(running["pagination"]["total"], 0, "{running}");
    let files = std::fs::read_dir(service.layout.data.join("builds")).unwrap();
    let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    assert_eq!(files, Vec::<std::path::PathBuf>::new());
    let expected = Expected { daemon: service.pid(), ..Expected::default() };
    assert_eq!(e2e::wait_for_resources(&service.layout, &expected).await, Vec::<String>::new());
}
