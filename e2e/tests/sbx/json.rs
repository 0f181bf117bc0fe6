//! `--json`: one document, whatever was asked for and whatever of it failed.

use e2e::service::Service;
use serde_json::{Value, json};

use crate::{Person, code, text};

impl Person {
    /// What it prints, and its exit code, whether it works or not.
    fn prints(&self, words: &[&str]) -> (Value, i32) {
        let output = self.sbx().arg("--json").args(words).output().unwrap();
        let document = serde_json::from_slice(&output.stdout);
        let document = document.unwrap_or_else(|error| {
            panic!("{words:?}: {error}: {:?} {}", text(&output.stdout), text(&output.stderr))
        });
        (document, code(&output))
    }
}

/// A field of each, in the order in which they were named.
fn all<'a>(array: &'a Value, field: &str) -> Vec<&'a Value> {
    array.as_array().unwrap().iter().map(|item| &item[field]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn several_sandboxes_are_one_array_also_where_some_fail() {
    let person = Person::new().await;
    let (a, b) = (person.create(), person.create());
    let (a, b) = (a.as_str(), b.as_str());
    let (paused, ended) = person.prints(&["pause", a, b]);
    assert_eq!((all(&paused, "id"), ended), (vec![&json!(a), &json!(b)], 0));
    let (one, ended) = person.prints(&["resume", a]);
    assert_eq!((&one["id"], &one["state"], ended), (&json!(a), &json!("running"), 0));
    let (resumed, ended) = person.prints(&["resume", a, b]);
    assert_eq!((all(&resumed, "id"), ended), (vec![&json!(b)], 125));
    assert_eq!(person.prints(&["rm", "sb_00000000", "sb_00000001"]), (json!([]), 125));
    let (seen, ended) = person.prints(&["inspect", a, "sb_00000000", "nonsense", b]);
    assert_eq!((all(&seen, "id"), ended), (vec![&json!(a), &json!(b)], 125));
    let (one, ended) = person.prints(&["rm", b]);
    assert_eq!((&one["id"], &one["reason"], ended), (&json!(b), &json!("deleted"), 0));
    assert_eq!(one["state"], "terminated");
    assert!(one["terminatedAt"].as_str().is_some_and(|at| at.ends_with('Z')), "{one}");
    let (removed, ended) = person.prints(&["rm", "--all"]);
    assert_eq!((all(&removed, "id"), ended), (vec![&json!(a)], 0));
    assert_eq!(person.prints(&["rm", "--all"]), (json!([]), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_and_their_addresses_are_told_as_json() {
    let person = Person::new().await;
    let id = person.create();
    let (exposed, ended) = person.prints(&["expose", &id, "8080", "9090"]);
    assert_eq!((all(&exposed, "port"), ended), (vec![&json!(8080), &json!(9090)], 0));
    assert_eq!(person.prints(&["expose", &id, "3000", "--public"]).0["visibility"], "public");
    let (opened, _) = person.prints(&["open", &id, "3000"]);
    assert!(opened["url"].as_str().unwrap().starts_with("https://3000-"), "{opened}");
    assert_eq!(person.prints(&["open"]).0, json!({"url": format!("{}/docs", person.url())}));
    // One that is not exposed keeps the next from nothing.
    let (closed, ended) = person.prints(&["unexpose", &id, "4000", "8080", "9090"]);
    assert_eq!((all(&closed, "port"), ended), (vec![&json!(8080), &json!(9090)], 125));
    assert_eq!(person.prints(&["unexpose", &id, "3000"]).0["port"], 3000);
}

/// The service answers it in pieces of a megabyte.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_output_is_one_object() {
    let person = Person::new().await;
    let id = person.says(&["create", Service::image(), "--idle", "0"]);
    let id = id.trim();
    let command = "seq 1 500000; echo bad >&2; exit 3";
    let execution = person.says(&["exec", "--detach", id, "--", command]);
    person.says(&["logs", "-f", id, execution.trim()]);
    let (output, ended) = person.prints(&["logs", id, execution.trim()]);
    let lines = output["stdout"].as_str().unwrap().lines();
    assert!(lines.eq((1..=500_000).map(|n: u32| n.to_string())) && ended == 0);
    assert_eq!((&output["stderr"], &output["state"]), (&json!("bad\n"), &json!("exited")));
    assert_eq!((&output["more"], &output["dropped"]), (&json!(false), &json!(false)));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_told_as_json() {
    let person = Person::new().await;
    let keys = |words: &[&str]| {
        let mut command = person.stranger();
        command.env("SANDBOXD_CONFIG", person.service.config_file()).args(["--json", "key"]).args(words);
        let output = command.env("SANDBOXD_DATA_DIR", &person.service.place.data).output().unwrap();
        let document = serde_json::from_slice::<Value>(&output.stdout);
        (document.unwrap_or_else(|_| panic!("{}", text(&output.stderr))), code(&output))
    };
    let create = ["create", "--account", "team", "--scopes", "read,execute"];
    let (made, ended) = keys(&[&create[..], &["--label", "two words"]].concat());
    assert!(made["key"].as_str().is_some_and(|key| key.len() > 20) && ended == 0, "{made}");
    assert_eq!(
        (&made["account"], &made["scopes"], &made["label"]),
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
    let mut wrong = person.stranger();
    wrong.env("SANDBOXD_CONFIG", person.service.config_file()).args(["key", "create", "--scopes", "bad"]);
    let wrong = wrong.env("SANDBOXD_DATA_DIR", &person.service.place.data).output().unwrap();
    assert!(code(&wrong) == 125 && text(&wrong.stderr).contains("bad"), "{}", text(&wrong.stderr));
}
