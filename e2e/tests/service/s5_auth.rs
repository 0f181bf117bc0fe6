//! Section 5: keys, scopes, accounts (decisions 22 and 23).

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use e2e::service::{Service, ServiceOptions};
use hyper::Method;
use serde_json::{Value, json};

use crate::{NOBODY, SANDBOXES, at, created, shared, small, text, user, verb};

#[tokio::test]
async fn no_key_or_no_valid_one_is_unauthorized() {
    let (service, client) = user().await;
    let id = created(&client).await;
    let good = client.authorization().strip_prefix("Bearer ").unwrap().to_owned();
    let mut wrong_end = good.clone();
    let last = if wrong_end.pop() == Some('0') { '1' } else { '0' };
    wrong_end.push(last);
    let anonymous = service.anonymous().unwrap();
    let mut clients = vec![anonymous.clone()];
    for authorization in [
        "",
        "Bearer",
        "Bearer ",
        "Basic dXNlcjpwYXNz",
        "nonsense",
        &good,
        &format!("Bearer {wrong_end}"),
        &format!("Bearer {good}x"),
        &format!("Bearer {}", good.to_uppercase()),
        &format!("Bearer {good} {good}"),
        &format!("Token {good}"),
        "Bearer sbk_00000000000000000000000000000000000000000000000000000000000",
        &format!("Bearer {}", "x".repeat(10_000)),
    ] {
        clients.push(anonymous.with_authorization(authorization));
    }
    for client in clients {
        for (method, path) in [
            (Method::GET, SANDBOXES.to_owned()),
            (Method::POST, SANDBOXES.to_owned()),
            (Method::GET, at(&id)),
            (Method::DELETE, at(&id)),
            (Method::POST, verb(&id, "pause")),
            (Method::POST, verb(&id, "execute")),
            // Unknown routes too: 401 before 404 and 405.
            (Method::GET, "/nowhere".to_owned()),
            (Method::GET, "/v2/sandboxes".to_owned()),
            (Method::PUT, SANDBOXES.to_owned()),
        ] {
            let answer = client.call(method.clone(), &path).send().await.unwrap();
            let shown = client.authorization();
            let error = answer
                .error(401, "UNAUTHORIZED")
                .unwrap_or_else(|e| panic!("{shown:.40} {method} {path}: {e:#}"));
            assert!(!error.to_string().contains(&good), "the answer repeats the key");
        }
    }
    client.get(&at(&id)).await.unwrap().is(200).unwrap();
}

#[tokio::test]
async fn the_scheme_is_read_in_any_case() {
    let (_service, client) = user().await;
    let key = client.authorization().strip_prefix("Bearer ").unwrap().to_owned();
    for scheme in ["bearer", "BEARER"] {
        let client = client.with_authorization(&format!("{scheme} {key}"));
        client.get(SANDBOXES).await.unwrap().is(200).unwrap();
    }
    // Two headers are no key.
    let call = client.call(Method::GET, SANDBOXES);
    let call =
        call.header("authorization", client.authorization()).header("authorization", client.authorization());
    assert!([400, 401].contains(&call.send().await.unwrap().status));
}

#[tokio::test]
async fn a_key_does_what_its_scopes_allow() {
    let service = shared().await;
    let account = "scoped";
    let owner = service.client_of(account, "admin").await.unwrap();
    let id = created(&owner).await;
    // What needs which: read, execute, write.
    let requests: [(&str, Method, String, Value); 8] = [
        ("read", Method::GET, SANDBOXES.to_owned(), json!(null)),
        ("read", Method::GET, at(&id), json!(null)),
        ("read", Method::GET, at(NOBODY), json!(null)),
        ("execute", Method::POST, verb(&id, "execute"), json!({ "command": "true" })),
        ("write", Method::POST, SANDBOXES.to_owned(), json!({ "image": "no-such" })),
        ("write", Method::POST, verb(&id, "resume"), json!(null)),
        ("write", Method::POST, verb(NOBODY, "pause"), json!(null)),
        ("write", Method::DELETE, at(NOBODY), json!(null)),
    ];
    for scopes in ["read", "execute", "write", "read,write", "read,execute,write", "admin"] {
        let client = service.client_of(account, scopes).await.unwrap();
        for (needed, method, path, body) in &requests {
            let call = client.call(method.clone(), path);
            let call = if body.is_null() { call } else { call.json(body) };
            let answer = call.send().await.unwrap();
            let allowed = scopes == "admin" || scopes.split(',').any(|scope| scope == *needed);
            if allowed {
                assert!(![401, 403].contains(&answer.status), "{scopes}: {method} {path}: {}", answer.text());
            } else {
                let error = answer
                    .error(403, "FORBIDDEN")
                    .unwrap_or_else(|e| panic!("{scopes}: {method} {path}: {e:#}"));
                assert!(text(&error["message"]).contains(needed), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn an_account_is_shared_by_its_keys_and_by_nobody_else() {
    let service = shared().await;
    let (one, two) = (
        service.client_of("team", "read,write").await.unwrap(),
        service.client_of("team", "read,execute").await.unwrap(),
    );
    let stranger = service.client_of("others", "admin").await.unwrap();
    let id = created(&one).await;
    two.get(&at(&id)).await.unwrap().is(200).unwrap();
    two.post(&verb(&id, "execute"), &json!({ "command": "true" })).await.unwrap().is(200).unwrap();
    // Not even admin sees another account: to it, there is no such thing.
    let error = stranger.get(&at(&id)).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    assert_eq!(error["details"], json!({ "sandboxId": id }));
    stranger.delete(&at(&id)).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    one.delete(&at(&id)).await.unwrap().is(200).unwrap();
    // And what became of it is told to its owner alone.
    let error = stranger.get(&at(&id)).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    assert_eq!(error["details"], json!({ "sandboxId": id }));
}

#[tokio::test]
async fn a_revoked_key_works_for_a_second_at_most() {
    let service = shared().await;
    let client = service.client_of("revoked", "read").await.unwrap();
    let other = service.client_of("revoked", "read").await.unwrap();
    let output = service.program().unwrap().args(["key", "list", "--json"]).output().unwrap();
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        !said.contains(client.authorization().strip_prefix("Bearer ").unwrap()),
        "the list shows a secret"
    );
    let ours: Vec<&Value> =
        listed.as_array().unwrap().iter().filter(|key| key["account"] == "revoked").collect();
    assert_eq!(ours.len(), 2);
    let revoke = |id: &str| service.program().unwrap().args(["key", "revoke", id]).output().unwrap();
    let begin = Instant::now();
    let output = revoke(ours[0]["id"].as_str().unwrap());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    loop {
        let statuses =
            [client.get(SANDBOXES).await.unwrap().status, other.get(SANDBOXES).await.unwrap().status];
        if statuses.contains(&401) {
            assert!(statuses.contains(&200), "the other key is gone too");
            break;
        }
        assert!(begin.elapsed() < Duration::from_millis(1_500), "the key still works");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let output = revoke("no-such-key");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-key"));
}

/// The first start makes one key, keeps it for the local command line, and says it once.
#[tokio::test]
async fn the_first_start_makes_a_key() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let file = service.place.data.join("local.key");
    let key = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    assert!(key.starts_with("sbk_"), "{key}");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let client = service.client(&key).unwrap();
    let sandbox = client.post(SANDBOXES, &small()).await.unwrap().is(201).unwrap();
    client
        .post(&verb(&text(&sandbox["id"]), "execute"), &json!({ "command": "true" }))
        .await
        .unwrap()
        .is(200)
        .unwrap();
    let shown = service.log().matches(&key).count();
    assert!(shown >= 1, "the key was not printed");
    service.restart().await.unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), key);
    assert_eq!(service.log().matches(&key).count(), shown, "the second start printed it too");
    client.apart().get(SANDBOXES).await.unwrap().is(200).unwrap();
}

/// Neither keys nor what clients keep secret are in the log; and only hashes of keys are in the database.
#[tokio::test]
async fn secrets_are_in_no_log_and_no_database() {
    let service = Service::start(&ServiceOptions::default().with("log", "level", "\"debug\"")).await.unwrap();
    let client = service.account().await.unwrap();
    let key = client.authorization().strip_prefix("Bearer ").unwrap().to_owned();
    let body = crate::with(small(), "env", json!({ "TOKEN": "hunter2-in-env" }));
    let id = text(&client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap()["id"]);
    let command = json!({ "command": "echo hunter2-in-command", "env": { "X": "hunter2-in-execute" }, "stdin": "hunter2-in-stdin" });
    client.post(&verb(&id, "execute"), &command).await.unwrap().is(200).unwrap();
    client
        .post(&verb(&id, "execute"), &json!({ "command": 5, "stdin": "hunter2-refused" }))
        .await
        .unwrap()
        .is(400)
        .unwrap();
    service.signal(rustix::process::Signal::TERM).unwrap();
    service.gone(Duration::from_secs(30)).await.unwrap();
    let log = service.log();
    assert!(log.contains("/execute"), "the log says nothing of the requests");
    assert!(!log.contains("hunter2") && !log.contains(&key), "a secret is in the log");
    let holds = |needle: &str| {
        ["store.db", "store.db-wal"].iter().any(|name| {
            let bytes = std::fs::read(service.place.data.join(name)).unwrap_or_default();
            bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
        })
    };
    assert!(holds(&id), "the database is elsewhere");
    assert!(!holds(&key) && !holds(&key[..20]), "the key is in the database");
}
