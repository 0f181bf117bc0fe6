//! Ports over REST (decision 25, section 2.10): what may be exposed, by whom, and what becomes of it.

use e2e::service::{Service, ServiceOptions};
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::portal::{Door, PORT, expose, host_of, listen, token};
use crate::{NOBODY, at, created, keys, output, shared, small, state, text, time, until, user, verb, with};

#[tokio::test]
async fn a_port_is_exposed_listed_and_closed() {
    let (service, client) = user().await;
    let id = created(&client).await;
    assert_eq!(client.get(&verb(&id, "ports")).await.unwrap().is(200).unwrap(), json!({ "data": [] }));
    let port = expose(&client, &id, &json!({ "port": 8080 })).await;
    assert_eq!(keys(&port), ["autoResume", "exposedAt", "port", "url", "visibility"]);
    let label = id.replace('_', "-");
    let url = format!("https://8080-{label}.sandboxes.localhost:{}", service.address.port());
    assert_eq!((&port["port"], text(&port["url"])), (&json!(8080), url));
    assert_eq!((&port["visibility"], &port["autoResume"]), (&json!("private"), &json!(true)));
    time(&port["exposedAt"]);
    let other =
        expose(&client, &id, &json!({ "port": 80, "visibility": "public", "autoResume": false })).await;
    assert_eq!((&other["visibility"], &other["autoResume"]), (&json!("public"), &json!(false)));
    let listed = client.get(&verb(&id, "ports")).await.unwrap().is(200).unwrap();
    assert_eq!(listed, json!({ "data": [other, port] }));
    let closed = client.delete(&verb(&id, "ports/80")).await.unwrap().is(200).unwrap();
    assert_eq!((keys(&closed), &closed["port"]), (vec!["closedAt", "port"], &json!(80)));
    let error = client.delete(&verb(&id, "ports/80")).await.unwrap().error(404, "PORT_NOT_FOUND").unwrap();
    assert_eq!(error["details"], json!({ "port": 80, "sandboxId": id }));
    assert_eq!(client.get(&verb(&id, "ports")).await.unwrap().is(200).unwrap()["data"][1], Value::Null);
}

#[tokio::test]
async fn each_kind_of_refusal() {
    let (service, client) = user().await;
    let id = created(&client).await;
    let ports = verb(&id, "ports");
    for (body, code) in [
        (json!({}), "INVALID_REQUEST"),
        (json!({ "port": "80" }), "INVALID_REQUEST"),
        (json!({ "port": 80, "visibility": 1 }), "INVALID_REQUEST"),
        (json!({ "port": 80, "autoResume": null }), "INVALID_REQUEST"),
        (json!([]), "INVALID_REQUEST"),
        (json!({ "port": 0 }), "INVALID_CONFIG"),
        (json!({ "port": 65_536 }), "INVALID_CONFIG"),
        (json!({ "port": 80, "visibility": "open" }), "INVALID_CONFIG"),
    ] {
        client.post(&ports, &body).await.unwrap().error(400, code).unwrap();
    }
    expose(&client, &id, &json!({ "port": 80 })).await;
    let tokens = verb(&id, "ports/80/token");
    for (body, code) in [
        (json!({ "expiresInMs": "1h" }), "INVALID_REQUEST"),
        (json!({ "expiresInMs": 999 }), "INVALID_CONFIG"),
        (json!({ "expiresInMs": 604_800_001 }), "INVALID_CONFIG"),
    ] {
        client.post(&tokens, &body).await.unwrap().error(400, code).unwrap();
    }
    for port in ["81", "0", "080", "+80", "65536", "x", "%00", ""] {
        let delete = client.delete(&format!("{ports}/{port}")).await.unwrap();
        let code = if port.is_empty() { "NOT_FOUND" } else { "PORT_NOT_FOUND" };
        delete.error(404, code).unwrap();
    }
    client
        .post(&verb(&id, "ports/81/token"), &json!({}))
        .await
        .unwrap()
        .error(404, "PORT_NOT_FOUND")
        .unwrap();
    client.order(&verb(&id, "ports/80")).await.unwrap().error(405, "METHOD_NOT_ALLOWED").unwrap();
    // No sandbox, another account's, one that is over.
    let stranger = service.account().await.unwrap();
    for (client, id) in [(&client, NOBODY), (&stranger, id.as_str())] {
        let (ports, one) = (verb(id, "ports"), verb(id, "ports/80"));
        for answer in [
            client.get(&ports).await,
            client.post(&ports, &json!({ "port": 80 })).await,
            client.delete(&one).await,
            client.post(&format!("{one}/token"), &json!({})).await,
        ] {
            answer.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
        }
    }
    client.delete(&at(&id)).await.unwrap().is(200).unwrap();
    let error = client.get(&ports).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    assert_eq!(error["details"]["state"], "terminated");
}

#[tokio::test]
async fn scopes_of_keys_hold() {
    let service = shared().await;
    let owner = service.client_of("port-scopes", "read,execute,write").await.unwrap();
    let id = created(&owner).await;
    let reader = service.client_of("port-scopes", "read").await.unwrap();
    reader.get(&verb(&id, "ports")).await.unwrap().is(200).unwrap();
    let body = json!({ "port": 80 });
    reader.post(&verb(&id, "ports"), &body).await.unwrap().error(403, "FORBIDDEN").unwrap();
    expose(&owner, &id, &body).await;
    reader.delete(&verb(&id, "ports/80")).await.unwrap().error(403, "FORBIDDEN").unwrap();
    reader.post(&verb(&id, "ports/80/token"), &json!({})).await.unwrap().error(403, "FORBIDDEN").unwrap();
    owner.delete(&at(&id)).await.unwrap().is(200).unwrap();
}

#[tokio::test]
async fn the_policy_says_which_ports() {
    let (service, client) = user().await;
    let body = with(small(), "network", json!({ "ingress": { "allowPorts": [PORT, 9000] } }));
    let id = text(&client.post("/v1/sandboxes", &body).await.unwrap().is(201).unwrap()["id"]);
    let refused = client.post(&verb(&id, "ports"), &json!({ "port": 22 })).await.unwrap();
    let error = refused.error(403, "PORT_NOT_ALLOWED").unwrap();
    assert!(text(&error["message"]).contains("allows 8080, 9000"), "{error}");
    listen(&client, &id, PORT).await;
    let port = expose(&client, &id, &json!({ "port": PORT, "visibility": "public" })).await;
    expose(&client, &id, &json!({ "port": 9000 })).await;
    let door = Door { service: service.clone(), host: host_of(&port), token: None };
    assert_eq!(door.get("/").await.text(), "it is port 8080");
    let mut socket = door.websocket().await;
    // A policy that forbids an exposed port closes it, and cuts who is connected.
    let change = json!({ "ingress": { "allowPorts": [9000] } });
    client.call(Method::PATCH, &verb(&id, "network")).json(&change).send().await.unwrap().is(200).unwrap();
    let listed = client.get(&verb(&id, "ports")).await.unwrap().is(200).unwrap();
    assert_eq!((listed["data"].as_array().unwrap().len(), &listed["data"][0]["port"]), (1, &json!(9000)));
    let gone = door.get("/").await;
    assert_eq!((gone.status, gone.code().as_str()), (404, "PORT_NOT_FOUND"));
    let mut rest = Vec::new();
    // However it is cut.
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut socket, &mut rest).await;
    assert!(rest.is_empty());
    until("both events are there", async || kinds(&client, &id).await == "exposed exposed closed:network")
        .await;
    // An empty list allows none.
    let none = json!({ "ingress": { "allowPorts": [] } });
    client.call(Method::PATCH, &verb(&id, "network")).json(&none).send().await.unwrap().is(200).unwrap();
    client
        .post(&verb(&id, "ports"), &json!({ "port": 9000 }))
        .await
        .unwrap()
        .error(403, "PORT_NOT_ALLOWED")
        .unwrap();
}

/// The events of a sandbox's ports.
async fn kinds(client: &e2e::service::Client, id: &str) -> String {
    let path = format!("/v1/events?sandboxId={id}&type=port.*&order=asc");
    let listed = client.get(&path).await.unwrap().is(200).unwrap();
    let shown = |event: &Value| match event["data"]["reason"].as_str() {
        None => text(&event["type"]).replace("port.", ""),
        Some(reason) => format!("{}:{reason}", text(&event["type"]).replace("port.", "")),
    };
    listed["data"].as_array().unwrap().iter().map(shown).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn events_say_what_happened_and_for_which_run() {
    let (_service, client) = user().await;
    let id = created(&client).await;
    let expose = client.call(Method::POST, &verb(&id, "ports")).header("x-run-id", "run_7");
    expose.json(&json!({ "port": 8080, "visibility": "public" })).send().await.unwrap().is(201).unwrap();
    client.delete(&verb(&id, "ports/8080")).await.unwrap().is(200).unwrap();
    until("both are seen", async || kinds(&client, &id).await == "exposed closed:request").await;
    let path = format!("/v1/sandboxes/{id}/events?type=port.exposed&runId=run_7");
    let event = client.get(&path).await.unwrap().is(200).unwrap()["data"][0].clone();
    assert_eq!(event["data"], json!({ "port": 8080, "visibility": "public", "autoResume": true }));
}

#[tokio::test]
async fn a_key_makes_one_exposure_of_a_request_sent_twice() {
    let (_service, client) = user().await;
    let id = created(&client).await;
    let expose = async || {
        let call = client.call(Method::POST, &verb(&id, "ports")).header("idempotency-key", "once");
        call.json(&json!({ "port": 8080 })).send().await.unwrap()
    };
    let first = expose().await;
    let token = token(&client, &id, 8080).await;
    let second = expose().await;
    assert_eq!(
        (first.is(201).unwrap(), second.header("idempotency-replayed")),
        (second.is(201).unwrap(), Some("true"))
    );
    assert!(!token.is_empty());
    assert_eq!(kinds(&client, &id).await, "exposed");
}

#[tokio::test]
async fn there_are_64_at_most() {
    let (_service, client) = user().await;
    let id = created(&client).await;
    for port in 1000..1064 {
        expose(&client, &id, &json!({ "port": port })).await;
    }
    let error = client
        .post(&verb(&id, "ports"), &json!({ "port": 2000 }))
        .await
        .unwrap()
        .error(400, "INVALID_CONFIG")
        .unwrap();
    assert!(text(&error["message"]).contains("64 ports"), "{error}");
    expose(&client, &id, &json!({ "port": 1063, "visibility": "public" })).await;
}

#[tokio::test]
async fn exposed_ports_outlive_the_daemon_and_go_with_the_sandbox() {
    let service = std::sync::Arc::new(Service::start(&ServiceOptions::default()).await.unwrap());
    let client = service.account().await.unwrap();
    let (id, door) = crate::portal::opened(&service, &client).await;
    let before = client.get(&verb(&id, "ports")).await.unwrap().is(200).unwrap();
    service.kill().unwrap();
    service.boot().await.unwrap();
    let client = client.apart();
    assert_eq!(client.get(&verb(&id, "ports")).await.unwrap().is(200).unwrap(), before);
    // The token too: its secret is in the data directory, for its owner alone.
    assert_eq!(door.get("/").await.text(), "it is port 8080");
    let secret = service.place.data.join("ports.secret");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(secret).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    client.delete(&at(&id)).await.unwrap().is(200).unwrap();
    assert_eq!(door.get("/").await.status, 404);
    service.restart().await.unwrap();
    assert_eq!(door.get("/").await.code(), "PORT_NOT_FOUND");
}

#[tokio::test]
async fn traffic_wakes_a_paused_sandbox_unless_it_may_not() {
    let (service, client) = user().await;
    let (id, door) = crate::portal::opened(&service, &client).await;
    let sleep = async || client.order(&verb(&id, "pause")).await.unwrap().is(200).unwrap();
    sleep().await;
    // Exposing, listing, tokens and strangers leave it asleep.
    expose(&client, &id, &json!({ "port": 9000 })).await;
    token(&client, &id, PORT).await;
    assert_eq!(door.without_token().get("/").await.status, 401);
    assert_eq!(state(&client, &id).await, "paused");
    assert_eq!(door.get("/").await.text(), "it is port 8080");
    assert_eq!(state(&client, &id).await, "running");
    expose(&client, &id, &json!({ "port": PORT, "autoResume": false })).await;
    let door = door.with_token(&token(&client, &id, PORT).await);
    assert_eq!(door.get("/").await.status, 200);
    sleep().await;
    let told = door.get("/").await;
    assert_eq!((told.status, told.code().as_str()), (409, "INVALID_STATE"));
    assert_eq!(state(&client, &id).await, "paused");
}

#[tokio::test]
async fn an_open_websocket_keeps_a_sandbox_awake() {
    let (service, client) = user().await;
    let body = with(small(), "idleTimeoutMs", json!(2000));
    let id = text(&client.post("/v1/sandboxes", &body).await.unwrap().is(201).unwrap()["id"]);
    listen(&client, &id, PORT).await;
    let port = expose(&client, &id, &json!({ "port": PORT, "visibility": "public" })).await;
    let door = Door { service: service.clone(), host: host_of(&port), token: None };
    let socket = door.websocket().await;
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    assert_eq!(state(&client, &id).await, "running");
    drop(socket);
    until("it falls asleep", async || state(&client, &id).await == "paused").await;
    assert!(output(&client, &id, "true").await.is_empty());
}

/// Traffic wakes it, also on a connection that was open before.
#[tokio::test]
async fn a_message_on_an_open_websocket_wakes_a_paused_sandbox() {
    let (service, client) = user().await;
    let id = created(&client).await;
    listen(&client, &id, PORT).await;
    for wakes in [true, false] {
        let body = json!({ "port": PORT, "visibility": "public", "autoResume": wakes });
        let port = expose(&client, &id, &body).await;
        let door = Door { service: service.clone(), host: host_of(&port), token: None };
        let mut socket = door.websocket().await;
        client.order(&verb(&id, "pause")).await.unwrap().is(200).unwrap();
        socket.write_all(b"wake up").await.unwrap();
        socket.flush().await.unwrap();
        if !wakes {
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            assert_eq!(state(&client, &id).await, "paused");
            client.order(&verb(&id, "resume")).await.unwrap().is(200).unwrap();
        }
        let mut answer = [0; 7];
        socket.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"wake up");
        // It is told a moment after it is so.
        until("it is awake", async || state(&client, &id).await == "running").await;
    }
}
