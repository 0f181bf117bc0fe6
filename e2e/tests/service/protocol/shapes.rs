//! The fields of each resource and their types; fields that do not apply are omitted.

use e2e::service::Service;
use serde_json::{Value, json};

use crate::{
    SANDBOXES, action_path, create_sandbox, keys, number, run_command, sandbox_path, text, time, user,
};

const SANDBOX: [&str; 16] = [
    "autoResume",
    "createdAt",
    "env",
    "expiresAt",
    "id",
    "idleTimeoutMs",
    "image",
    "isolation",
    "metadata",
    "network",
    "onTimeout",
    "resources",
    "startedAt",
    "state",
    "timeoutMs",
    "workdir",
];

fn assert_id(value: &Value) {
    let id = text(value);
    let opaque = id.strip_prefix("sb_").unwrap_or_else(|| panic!("{id} does not begin with sb_"));
    assert!(!opaque.is_empty() && opaque.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
}

#[tokio::test]
async fn a_sandbox_shows_all_given_fields() {
    let (_service, client) = user().await;
    let body = json!({
        "image": Service::image(),
        "resources": { "cpu": 4, "memoryMb": 2049, "diskMb": 5121 },
        "env": { "GREETING": "héllo", "EMPTY": "" },
        "workdir": "/srv/work",
        "timeoutMs": 86_400_000,
        "idleTimeoutMs": 7_200_000,
        "metadata": { "userId": "42", "note": "" },
        "network": { "egress": { "allow": ["example.com", "*.example.org"], "default": "deny" } },
    });
    let sandbox = client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap();
    assert_eq!(keys(&sandbox), SANDBOX);
    assert_id(&sandbox["id"]);
    assert_eq!(sandbox["state"], "running");
    for field in keys(&body) {
        assert_eq!(sandbox[field], body[field], "{field}");
    }
    assert!(time(&sandbox["createdAt"]) <= time(&sandbox["startedAt"]));
    let got = client.get(&sandbox_path(&text(&sandbox["id"]))).await.unwrap().is(200).unwrap();
    assert_eq!(got, sandbox);
}

#[tokio::test]
async fn a_sandbox_shows_its_ingress_policy() {
    let (_service, client) = user().await;
    let network = json!({ "ingress": { "allowPorts": [80, 3000, 65535] } });
    let body = crate::with(crate::small(), "network", network.clone());
    let sandbox = client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap();
    assert_eq!(sandbox["network"]["ingress"], network["ingress"]);
    assert_eq!(sandbox["network"]["egress"], json!({ "allow": [], "default": "allow" }));
    let got = client.get(&sandbox_path(&text(&sandbox["id"]))).await.unwrap().is(200).unwrap();
    assert_eq!(got, sandbox);
}

#[tokio::test]
async fn a_sandbox_shows_only_times_that_apply() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let running = client.get(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    assert_eq!(keys(&running), SANDBOX);
    let paused_at =
        client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap()["pausedAt"].clone();
    let paused = client.get(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    let mut expected = [&SANDBOX[..], &["pausedAt"]].concat();
    expected.retain(|field| *field != "expiresAt");
    expected.sort_unstable();
    assert_eq!(keys(&paused), expected);
    assert_eq!((&paused["state"], &paused["pausedAt"]), (&json!("paused"), &paused_at));
    assert_eq!(paused["startedAt"], running["startedAt"]);
    client.post_empty(&action_path(&id, "resume")).await.unwrap().is(200).unwrap();
    let resumed = client.get(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    assert_eq!(keys(&resumed), SANDBOX);
    assert_eq!(resumed["createdAt"], running["createdAt"]);
}

#[tokio::test]
async fn list_items_and_pagination_have_their_fields() {
    let (_service, client) = user().await;
    let (running, paused, terminated) =
        (create_sandbox(&client).await, create_sandbox(&client).await, create_sandbox(&client).await);
    let pause = client.post_empty(&action_path(&paused, "pause")).await.unwrap().is(200).unwrap();
    let end = client.delete(&sandbox_path(&terminated)).await.unwrap().is(200).unwrap();
    let list = client.get(SANDBOXES).await.unwrap().is(200).unwrap();
    assert_eq!(keys(&list), ["data", "pagination"]);
    assert_eq!(list["pagination"], json!({ "total": 3, "limit": 20, "offset": 0, "hasMore": false }));
    let item = |id: &str| {
        let all = list["data"].as_array().unwrap();
        all.iter().find(|item| item["id"] == id).unwrap_or_else(|| panic!("{id} is not in the list")).clone()
    };
    let sandbox = client.get(&sandbox_path(&running)).await.unwrap().is(200).unwrap();
    let entry = item(&running);
    assert_eq!(keys(&entry), ["createdAt", "id", "image", "resources", "startedAt", "state"]);
    for field in keys(&entry) {
        assert_eq!(entry[field], sandbox[field], "{field}");
    }
    assert_eq!(entry["resources"], json!({ "cpu": 2, "memoryMb": 2048, "diskMb": 5120 }));
    let entry = item(&paused);
    assert_eq!(keys(&entry), ["createdAt", "id", "image", "pausedAt", "resources", "state"]);
    assert_eq!((&entry["state"], &entry["pausedAt"]), (&json!("paused"), &pause["pausedAt"]));
    let entry = item(&terminated);
    assert_eq!(keys(&entry), ["createdAt", "id", "image", "resources", "state", "terminatedAt"]);
    assert_eq!((&entry["state"], &entry["terminatedAt"]), (&json!("terminated"), &end["terminatedAt"]));
}

#[tokio::test]
async fn results_of_pause_resume_and_delete_have_their_fields() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let started = time(&client.get(&sandbox_path(&id)).await.unwrap().is(200).unwrap()["startedAt"]);
    let paused = client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    assert_eq!(keys(&paused), ["id", "pausedAt", "runtimeDurationMs", "state"]);
    assert_eq!((&paused["id"], &paused["state"]), (&json!(id), &json!("paused")));
    let ran_for = number(&paused["runtimeDurationMs"]);
    let (begun, paused_at) = (started, time(&paused["pausedAt"]));
    assert!(ran_for.abs_diff(paused_at - begun) <= 200, "{ran_for} ms from {begun} to {paused_at}");

    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let resumed = client.post_empty(&action_path(&id, "resume")).await.unwrap().is(200).unwrap();
    assert_eq!(keys(&resumed), ["id", "pausedDurationMs", "resumedAt", "state"]);
    assert_eq!((&resumed["id"], &resumed["state"]), (&json!(id), &json!("running")));
    let (slept, resumed_at) = (number(&resumed["pausedDurationMs"]), time(&resumed["resumedAt"]));
    assert!((300..5_000).contains(&slept) && slept.abs_diff(resumed_at - paused_at) <= 200, "{slept}");

    let end = client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    assert_eq!(keys(&end), ["id", "state", "terminatedAt", "totalRuntimeMs"]);
    assert_eq!((&end["id"], &end["state"]), (&json!(id), &json!("terminated")));
    // The total running time does not include the pause.
    let (total, terminated_at) = (number(&end["totalRuntimeMs"]), time(&end["terminatedAt"]));
    assert!(total.abs_diff(ran_for + (terminated_at - resumed_at)) <= 300, "{total}");
    assert!(total + 300 <= terminated_at - begun + 200, "{total} counts the pause");
}

#[tokio::test]
async fn an_execution_result_has_its_fields_and_nulls() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let fields = ["durationMs", "exitCode", "signal", "stderr", "stdout"];
    let done = run_command(&client, &id, json!({ "command": "echo out; echo err >&2; exit 3" })).await;
    assert_eq!(keys(&done), fields);
    number(&done["durationMs"]);
    assert_eq!((&done["stdout"], &done["stderr"]), (&json!("out\n"), &json!("err\n")));
    assert_eq!((&done["exitCode"], &done["signal"]), (&json!(3), &Value::Null));
    let killed = run_command(&client, &id, json!({ "command": "kill -TERM $$" })).await;
    // Only the results of killed commands say why.
    assert_eq!(keys(&killed), ["durationMs", "exitCode", "message", "reason", "signal", "stderr", "stdout"]);
    assert_eq!((&killed["exitCode"], &killed["signal"]), (&Value::Null, &json!("SIGTERM")));
    assert_eq!(killed["reason"], "signal");
    assert!(text(&killed["message"]).contains("SIGTERM"), "{killed}");
    let never = run_command(&client, &id, json!({ "command": "true", "cwd": "/no/such/place" })).await;
    assert_eq!(keys(&never), fields);
    assert_eq!((&never["exitCode"], &never["signal"]), (&Value::Null, &Value::Null));
    assert!(text(&never["stderr"]).contains("/no/such/place"), "{never}");
}

#[tokio::test]
async fn health_has_its_fields() {
    let (_service, client) = user().await;
    let health = client.get("/v1/health").await.unwrap().is(200).unwrap();
    assert_eq!(keys(&health), ["status", "timestamp", "version"]);
    assert_eq!((&health["status"], &health["version"]), (&json!("ok"), &json!("v1")));
    time(&health["timestamp"]);
}
