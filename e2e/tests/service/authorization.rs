//! Keys, scopes, accounts.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use e2e::service::{Service, ServiceOptions};
use hyper::Method;
use serde_json::{Value, json};

use crate::{
    SANDBOXES, UNKNOWN_ID, action_path, create_sandbox, sandbox_path, shared_service, small, text, user,
};

#[tokio::test]
async fn a_missing_or_invalid_key_is_unauthorized() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let good = client.key().to_owned();
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
            (Method::GET, sandbox_path(&id)),
            (Method::DELETE, sandbox_path(&id)),
            (Method::POST, action_path(&id, "pause")),
            (Method::POST, action_path(&id, "execute")),
            // Unknown routes too: 401 before 404 and 405.
            (Method::GET, "/nowhere".to_owned()),
            (Method::GET, "/v2/sandboxes".to_owned()),
            (Method::PUT, SANDBOXES.to_owned()),
        ] {
            let answer = client.call(method.clone(), &path).send().await.unwrap();
            let authorization = client.authorization();
            let error = answer
                .error(401, "UNAUTHORIZED")
                .unwrap_or_else(|e| panic!("{authorization:.40} {method} {path}: {e:#}"));
            assert!(!error.to_string().contains(&good), "the response contains the key");
        }
    }
    client.get(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
}

#[tokio::test]
async fn the_scheme_is_case_insensitive() {
    let (_service, client) = user().await;
    let key = client.key().to_owned();
    for scheme in ["bearer", "BEARER"] {
        let client = client.with_authorization(&format!("{scheme} {key}"));
        client.get(SANDBOXES).await.unwrap().is(200).unwrap();
    }
    // Two headers are invalid.
    let call = client.call(Method::GET, SANDBOXES);
    let call =
        call.header("authorization", client.authorization()).header("authorization", client.authorization());
    assert!([400, 401].contains(&call.send().await.unwrap().status));
}

#[tokio::test]
async fn a_key_allows_only_its_scopes() {
    let service = shared_service().await;
    let account = "scoped";
    let owner = service.client_with_new_key(account, "admin").await.unwrap();
    let id = create_sandbox(&owner).await;
    // The scope that each request needs.
    let requests: [(&str, Method, String, Value); 8] = [
        ("read", Method::GET, SANDBOXES.to_owned(), json!(null)),
        ("read", Method::GET, sandbox_path(&id), json!(null)),
        ("read", Method::GET, sandbox_path(UNKNOWN_ID), json!(null)),
        ("execute", Method::POST, action_path(&id, "execute"), json!({ "command": "true" })),
        ("write", Method::POST, SANDBOXES.to_owned(), json!({ "image": "no-such" })),
        ("write", Method::POST, action_path(&id, "resume"), json!(null)),
        ("write", Method::POST, action_path(UNKNOWN_ID, "pause"), json!(null)),
        ("write", Method::DELETE, sandbox_path(UNKNOWN_ID), json!(null)),
    ];
    for scopes in ["read", "execute", "write", "read,write", "read,execute,write", "admin"] {
        let client = service.client_with_new_key(account, scopes).await.unwrap();
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
async fn an_account_is_shared_by_its_keys_only() {
    let service = shared_service().await;
    let (one, two) = (
        service.client_with_new_key("team", "read,write").await.unwrap(),
        service.client_with_new_key("team", "read,execute").await.unwrap(),
    );
    let stranger = service.client_with_new_key("others", "admin").await.unwrap();
    let id = create_sandbox(&one).await;
    two.get(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    two.post(&action_path(&id, "execute"), &json!({ "command": "true" })).await.unwrap().is(200).unwrap();
    // Not even the scope admin allows access to another account.
    let error = stranger.get(&sandbox_path(&id)).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    assert_eq!(error["details"], json!({ "sandboxId": id }));
    stranger.delete(&sandbox_path(&id)).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    one.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    // The details of a terminated sandbox are only for its owner.
    let error = stranger.get(&sandbox_path(&id)).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    assert_eq!(error["details"], json!({ "sandboxId": id }));
}

#[tokio::test]
async fn a_revoked_key_is_refused_within_a_second() {
    let service = shared_service().await;
    let client = service.client_with_new_key("revoked", "read").await.unwrap();
    let other = service.client_with_new_key("revoked", "read").await.unwrap();
    let output = service.program().unwrap().args(["key", "list", "--json"]).output().unwrap();
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!printed.contains(client.key()), "the list contains a secret");
    let account_keys: Vec<&Value> =
        listed.as_array().unwrap().iter().filter(|key| key["account"] == "revoked").collect();
    assert_eq!(account_keys.len(), 2);
    let revoke = |id: &str| service.program().unwrap().args(["key", "revoke", id]).output().unwrap();
    let begin = Instant::now();
    let output = revoke(account_keys[0]["id"].as_str().unwrap());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    loop {
        let statuses =
            [client.get(SANDBOXES).await.unwrap().status, other.get(SANDBOXES).await.unwrap().status];
        if statuses.contains(&401) {
            assert!(statuses.contains(&200), "the other key is revoked too");
            break;
        }
        assert!(begin.elapsed() < Duration::from_millis(1_500), "the key still works");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let output = revoke("no-such-key");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-key"));
}

/// The first start creates a key, stores it for local use, and prints it once.
#[tokio::test]
async fn the_first_start_creates_a_key() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let file = service.layout.data.join("local.key");
    let key = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    assert!(key.starts_with("sbk_"), "{key}");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let client = service.client(&key).unwrap();
    let sandbox = client.post(SANDBOXES, &small()).await.unwrap().is(201).unwrap();
    client
        .post(&action_path(&text(&sandbox["id"]), "execute"), &json!({ "command": "true" }))
        .await
        .unwrap()
        .is(200)
        .unwrap();
    let count = service.log().matches(&key).count();
    assert!(count >= 1, "the key was not printed");
    service.restart().await.unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), key);
    assert_eq!(service.log().matches(&key).count(), count, "the second start printed it too");
    client.with_own_connections().get(SANDBOXES).await.unwrap().is(200).unwrap();
}

/// Neither keys nor clients' secrets are logged, and the database has only hashes of keys.
#[tokio::test]
async fn secrets_are_not_in_log_or_database() {
    let service = Service::start(&ServiceOptions::default().with("log", "level", "\"debug\"")).await.unwrap();
    let client = service.account().await.unwrap();
    let key = client.key().to_owned();
    let body = crate::with(small(), "env", json!({ "TOKEN": "hunter2-in-env" }));
    let id = text(&client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap()["id"]);
    let command = json!({ "command": "echo hunter2-in-command", "env": { "X": "hunter2-in-execute" }, "stdin": "hunter2-in-stdin" });
    client.post(&action_path(&id, "execute"), &command).await.unwrap().is(200).unwrap();
    client
        .post(&action_path(&id, "execute"), &json!({ "command": 5, "stdin": "hunter2-refused" }))
        .await
        .unwrap()
        .is(400)
        .unwrap();
    service.signal(rustix::process::Signal::TERM).unwrap();
    service.wait_for_exit(Duration::from_secs(30)).await.unwrap();
    let log = service.log();
    assert!(log.contains("/execute"), "the log has no requests");
    assert!(!log.contains("hunter2") && !log.contains(&key), "a secret is in the log");
    let contains = |needle: &str| {
        ["store.db", "store.db-wal"].iter().any(|name| {
            let bytes = std::fs::read(service.layout.data.join(name)).unwrap_or_default();
            bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
        })
    };
    assert!(contains(&id), "the test reads the wrong database");
    assert!(!contains(&key) && !contains(&key[..20]), "the key is in the database");
}
