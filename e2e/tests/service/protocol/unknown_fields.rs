//! Unknown fields of request bodies: a typing error is refused in every object, other fields are ignored and listed in a header.

use e2e::service::{Client, HttpResponse, small, with};
use hyper::Method;
use serde_json::{Value, json};

use crate::templates::{body as template, finished};
use crate::{SANDBOXES, action_path, create_sandbox, run_command, sandbox_path, take_snapshot, text, user};

const HEADER: &str = "sandboxd-ignored-fields";
const TEMPLATES: &str = "/v1/templates";

async fn send(client: &Client, method: Method, path: &str, body: &Value) -> HttpResponse {
    client.call(method, path).json(body).send().await.unwrap()
}

/// The field must be refused with its path, and with the name that was meant.
async fn refused(client: &Client, method: Method, path: &str, body: &Value, field: &str, nearest: &str) {
    let answer = send(client, method, path, body).await;
    let error = answer.error(400, "INVALID_REQUEST").unwrap_or_else(|e| panic!("{path} {body}: {e:#}"));
    assert_eq!(
        (&error["details"]["field"], &error["details"]["nearest"]),
        (&json!(field), &json!(nearest)),
        "{path} {body}: {error}"
    );
    let message = text(&error["message"]);
    assert!(message.starts_with(&format!("{field} is an unknown field")), "{message}");
    assert!(message.contains(&format!("'{nearest}'")), "{message}");
    assert_eq!(answer.header(HEADER), None);
}

/// The objects of creates and templates: what is in them, and what is refused.
const NESTED: [(&[&str], &str); 12] = [
    (&["resources", "Memorymb"], "memoryMb"),
    (&["resources", "memory"], "memoryMb"),
    (&["resources", "disk_mb"], "diskMb"),
    (&["resources", "gpu"], "cpu"),
    (&["network", "egres"], "egress"),
    (&["network", "Ingress"], "ingress"),
    (&["network", "egress", "defualt"], "default"),
    (&["network", "egress", "DEFAULT"], "default"),
    (&["network", "egress", "alow"], "allow"),
    (&["network", "egress", "allow_networks"], "allowNetworks"),
    (&["network", "egress", "denyNetwork"], "denyNetworks"),
    (&["network", "ingress", "allowPort"], "allowPorts"),
];

/// The body with a value at a path.
fn with_nested(body: &Value, path: &[&str], value: Value) -> Value {
    let mut body = body.clone();
    let mut object = &mut body;
    for name in path {
        object = &mut object[*name];
    }
    *object = value;
    body
}

#[tokio::test]
async fn a_typing_error_in_a_create_creates_nothing() {
    let (_service, client) = user().await;
    for (path, nearest) in NESTED {
        let body = with_nested(&small(), path, json!("deny"));
        refused(&client, Method::POST, SANDBOXES, &body, &path.join("."), nearest).await;
    }
    for (name, nearest) in [
        ("Image", "image"),
        ("netwrok", "network"),
        ("resource", "resources"),
        ("timeout_ms", "timeoutMs"),
        ("idleTimeout", "idleTimeoutMs"),
        ("ontimeout", "onTimeout"),
        ("autoresume", "autoResume"),
        ("isolaton", "isolation"),
        ("metaData", "metadata"),
        ("envs", "env"),
        ("workDir", "workdir"),
        ("cald", "cold"),
    ] {
        let body = with(small(), name, json!(1));
        refused(&client, Method::POST, SANDBOXES, &body, name, nearest).await;
    }
    // In the wrong object, where the network would have stayed open.
    for (path, meant) in [
        (&["egress"][..], "network.egress"),
        (&["Default"], "network.egress.default"),
        (&["allow_ports"], "network.ingress.allowPorts"),
        (&["cpu"], "resources.cpu"),
        (&["network", "default"], "network.egress.default"),
        (&["resources", "network"], "network"),
    ] {
        let body = with_nested(&small(), path, json!("deny"));
        refused(&client, Method::POST, SANDBOXES, &body, &path.join("."), meant).await;
    }
    // Without the field that it stands for.
    refused(&client, Method::POST, SANDBOXES, &json!({ "imgae": "ubuntu:24.04" }), "imgae", "image").await;
    assert_eq!(client.get(SANDBOXES).await.unwrap().is(200).unwrap()["pagination"]["total"], 0);
}

/// These objects decide what a sandbox can use and reach, so nothing in them is ignored.
#[tokio::test]
async fn network_and_resources_have_no_unknown_fields() {
    let (_service, client) = user().await;
    for path in [
        &["resources", "accelerator"][..],
        &["network", "firewall"],
        &["network", "egress", "protocols"],
        &["network", "ingress", "visibility"],
    ] {
        for (endpoint, body) in [(SANDBOXES, small()), (TEMPLATES, template("t", "RUN true"))] {
            let body = with_nested(&body, path, json!({ "a": [1] }));
            let answer = send(&client, Method::POST, endpoint, &body).await;
            let error = answer.error(400, "INVALID_REQUEST").unwrap_or_else(|e| panic!("{body}: {e:#}"));
            assert_eq!(error["details"]["field"], path.join("."), "{error}");
            assert!(error["details"]["nearest"].is_string(), "{error}");
        }
    }
}

#[tokio::test]
async fn typing_errors_in_templates_are_refused() {
    let (_service, client) = user().await;
    let body = template("web", "RUN true");
    for (path, nearest) in NESTED {
        let body = with_nested(&body, path, json!("deny"));
        refused(&client, Method::POST, TEMPLATES, &body, &path.join("."), nearest).await;
    }
    for (name, nearest) in [
        ("dockerFile", "dockerfile"),
        ("buildArg", "buildArgs"),
        ("start_command", "startCommand"),
        ("readyComand", "readyCommand"),
        ("nocache", "noCache"),
        ("timeoutMS", "timeoutMs"),
        ("Isolation", "isolation"),
    ] {
        let body = with(body.clone(), name, json!(1));
        refused(&client, Method::POST, TEMPLATES, &body, name, nearest).await;
    }
    assert_eq!(client.get(TEMPLATES).await.unwrap().is(200).unwrap()["pagination"]["total"], 0);
}

#[tokio::test]
async fn typing_errors_in_requests_to_a_sandbox_are_refused() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let (post, put, patch) = (Method::POST, Method::PUT, Method::PATCH);
    for (method, verb, body, field, nearest) in [
        (&patch, "network", json!({ "egres": { "default": "deny" } }), "egres", "egress"),
        (&patch, "network", json!({ "egress": { "defualt": "deny" } }), "egress.defualt", "default"),
        (&patch, "network", json!({ "ingress": { "allowports": [] } }), "ingress.allowports", "allowPorts"),
        (&post, "fork", json!({ "count": 1, "Memory": true }), "Memory", "memory"),
        (&post, "fork", json!({ "cuont": 3 }), "cuont", "count"),
        (&post, "fork", json!({ "count": 1, "evn": {} }), "evn", "env"),
        (&post, "snapshots", json!({ "nmae": "x" }), "nmae", "name"),
        (&post, "snapshots", json!({ "memroy": true }), "memroy", "memory"),
        (&post, "rollback", json!({ "snapshot_id": "x" }), "snapshot_id", "snapshotId"),
        (&post, "pause", json!({ "hibernat": true }), "hibernat", "hibernate"),
        (&post, "resume", json!({ "Cold": true }), "Cold", "cold"),
        (&put, "timeout", json!({ "timeoutMS": 1000 }), "timeoutMS", "timeoutMs"),
        (&post, "execute", json!({ "comand": "true" }), "comand", "command"),
        (&post, "execute", json!({ "command": "true", "timeout": 5 }), "timeout", "timeoutMs"),
        (&post, "execute", json!({ "command": "true", "detatched": true }), "detatched", "detached"),
        (
            &post,
            "execute",
            json!({ "command": "true", "detached": true, "openStdIn": true }),
            "openStdIn",
            "openStdin",
        ),
        (&post, "terminals", json!({ "colls": 80 }), "colls", "cols"),
        (&post, "ports", json!({ "port": 80, "visibilty": "private" }), "visibilty", "visibility"),
        (
            &post,
            "events",
            json!([{ "type": "cost.llm", "runId": "r" }, { "type": "cost.llm", "runID": "r" }]),
            "[1].runID",
            "runId",
        ),
    ] {
        refused(&client, method.clone(), &action_path(&id, verb), &body, field, nearest).await;
    }
    // Nothing of that has happened: the sandbox is as it was, and alone.
    let sandbox = client.get(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    assert_eq!(sandbox["state"], "running");
    assert_eq!(sandbox["network"], json!({ "egress": { "allow": [], "default": "allow" } }));
    assert_eq!(client.get(SANDBOXES).await.unwrap().is(200).unwrap()["pagination"]["total"], 1);
    assert_eq!(client.get(crate::SNAPSHOTS).await.unwrap().is(200).unwrap()["pagination"]["total"], 0);
    client.post(&action_path(&id, "ports"), &json!({ "port": 80 })).await.unwrap().is(201).unwrap();
    let token = action_path(&id, "ports/80/token");
    refused(&client, Method::POST, &token, &json!({ "expiresMs": 1000 }), "expiresMs", "expiresInMs").await;
}

#[tokio::test]
async fn other_unknown_fields_are_ignored_and_listed() {
    let (service, client) = user().await;
    let body = with(with(small(), "colour", json!({ "deep": [1, null] })), "a, b\n", json!(1));
    let created = send(&client, Method::POST, SANDBOXES, &body).await;
    assert_eq!(created.header(HEADER), Some(r"a%2C%20b\n, colour"));
    let sandbox = created.is(201).unwrap();
    assert!(sandbox.get("colour").is_none(), "{sandbox}");
    let id = text(&sandbox["id"]);
    for (method, verb, body, listed) in [
        (Method::POST, "execute", json!({ "command": "true", "shell": "zsh" }), Some("shell")),
        (Method::POST, "execute", json!({ "command": "true", "env": { "evn": "1" } }), None),
        (
            Method::POST,
            "snapshots",
            json!({ "priority": 1, "metadata": { "Memory": "1" } }),
            Some("priority"),
        ),
        (Method::POST, "fork", json!({ "count": 1, "placement": "here" }), Some("placement")),
        (Method::PUT, "timeout", json!({ "timeoutMs": 600_000, "reason": "x" }), Some("reason")),
        (
            Method::POST,
            "events",
            json!([{ "type": "cost.llm", "runId": "r", "data": { "tpye": 1 }, "priority": 1 }]),
            Some("[0].priority"),
        ),
        (Method::POST, "ports", json!({ "port": 8080, "protocol": "http" }), Some("protocol")),
        (Method::POST, "pause", json!({ "reason": "x" }), Some("reason")),
        (Method::POST, "resume", json!({ "reason": "x" }), Some("reason")),
    ] {
        let answer = send(&client, method, &action_path(&id, verb), &body).await;
        assert!(answer.status < 300, "{verb}: {}", answer.text());
        assert_eq!(answer.header(HEADER), listed, "{verb} {body}");
    }
    // Over HTTP/2, too.
    let over_http2 = service.over_http2(&client).unwrap();
    let command = json!({ "command": "true", "shell": "zsh" });
    let answer = send(&over_http2, Method::POST, &action_path(&id, "execute"), &command).await;
    assert_eq!((answer.status, answer.header(HEADER)), (200, Some("shell")));
    let accepted = with(template("listed", "RUN true"), "platform", json!("arm64"));
    let accepted = send(&client, Method::POST, TEMPLATES, &accepted).await;
    assert_eq!(accepted.header(HEADER), Some("platform"));
    finished(&client, &text(&accepted.is(201).unwrap()["id"])).await;
}

#[tokio::test]
async fn the_list_is_bounded_and_replayed() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let mut command = json!({ "command": "true" });
    for number in 0..500 {
        command[format!("{number:03}{}", "ü".repeat(200))] = json!(null);
    }
    for replayed in [None, Some("true")] {
        let call = client.call(Method::POST, &action_path(&id, "execute")).header("idempotency-key", "k");
        let answer = call.json(&command).send().await.unwrap();
        assert_eq!((answer.status, answer.header("idempotency-replayed")), (200, replayed));
        let listed = answer.header(HEADER).unwrap();
        assert!(listed.len() < 1500 && listed.starts_with("000%C3%BC"), "{listed}");
        assert!(listed.ends_with(", ..."), "{listed}");
        assert_eq!(listed.split(", ").count(), 17, "{listed}");
    }
    // So is the number of fields.
    let many: Value = (0..10_001).map(|number| (format!("field{number}"), json!(0))).collect();
    let error = client.post(&action_path(&id, "execute"), &many).await.unwrap();
    error.error(400, "INVALID_CONFIG").unwrap();
    assert_eq!(run_command(&client, &id, json!({ "command": "echo ok" })).await["stdout"], "ok\n");
}

/// A snapshot and a template are created from by the same body, whose fields are read before their sandbox begins.
#[tokio::test]
async fn a_create_from_a_snapshot_is_as_strict() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let body = with(small(), "image", json!(take_snapshot(&client, &id).await));
    let mistyped = with_nested(&body, &["network", "egress", "defualt"], json!("deny"));
    refused(&client, Method::POST, SANDBOXES, &mistyped, "network.egress.defualt", "default").await;
    let listed = send(&client, Method::POST, SANDBOXES, &with(body, "colour", json!(1))).await;
    assert_eq!((listed.status, listed.header(HEADER)), (201, Some("colour")));
}
