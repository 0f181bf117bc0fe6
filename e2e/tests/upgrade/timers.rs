//! Timers that the previous daemon started end under the current one.

use e2e::service::Client;
use hyper::Method;
use serde_json::{Value, json};

use crate::{create_sandbox, sandbox_path, small, state, text, wait_until, with};

/// Longer than everything between the creation of these sandboxes and the end of the previous daemon.
const TIMEOUT_MS: u64 = 20_000;
const DAY_MS: u64 = 86_400_000;

pub struct Timers {
    idle: String,
    short: String,
    changed: String,
}

impl Timers {
    pub async fn prepare(client: &Client) -> Self {
        let idle = create_sandbox(client, &with(small(), "idleTimeoutMs", json!(TIMEOUT_MS))).await;
        let short = create_sandbox(client, &with(small(), "timeoutMs", json!(TIMEOUT_MS))).await;
        let changed = create_sandbox(client, &with(small(), "timeoutMs", json!(DAY_MS / 2))).await;
        Self { idle, short, changed }
    }

    pub async fn verify(&self, client: &Client) {
        self.change_timeout(client).await;
        wait_until("the idle sandbox is paused", async || state(client, &self.idle).await == "paused").await;
        let ended = async || client.get(&sandbox_path(&self.short)).await.unwrap().status == 404;
        wait_until("the lifetime is over", ended).await;
        assert_eq!(self.reason(client, &self.idle, "sandbox.paused").await, "idle");
        assert_eq!(self.reason(client, &self.short, "sandbox.terminated").await, "timeout");
    }

    /// A sandbox of the previous daemon, which knew no changes, has its `timeoutMs`, and it can be changed.
    async fn change_timeout(&self, client: &Client) {
        let path = sandbox_path(&self.changed);
        let before = client.get(&path).await.unwrap().is(200).unwrap();
        let put = async |timeout_ms: u64| {
            let call = client.call(Method::PUT, &format!("{path}/timeout"));
            call.json(&json!({ "timeoutMs": timeout_ms })).send().await.unwrap().is(200).unwrap()
        };
        let after = put(DAY_MS).await;
        assert!(text(&after["expiresAt"]) > text(&before["expiresAt"]), "{before} {after}");
        assert_eq!((&before["onTimeout"], &before["autoResume"]), (&json!("terminate"), &json!(true)));
        put(0).await;
        let ended = async || client.get(&path).await.unwrap().status == 404;
        wait_until("the changed timeout is over", ended).await;
        assert_eq!(self.reason(client, &self.changed, "sandbox.terminated").await, "timeout");
    }

    async fn reason(&self, client: &Client, id: &str, kind: &str) -> String {
        let page =
            client.get(&format!("/v1/events?sandboxId={id}&type={kind}")).await.unwrap().is(200).unwrap();
        let [event] = &page["data"].as_array().unwrap()[..] else { panic!("not one {kind}: {page}") };
        let data: &Value = &event["data"];
        text(&data["reason"])
    }
}
