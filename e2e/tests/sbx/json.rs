//! `--json` prints exactly one document, also if some operations fail.

use e2e::service::{Service, ServiceOptions};
use serde_json::{Value, json};

use crate::{TestUser, code, text};

impl TestUser {
    /// The printed document and the exit code.
    fn run_json(&self, words: &[&str]) -> (Value, i32) {
        let output = self.sbx().arg("--json").args(words).output().unwrap();
        let document = serde_json::from_slice(&output.stdout);
        let document = document.unwrap_or_else(|error| {
            panic!("{words:?}: {error}: {:?} {}", text(&output.stdout), text(&output.stderr))
        });
        (document, code(&output))
    }
}

/// A field of all items, in order.
fn field<'a>(array: &'a Value, field: &str) -> Vec<&'a Value> {
    array.as_array().unwrap().iter().map(|item| &item[field]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_print_one_array_even_if_some_fail() {
    let user = TestUser::new().await;
    let (a, b) = (user.create(), user.create());
    let (a, b) = (a.as_str(), b.as_str());
    let (paused, ended) = user.run_json(&["pause", a, b]);
    assert_eq!((field(&paused, "id"), ended), (vec![&json!(a), &json!(b)], 0));
    let (one, ended) = user.run_json(&["resume", a]);
    assert_eq!((&one["id"], &one["state"], ended), (&json!(a), &json!("running"), 0));
    // One that runs already is no failure.
    let (resumed, ended) = user.run_json(&["resume", a, b]);
    assert_eq!((field(&resumed, "id"), ended), (vec![&json!(a), &json!(b)], 0));
    assert_eq!(field(&resumed, "state"), [&json!("running"), &json!("running")]);
    assert_eq!(user.run_json(&["rm", "sb_00000000", "sb_00000001"]), (json!([]), 125));
    let (seen, ended) = user.run_json(&["inspect", a, "sb_00000000", "nonsense", b]);
    assert_eq!((field(&seen, "id"), ended), (vec![&json!(a), &json!(b)], 125));
    let (one, ended) = user.run_json(&["rm", b]);
    assert_eq!((&one["id"], &one["reason"], ended), (&json!(b), &json!("deleted"), 0));
    assert_eq!(one["state"], "terminated");
    assert!(one["terminatedAt"].as_str().is_some_and(|at| at.ends_with('Z')), "{one}");
    let (removed, ended) = user.run_json(&["rm", "--all"]);
    assert_eq!((field(&removed, "id"), ended), (vec![&json!(a)], 0));
    assert_eq!(user.run_json(&["rm", "--all"]), (json!([]), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_are_printed_as_json() {
    let user = TestUser::new().await;
    let id = user.create();
    let (exposed, ended) = user.run_json(&["expose", &id, "8080", "9090"]);
    assert_eq!((field(&exposed, "port"), ended), (vec![&json!(8080), &json!(9090)], 0));
    assert_eq!(user.run_json(&["expose", &id, "3000", "--public"]).0["visibility"], "public");
    let (opened, _) = user.run_json(&["open", &id, "3000"]);
    assert!(opened["url"].as_str().unwrap().starts_with("https://3000-"), "{opened}");
    assert_eq!(user.run_json(&["open"]).0, json!({"url": format!("{}/docs", user.url())}));
    // A port that is not exposed does not prevent the others.
    let (closed, ended) = user.run_json(&["unexpose", &id, "4000", "8080", "9090"]);
    assert_eq!((field(&closed, "port"), ended), (vec![&json!(8080), &json!(9090)], 125));
    assert_eq!(user.run_json(&["unexpose", &id, "3000"]).0["port"], 3000);
}

/// The service returns long output in pieces of a megabyte.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_output_is_one_object() {
    let user = TestUser::new().await;
    let id = user.stdout(&["create", Service::image(), "--idle", "0"]);
    let id = id.trim();
    let command = "seq 1 500000; echo bad >&2; exit 3";
    let execution = user.stdout(&["exec", "--detach", id, "--", command]);
    // The exit code is that of the command.
    assert_eq!(code(&user.run(&["logs", "-f", id, execution.trim()])), 3);
    let (output, ended) = user.run_json(&["logs", id, execution.trim()]);
    let lines = output["stdout"].as_str().unwrap().lines();
    assert!(lines.eq((1..=500_000).map(|n: u32| n.to_string())) && ended == 0);
    assert_eq!((&output["stderr"], &output["state"]), (&json!("bad\n"), &json!("exited")));
    assert_eq!((&output["more"], &output["dropped"]), (&json!(false), &json!(false)));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_printed_as_json() {
    let user = TestUser::new().await;
    let keys = |words: &[&str]| {
        let mut command = user.sbx_without_login();
        command.env("SANDBOXD_CONFIG", user.service.config_file()).args(["--json", "key"]).args(words);
        let output = command.env("SANDBOXD_DATA_DIR", &user.service.layout.data).output().unwrap();
        let document = serde_json::from_slice::<Value>(&output.stdout);
        (document.unwrap_or_else(|_| panic!("{}", text(&output.stderr))), code(&output))
    };
    let create = ["create", "--account", "team", "--scopes", "read,execute"];
    let (created, ended) = keys(&[&create[..], &["--label", "two words"]].concat());
    assert!(created["key"].as_str().is_some_and(|key| key.len() > 20) && ended == 0, "{created}");
    assert_eq!(
        (&created["account"], &created["scopes"], &created["label"]),
        (&json!("team"), &json!(["read", "execute"]), &json!("two words"))
    );
    assert_eq!(keys(&create).0["label"], Value::Null);
    let (list, _) = keys(&["list"]);
    let list = list.as_array().unwrap();
    let ids: Vec<&str> =
        list.iter().filter(|key| key["account"] == "team").map(|key| key["id"].as_str().unwrap()).collect();
    let [a, b] = ids[..] else { panic!("{list:?}") };
    assert_eq!(keys(&["revoke", a]), (json!({"id": a, "revoked": true}), 0));
    let (revoked, ended) = keys(&["revoke", "key_0000000000000000", b]);
    assert_eq!((revoked, ended), (json!([{"id": b, "revoked": true}]), 125));
    let mut wrong = user.sbx_without_login();
    wrong.env("SANDBOXD_CONFIG", user.service.config_file()).args([
        "key",
        "create",
        "--account",
        "team",
        "--scopes",
        "bad",
    ]);
    let wrong = wrong.env("SANDBOXD_DATA_DIR", &user.service.layout.data).output().unwrap();
    assert!(code(&wrong) == 125 && text(&wrong.stderr).contains("bad"), "{}", text(&wrong.stderr));
}

/// A create gets the isolation that it asks for, or an error that names those of the service.
#[tokio::test(flavor = "multi_thread")]
async fn info_lists_the_isolation_that_a_create_can_choose() {
    let user = TestUser::new().await;
    let (info, ended) = user.run_json(&["info"]);
    assert_eq!((&info["version"], ended), (&json!(env!("CARGO_PKG_VERSION")), 0));
    let isolation = info["defaultIsolation"].as_str().unwrap();
    let names: Vec<&str> =
        info["backends"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert!(names.contains(&isolation), "{info}");
    assert!(user.stdout(&["info"]).contains("memory"), "{info}");
    let (view, _) = user.run_json(&["create", "--isolation", isolation, Service::image()]);
    assert_eq!(view["isolation"], isolation);
    let id = view["id"].as_str().unwrap();
    assert_eq!(user.run_json(&["inspect", id]).0[0]["isolation"], isolation);
    user.stdout(&["rm", id]);
    for other in ["container", "gvisor"].into_iter().filter(|name| !names.contains(name)) {
        let refused = user.run(&["create", "--isolation", other, Service::image()]);
        let message = text(&refused.stderr);
        assert!(code(&refused) == 125 && message.contains("'auto'"), "{message}");
    }
}

/// The values follow creates, pauses and terminations; the table and the JSON agree.
#[tokio::test(flavor = "multi_thread")]
async fn usage_follows_the_sandboxes() {
    let options = ServiceOptions::default().with("quotas", "sandboxes", "2").with("quotas", "vcpus", "8");
    let user = TestUser::with_options(&options).await;
    let used = || {
        let usage = user.run_json(&["usage"]).0;
        ["sandboxes", "vcpus", "memoryMb", "diskMb"].map(|name| usage[name]["used"].as_u64().unwrap())
    };
    assert_eq!(used(), [0, 0, 0, 0]);
    let (a, b) = (user.create(), user.create());
    assert_eq!(used(), [2, 4, 8192, 20_480]);
    user.stdout(&["pause", &a]);
    assert_eq!(used(), [2, 2, 4096, 20_480]);
    let (usage, ended) = user.run_json(&["usage"]);
    assert_eq!((&usage["sandboxes"], ended), (&json!({ "used": 2, "allowed": 2 }), 0));
    assert_eq!(usage["vcpus"], json!({ "used": 2, "allowed": 8 }));
    assert_eq!(usage["memoryMb"]["allowed"], Value::Null);
    assert!(usage["eventBytes"]["used"].as_u64().unwrap() > 0, "{usage}");
    let table = user.stdout(&["usage"]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["QUOTA", "USED", "ALLOWED"]);
    for row in [["sandboxes", "2", "2"], ["vcpus", "2", "8"], ["memory", "4g", "unlimited"]] {
        assert!(rows.iter().any(|cells| *cells == row), "{row:?}: {table}");
    }
    let refused = user.run(&["create", Service::image()]);
    let message = text(&refused.stderr);
    assert!(code(&refused) == 125 && message.contains("quotas.sandboxes"), "{message}");
    user.stdout(&["rm", &a, &b]);
    assert_eq!(used(), [0, 0, 0, 0]);
}
