//! Responses of the API about sandboxes, executions, ports, policies and events; accepted and revoked keys.

use std::collections::BTreeMap;

use e2e::service::Client;
use hyper::Method;
use serde_json::{Value, json};

use crate::{Installation, SANDBOXES, action_path, number, sandbox_path, small, text, wait_until};

/// The responses of the previous daemon, by path, and its events, oldest first.
pub struct Records {
    views: BTreeMap<String, (u16, Value)>,
    events: Vec<Value>,
}

impl Records {
    pub async fn take(client: &Client) -> Self {
        let list = format!("{SANDBOXES}?limit=100");
        let listed = client.get(&list).await.unwrap().is(200).unwrap();
        let mut paths = vec![list, "/v1/images".to_owned(), format!("{SANDBOXES}?metadata.user=4711")];
        for sandbox in listed["data"].as_array().unwrap() {
            let id = text(&sandbox["id"]);
            paths.push(sandbox_path(&id));
            paths.extend(["ports", "network", "executions?limit=100"].map(|what| action_path(&id, what)));
        }
        let mut views = BTreeMap::new();
        for path in paths {
            let view = view(client, &path).await;
            views.insert(path, view);
        }
        Self { views, events: events(client).await }
    }

    pub async fn verify(&self, client: &Client) {
        for (path, (status, before)) in &self.views {
            let (now, after) = view(client, path).await;
            assert_eq!(now, *status, "{path}: {after}");
            assert_kept(path, before, &after);
        }
        let after = events(client).await;
        assert!(after.len() >= self.events.len(), "{} of {} events", after.len(), self.events.len());
        for (before, after) in self.events.iter().zip(&after) {
            assert_kept("events", before, after);
        }
        self.verify_stream(client).await;
        self.verify_filters(client).await;
    }

    /// A stream that continues after an event of the previous daemon misses none.
    async fn verify_stream(&self, client: &Client) {
        let (seen, rest) = self.events.split_at(self.events.len() / 2);
        let last = text(&seen.last().unwrap()["id"]);
        let client = client.with_own_connections();
        let call = client.call(Method::GET, "/v1/events").header("last-event-id", &last);
        let mut stream = call.stream().await.unwrap();
        for expected in rest {
            assert_kept("stream", expected, &stream.next().await.unwrap().unwrap().json().unwrap());
        }
    }

    async fn verify_filters(&self, client: &Client) {
        for (query, fits) in [
            ("type=sandbox.*", (|event| text(&event["type"]).starts_with("sandbox.")) as fn(&Value) -> bool),
            ("runId=run-before", |event| event["runId"] == "run-before"),
        ] {
            let expected = self.events.iter().filter(|event| fits(event)).count() as u64;
            let page = client.get(&format!("/v1/events?{query}&limit=1")).await.unwrap().is(200).unwrap();
            assert!(expected > 0 && number(&page["pagination"]["total"]) >= expected, "{query}: {page}");
        }
    }
}

/// A response without the fields that may differ: messages, traffic, and the output of running executions.
async fn view(client: &Client, path: &str) -> (u16, Value) {
    let answer = client.get(path).await.unwrap();
    let mut body = answer.json().unwrap();
    let object = body.as_object_mut().unwrap();
    object.remove("usage");
    if let Some(error) = object.get_mut("error").and_then(Value::as_object_mut) {
        error.remove("message");
        error.remove("requestId");
    }
    for item in object.get_mut("data").and_then(Value::as_array_mut).into_iter().flatten() {
        if item["state"] == "running" {
            item.as_object_mut().unwrap().remove("outputEnd");
        }
    }
    (answer.status, body)
}

/// All events of the account.
async fn events(client: &Client) -> Vec<Value> {
    let (mut events, mut after) = (Vec::<Value>::new(), "ev_0000000000000000".to_owned());
    loop {
        let path = format!("/v1/events?limit=100&after={after}");
        let page = client.get(&path).await.unwrap().is(200).unwrap();
        events.extend(page["data"].as_array().unwrap().iter().cloned());
        if page["pagination"]["hasMore"] == false {
            return events;
        }
        after = text(&events.last().unwrap()["id"]);
    }
}

/// Everything in `before` is in `after`. Fields may be added.
fn assert_kept(what: &str, before: &Value, after: &Value) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in before {
                let now = after.get(key).unwrap_or_else(|| panic!("{what}.{key} is missing in {after:?}"));
                assert_kept(&format!("{what}.{key}"), value, now);
            }
        }
        (Value::Array(before), Value::Array(now)) => {
            assert_eq!(before.len(), now.len(), "{what}: {after}");
            for (before, now) in before.iter().zip(now) {
                assert_kept(what, before, now);
            }
        }
        _ => assert_eq!(before, after, "{what}"),
    }
}

/// Clients with keys that the previous daemon created.
pub struct Keys {
    local: Client,
    reader: Client,
    revoked: Client,
}

impl Keys {
    pub async fn prepare(installation: &Installation) -> Self {
        let service = &installation.service;
        let local = std::fs::read_to_string(service.layout.data.join("local.key")).unwrap();
        let local = service.client(local.trim()).unwrap();
        let reader = service.client_with_new_key("reader", "read").await.unwrap();
        let revoked = service.client_with_new_key("revoked", "read").await.unwrap();
        let program = |arguments: &[&str]| {
            let output = service.program().unwrap().arg("key").args(arguments).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            output.stdout
        };
        let listed: Value = serde_json::from_slice(&program(&["list", "--json"])).unwrap();
        let keys = listed.as_array().unwrap();
        let key = keys.iter().find(|key| key["account"] == "revoked").unwrap();
        program(&["revoke", key["id"].as_str().unwrap()]);
        let keys = Self { local, reader, revoked };
        wait_until("the key is revoked", async || keys.revoked.get(SANDBOXES).await.unwrap().status == 401)
            .await;
        keys
    }

    /// These clients trust only the certificate of the previous daemon.
    pub async fn verify(&self) {
        self.local.with_own_connections().get(SANDBOXES).await.unwrap().is(200).unwrap();
        let reader = self.reader.with_own_connections();
        reader.get(SANDBOXES).await.unwrap().is(200).unwrap();
        reader.post(SANDBOXES, &small()).await.unwrap().error(403, "FORBIDDEN").unwrap();
        let other = reader.get(&format!("{SANDBOXES}?limit=1")).await.unwrap().is(200).unwrap();
        assert_eq!(other["pagination"]["total"], json!(0), "sandboxes of another account");
        self.revoked.with_own_connections().get(SANDBOXES).await.unwrap().error(401, "UNAUTHORIZED").unwrap();
    }
}
