//! `kill -9` of the daemon in the middle of requests of each kind: nothing that was answered is lost, nothing is half done, and
//! the next process serves on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use e2e::Expected;
use e2e::service::{Client, Service, ServiceOptions};
use hyper::Method;
use rand::RngExt;
use serde_json::json;

use crate::{SANDBOXES, at, output, small, text, verb};

const ROUNDS: u32 = 6;
const CLIENTS: u32 = 4;

/// What has been answered of a sandbox, and whether a request was under way when the daemon died.
#[derive(Debug, Clone, Default)]
struct Known {
    state: &'static str,
    /// Asked for and never answered: it may have come about or not.
    perhaps: Option<&'static str>,
    /// Commands that were answered, and one that was not.
    marks: u32,
    mark_perhaps: bool,
}

type Book = Arc<Mutex<BTreeMap<String, Known>>>;

#[tokio::test]
async fn nothing_that_was_answered_is_lost() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let book = Book::default();
    for round in 0..ROUNDS {
        let workers: Vec<_> = (0..CLIENTS)
            .map(|n| tokio::spawn(work(client.apart(), Arc::clone(&book), format!("{round}-{n}"))))
            .collect();
        tokio::time::sleep(Duration::from_millis(150 + rand::rng().random_range(0..500))).await;
        service.kill().unwrap();
        let mut unanswered = Vec::new();
        for worker in workers {
            unanswered.extend(worker.await.unwrap());
        }
        service.boot().await.unwrap();
        // A create that was not answered is asked for again under its key, and is then in the book.
        let client = client.apart();
        for key in unanswered {
            let answer = client
                .call(Method::POST, SANDBOXES)
                .header("idempotency-key", &key)
                .json(&small())
                .send()
                .await
                .unwrap();
            let id = text(&answer.is(201).unwrap()["id"]);
            book.lock().unwrap().insert(id, Known { state: "running", ..Known::default() });
        }
        check(&client, &book).await;
        // Room for the next round.
        let ids: Vec<String> = book.lock().unwrap().keys().cloned().collect();
        for id in ids.iter().skip(4) {
            client.delete(&at(id)).await.unwrap();
            book.lock().unwrap().get_mut(id).unwrap().state = "terminated";
        }
        let living = living(&book);
        let total = client.get(&format!("{SANDBOXES}?limit=1")).await.unwrap().is(200).unwrap()["pagination"]
            ["total"]
            .clone();
        assert_eq!(
            total,
            json!(book.lock().unwrap().len()),
            "round {round}: sandboxes that nobody was told of"
        );
        let expected = Expected { alive: living, daemon: service.pid(), ..Expected::default() };
        assert_eq!(e2e::settled(&service.place, &expected).await, Vec::<String>::new(), "round {round}");
    }
}

fn living(book: &Book) -> std::collections::BTreeSet<api::SandboxId> {
    let book = book.lock().unwrap();
    book.iter().filter(|(_, known)| known.state != "terminated").map(|(id, _)| id.parse().unwrap()).collect()
}

/// Requests of each kind until the daemon dies. Gives the key of a create that was not answered.
async fn work(client: Client, book: Book, name: String) -> Option<String> {
    for turn in 0.. {
        let key = format!("{name}-{turn}");
        let call = client.call(Method::POST, SANDBOXES).header("idempotency-key", &key).json(&small());
        let Ok(answer) = call.send().await else { return Some(key) };
        let id = text(&answer.is(201).unwrap()["id"]);
        book.lock().unwrap().insert(id.clone(), Known { state: "running", ..Known::default() });
        let note = |change: &dyn Fn(&mut Known)| change(book.lock().unwrap().get_mut(&id).unwrap());
        for _ in 0..2 {
            note(&|known| known.mark_perhaps = true);
            let body = json!({ "command": "echo x >> /marks; sync" });
            let Ok(answer) = client.post(&verb(&id, "execute"), &body).await else { return None };
            answer.is(200).unwrap();
            note(&|known| (known.mark_perhaps, known.marks) = (false, known.marks + 1));
        }
        for (word, state) in [("pause", "paused"), ("resume", "running"), ("pause", "paused")] {
            note(&|known| known.perhaps = Some(state));
            let Ok(answer) = client.order(&verb(&id, word)).await else { return None };
            answer.is(200).unwrap();
            note(&|known| (known.state, known.perhaps) = (state, None));
        }
        if turn % 2 == 1 {
            note(&|known| known.perhaps = Some("terminated"));
            let Ok(answer) = client.delete(&at(&id)).await else { return None };
            answer.is(200).unwrap();
            note(&|known| (known.state, known.perhaps) = ("terminated", None));
        }
    }
    None
}

/// Each sandbox is in the state that was answered, or in the one that was asked for when the daemon died; and holds its files.
async fn check(client: &Client, book: &Book) {
    let all: Vec<(String, Known)> =
        book.lock().unwrap().iter().map(|(id, known)| (id.clone(), known.clone())).collect();
    for (id, known) in all {
        let answer = client.get(&at(&id)).await.unwrap();
        let state = match answer.status {
            404 => "terminated".to_owned(),
            _ => text(&answer.is(200).unwrap()["state"]),
        };
        let allowed = [Some(known.state), known.perhaps];
        let now = allowed.into_iter().flatten().find(|allowed| *allowed == state);
        let now = now.unwrap_or_else(|| panic!("{id} is {state}, and was told to be {known:?}"));
        let mut settled = Known { state: now, ..known.clone() };
        (settled.perhaps, settled.mark_perhaps) = (None, false);
        if now != "terminated" {
            let marks: u32 =
                output(client, &id, "cat /marks 2>/dev/null | wc -l").await.trim().parse().unwrap();
            let most = known.marks + u32::from(known.mark_perhaps);
            assert!(
                (known.marks..=most).contains(&marks),
                "{id} has {marks} marks, and was told of {known:?}"
            );
            // Executing has woken it.
            (settled.marks, settled.state) = (marks, "running");
        }
        book.lock().unwrap().insert(id, settled);
    }
}

/// A stream breaks off with its daemon: its command is ended with it, and its sandbox serves on.
#[tokio::test]
async fn a_stream_dies_with_its_daemon_and_not_its_sandbox() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = crate::created(&client).await;
    let body = json!({ "command": "echo begun; while :; do date +%s%N > /beat; sleep 0.02; done" });
    let mut events =
        client.apart().call(Method::POST, &verb(&id, "execute")).json(&body).stream().await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().data, "begun");
    service.kill().unwrap();
    assert!(!matches!(events.next().await, Ok(Some(_))), "an event after the end");
    service.boot().await.unwrap();
    let client = client.apart();
    crate::until("its command is dead", async || {
        // It may have died between emptying the file and writing it, so an empty one is an answer too.
        output(&client, &id, "was=$(cat /beat); sleep 0.3; [ \"$was\" = \"$(cat /beat)\" ] && echo dead")
            .await
            == "dead\n"
    })
    .await;
}
