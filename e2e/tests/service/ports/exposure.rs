//! Exposing ports: operations, refusals, scopes, policy, events and persistence.

use e2e::service::{Service, ServiceOptions};
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::ports::{PORT, PortClient, expose, host_of, listen, token};
use crate::{
    UNKNOWN_ID, action_path, create_sandbox, keys, output, sandbox_path, shared_service, small, state, text,
    time, user, wait_until, with,
};

#[tokio::test]
async fn a_port_is_exposed_listed_and_closed() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    assert_eq!(client.get(&action_path(&id, "ports")).await.unwrap().is(200).unwrap(), json!({ "data": [] }));
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
    let listed = client.get(&action_path(&id, "ports")).await.unwrap().is(200).unwrap();
    assert_eq!(listed, json!({ "data": [other, port] }));
    let closed = client.delete(&action_path(&id, "ports/80")).await.unwrap().is(200).unwrap();
    assert_eq!((keys(&closed), &closed["port"]), (vec!["closedAt", "port"], &json!(80)));
    let error =
        client.delete(&action_path(&id, "ports/80")).await.unwrap().error(404, "PORT_NOT_FOUND").unwrap();
    assert_eq!(error["details"], json!({ "port": 80, "sandboxId": id }));
    assert_eq!(
        client.get(&action_path(&id, "ports")).await.unwrap().is(200).unwrap()["data"][1],
        Value::Null
    );
}

#[tokio::test]
async fn invalid_port_requests_are_refused() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let ports = action_path(&id, "ports");
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
    let tokens = action_path(&id, "ports/80/token");
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
        .post(&action_path(&id, "ports/81/token"), &json!({}))
        .await
        .unwrap()
        .error(404, "PORT_NOT_FOUND")
        .unwrap();
    client.post_empty(&action_path(&id, "ports/80")).await.unwrap().error(405, "METHOD_NOT_ALLOWED").unwrap();
    // An unknown sandbox, one of another account, a terminated one.
    let other = service.account().await.unwrap();
    for (client, id) in [(&client, UNKNOWN_ID), (&other, id.as_str())] {
        let (ports, one) = (action_path(id, "ports"), action_path(id, "ports/80"));
        for answer in [
            client.get(&ports).await,
            client.post(&ports, &json!({ "port": 80 })).await,
            client.delete(&one).await,
            client.post(&format!("{one}/token"), &json!({})).await,
        ] {
            answer.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
        }
    }
    client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    let error = client.get(&ports).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    assert_eq!(error["details"]["state"], "terminated");
}

#[tokio::test]
async fn port_operations_need_the_scope() {
    let service = shared_service().await;
    let owner = service.client_with_new_key("port-scopes", "read,execute,write").await.unwrap();
    let id = create_sandbox(&owner).await;
    let reader = service.client_with_new_key("port-scopes", "read").await.unwrap();
    reader.get(&action_path(&id, "ports")).await.unwrap().is(200).unwrap();
    let body = json!({ "port": 80 });
    reader.post(&action_path(&id, "ports"), &body).await.unwrap().error(403, "FORBIDDEN").unwrap();
    expose(&owner, &id, &body).await;
    reader.delete(&action_path(&id, "ports/80")).await.unwrap().error(403, "FORBIDDEN").unwrap();
    reader
        .post(&action_path(&id, "ports/80/token"), &json!({}))
        .await
        .unwrap()
        .error(403, "FORBIDDEN")
        .unwrap();
    owner.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
}

#[tokio::test]
async fn the_ingress_policy_limits_ports() {
    let (service, client) = user().await;
    let body = with(small(), "network", json!({ "ingress": { "allowPorts": [PORT, 9000] } }));
    let id = text(&client.post("/v1/sandboxes", &body).await.unwrap().is(201).unwrap()["id"]);
    let refused = client.post(&action_path(&id, "ports"), &json!({ "port": 22 })).await.unwrap();
    let error = refused.error(403, "PORT_NOT_ALLOWED").unwrap();
    assert!(text(&error["message"]).contains("allows 8080, 9000"), "{error}");
    listen(&client, &id, PORT).await;
    let port = expose(&client, &id, &json!({ "port": PORT, "visibility": "public" })).await;
    expose(&client, &id, &json!({ "port": 9000 })).await;
    let port_client = PortClient { service: service.clone(), host: host_of(&port), token: None };
    assert_eq!(port_client.get("/").await.text(), "it is port 8080");
    let mut socket = port_client.websocket().await;
    // A policy change that forbids an exposed port closes it and its connections.
    let change = json!({ "ingress": { "allowPorts": [9000] } });
    client
        .call(Method::PATCH, &action_path(&id, "network"))
        .json(&change)
        .send()
        .await
        .unwrap()
        .is(200)
        .unwrap();
    let listed = client.get(&action_path(&id, "ports")).await.unwrap().is(200).unwrap();
    assert_eq!((listed["data"].as_array().unwrap().len(), &listed["data"][0]["port"]), (1, &json!(9000)));
    let gone = port_client.get("/").await;
    assert_eq!((gone.status, gone.code().as_str()), (404, "PORT_NOT_FOUND"));
    let mut rest = Vec::new();
    // It may be closed or reset.
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut socket, &mut rest).await;
    assert!(rest.is_empty());
    wait_until("the events are visible", async || {
        kinds(&client, &id).await == "exposed exposed closed:network"
    })
    .await;
    // An empty list allows no port.
    let none = json!({ "ingress": { "allowPorts": [] } });
    client
        .call(Method::PATCH, &action_path(&id, "network"))
        .json(&none)
        .send()
        .await
        .unwrap()
        .is(200)
        .unwrap();
    client
        .post(&action_path(&id, "ports"), &json!({ "port": 9000 }))
        .await
        .unwrap()
        .error(403, "PORT_NOT_ALLOWED")
        .unwrap();
}

/// The events of a sandbox's ports.
async fn kinds(client: &e2e::service::Client, id: &str) -> String {
    let path = format!("/v1/events?sandboxId={id}&type=port.*&order=asc");
    let listed = client.get(&path).await.unwrap().is(200).unwrap();
    let summary = |event: &Value| match event["data"]["reason"].as_str() {
        None => text(&event["type"]).replace("port.", ""),
        Some(reason) => format!("{}:{reason}", text(&event["type"]).replace("port.", "")),
    };
    listed["data"].as_array().unwrap().iter().map(summary).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn port_events_have_data_and_run() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let expose = client.call(Method::POST, &action_path(&id, "ports")).header("x-run-id", "run_7");
    expose.json(&json!({ "port": 8080, "visibility": "public" })).send().await.unwrap().is(201).unwrap();
    client.delete(&action_path(&id, "ports/8080")).await.unwrap().is(200).unwrap();
    wait_until("the events are visible", async || kinds(&client, &id).await == "exposed closed:request")
        .await;
    let path = format!("/v1/sandboxes/{id}/events?type=port.exposed&runId=run_7");
    let event = client.get(&path).await.unwrap().is(200).unwrap()["data"][0].clone();
    assert_eq!(event["data"], json!({ "port": 8080, "visibility": "public", "autoResume": true }));
}

#[tokio::test]
async fn an_idempotency_key_makes_exposing_repeatable() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let expose = async || {
        let call = client.call(Method::POST, &action_path(&id, "ports")).header("idempotency-key", "once");
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
async fn at_most_64_ports_can_be_exposed() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    for port in 1000..1064 {
        expose(&client, &id, &json!({ "port": port })).await;
    }
    let error = client
        .post(&action_path(&id, "ports"), &json!({ "port": 2000 }))
        .await
        .unwrap()
        .error(400, "INVALID_CONFIG")
        .unwrap();
    assert!(text(&error["message"]).contains("64 exposed ports"), "{error}");
    expose(&client, &id, &json!({ "port": 1063, "visibility": "public" })).await;
}

#[tokio::test]
async fn exposed_ports_survive_the_daemon_and_end_with_the_sandbox() {
    let service = std::sync::Arc::new(Service::start(&ServiceOptions::default()).await.unwrap());
    let client = service.account().await.unwrap();
    let (id, port_client) = crate::ports::open_port(&service, &client).await;
    let before = client.get(&action_path(&id, "ports")).await.unwrap().is(200).unwrap();
    service.kill().unwrap();
    service.start_process().await.unwrap();
    let client = client.with_own_connections();
    assert_eq!(client.get(&action_path(&id, "ports")).await.unwrap().is(200).unwrap(), before);
    // Tokens stay valid: the secret is in the data directory, readable only by its owner.
    assert_eq!(port_client.get("/").await.text(), "it is port 8080");
    let secret = service.layout.data.join("ports.secret");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(secret).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    assert_eq!(port_client.get("/").await.status, 404);
    service.restart().await.unwrap();
    assert_eq!(port_client.get("/").await.code(), "PORT_NOT_FOUND");
}

#[tokio::test]
async fn traffic_resumes_a_paused_sandbox_if_allowed() {
    let (service, client) = user().await;
    let (id, port_client) = crate::ports::open_port(&service, &client).await;
    let pause = async || client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    pause().await;
    // Exposing, listing, tokens and unauthorized requests do not resume it.
    expose(&client, &id, &json!({ "port": 9000 })).await;
    token(&client, &id, PORT).await;
    assert_eq!(port_client.without_token().get("/").await.status, 401);
    assert_eq!(state(&client, &id).await, "paused");
    assert_eq!(port_client.get("/").await.text(), "it is port 8080");
    assert_eq!(state(&client, &id).await, "running");
    expose(&client, &id, &json!({ "port": PORT, "autoResume": false })).await;
    let port_client = port_client.with_token(&token(&client, &id, PORT).await);
    assert_eq!(port_client.get("/").await.status, 200);
    pause().await;
    let response = port_client.get("/").await;
    assert_eq!((response.status, response.code().as_str()), (409, "INVALID_STATE"));
    assert_eq!(state(&client, &id).await, "paused");
}

#[tokio::test]
async fn an_open_websocket_counts_as_activity() {
    let (service, client) = user().await;
    let body = with(small(), "idleTimeoutMs", json!(2000));
    let id = text(&client.post("/v1/sandboxes", &body).await.unwrap().is(201).unwrap()["id"]);
    listen(&client, &id, PORT).await;
    let port = expose(&client, &id, &json!({ "port": PORT, "visibility": "public" })).await;
    let port_client = PortClient { service: service.clone(), host: host_of(&port), token: None };
    let socket = port_client.websocket().await;
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    assert_eq!(state(&client, &id).await, "running");
    drop(socket);
    wait_until("it is paused", async || state(&client, &id).await == "paused").await;
    assert!(output(&client, &id, "true").await.is_empty());
}

/// Traffic on a connection that was already open resumes the sandbox.
#[tokio::test]
async fn a_message_on_an_open_websocket_resumes_a_paused_sandbox() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    listen(&client, &id, PORT).await;
    for resumes in [true, false] {
        let body = json!({ "port": PORT, "visibility": "public", "autoResume": resumes });
        let port = expose(&client, &id, &body).await;
        let port_client = PortClient { service: service.clone(), host: host_of(&port), token: None };
        let mut socket = port_client.websocket().await;
        client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
        socket.write_all(b"wake up").await.unwrap();
        socket.flush().await.unwrap();
        if !resumes {
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            assert_eq!(state(&client, &id).await, "paused");
            client.post_empty(&action_path(&id, "resume")).await.unwrap().is(200).unwrap();
        }
        let mut answer = [0; 7];
        socket.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"wake up");
        // The state is published slightly later.
        wait_until("it is running", async || state(&client, &id).await == "running").await;
    }
}
