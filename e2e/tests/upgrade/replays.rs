//! Idempotency records: a repeated request gets the response of the previous daemon and is not carried out again.

use e2e::service::{Client, HttpResponse};
use serde_json::{Value, json};

use crate::{SANDBOXES, action_path, create_sandbox, number, output, sandbox_path, small, text, with};

pub struct Replays {
    /// A sandbox in which keyed requests were carried out.
    id: String,
    first: Vec<HttpResponse>,
}

/// One request of each endpoint that takes a key.
fn requests(id: &str) -> [(String, Value, u16); 5] {
    let event = json!([{ "type": "agent.tool_call", "runId": "run-before", "data": { "tool": "search" } }]);
    [
        (SANDBOXES.to_owned(), with(small(), "metadata", json!({ "order": "1" })), 201),
        (SANDBOXES.to_owned(), json!({ "image": "no-such:image" }), 400),
        (action_path(id, "execute"), json!({ "command": "echo once >> /once; wc -l < /once" }), 200),
        (action_path(id, "ports"), json!({ "port": 9000 }), 201),
        (action_path(id, "events"), event, 201),
    ]
}

impl Replays {
    pub async fn prepare(client: &Client) -> Self {
        let id = create_sandbox(client, &small()).await;
        let mut first = Vec::new();
        for (number, (path, body, status)) in requests(&id).into_iter().enumerate() {
            let answer = send(client, &path, number, &body).await;
            assert_eq!(answer.status, status, "{path}: {}", answer.text());
            first.push(answer);
        }
        // A terminated sandbox stays in lists, and the response to its create can be replayed.
        let gone = with(small(), "metadata", json!({ "order": "2" }));
        let answer = send(client, SANDBOXES, first.len(), &gone).await;
        client.delete(&sandbox_path(&text(&answer.json().unwrap()["id"]))).await.unwrap().is(200).unwrap();
        first.push(answer);
        Self { id, first }
    }

    pub async fn verify(&self, client: &Client) {
        let before = client.get(SANDBOXES).await.unwrap().is(200).unwrap();
        let posted = async || {
            let page = client.get("/v1/events?type=agent.tool_call").await.unwrap().is(200).unwrap();
            number(&page["pagination"]["total"])
        };
        let events = posted().await;
        let gone = with(small(), "metadata", json!({ "order": "2" }));
        let repeated = requests(&self.id).into_iter().chain([(SANDBOXES.to_owned(), gone, 201)]);
        for (number, ((path, body, status), first)) in repeated.zip(&self.first).enumerate() {
            let again = send(client, &path, number, &body).await;
            assert_eq!(again.header("idempotency-replayed"), Some("true"), "{path}: {}", again.text());
            assert_eq!(again.status, status, "{path}");
            if status < 400 {
                assert_eq!(again.body, first.body, "{path}");
            } else {
                let code = |answer: &HttpResponse| text(&answer.json().unwrap()["error"]["code"]);
                assert_eq!(code(&again), code(first));
            }
        }
        // The same key with another body is refused.
        let other = with(small(), "metadata", json!({ "order": "3" }));
        send(client, SANDBOXES, 0, &other).await.error(400, "INVALID_REQUEST").unwrap();
        let after = client.get(SANDBOXES).await.unwrap().is(200).unwrap();
        assert_eq!(after["pagination"]["total"], before["pagination"]["total"], "a replay created a sandbox");
        assert_eq!(posted().await, events, "a replay recorded an event");
        assert_eq!(output(client, &self.id, "wc -l < /once").await, "1\n");
    }
}

async fn send(client: &Client, path: &str, number: usize, body: &Value) -> HttpResponse {
    let key = format!("key-{number}");
    let call = client.call(hyper::Method::POST, path).header("idempotency-key", &key);
    call.json(body).send().await.unwrap()
}
