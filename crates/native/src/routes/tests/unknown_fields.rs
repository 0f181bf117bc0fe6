//! Unknown fields of bodies: refused with the nearest known one, or ignored and listed in a header.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::fixture::{Answer, Fixture, IMAGE, json_request};

const ALL: &str = "/v1/sandboxes";
const HEADER: &str = "sandboxd-ignored-fields";

#[track_caller]
fn assert_refused(answer: &Answer, field: &str, nearest: &str) {
    assert_eq!((answer.status, answer.code()), (StatusCode::BAD_REQUEST, "INVALID_REQUEST"), "{answer:?}");
    assert_eq!((answer.detail("field"), answer.detail("nearest")), (field, nearest));
    let start = format!("{field} is an unknown field; the nearest known one is '{nearest}'; allowed: ");
    assert!(answer.message().starts_with(&start), "{}", answer.message());
    assert_eq!(answer.header(HEADER), "");
}

async fn with_key(fixture: &Fixture, path: &str, body: &Value) -> Answer {
    let mut request = json_request(path, body.to_string());
    request.headers_mut().insert("idempotency-key", "k".parse().unwrap());
    fixture.ask(request).await
}

#[tokio::test]
async fn a_typing_error_in_the_network_creates_no_sandbox() {
    let fixture = Fixture::new().await;
    for (network, field, nearest) in [
        (json!({ "egress": { "defualt": "deny" } }), "network.egress.defualt", "default"),
        (json!({ "egres": { "default": "deny" } }), "network.egres", "egress"),
        // Nothing is similar.
        (json!({ "egress": { "default": "deny", "a": [443] } }), "network.egress.a", "allow"),
    ] {
        let answer = fixture.post(ALL, json!({ "image": IMAGE, "network": network })).await;
        assert_refused(&answer, field, nearest);
    }
    assert_eq!(fixture.call("GET", ALL).await.json["pagination"]["total"], 0);
}

#[tokio::test]
async fn a_policy_in_the_wrong_object_creates_no_sandbox() {
    let fixture = Fixture::new().await;
    for (name, value, field, meant) in [
        ("egress", json!({ "default": "deny" }), "egress", "network.egress"),
        ("default", json!("deny"), "default", "network.egress.default"),
        ("deny_networks", json!([]), "deny_networks", "network.egress.denyNetworks"),
        ("network", json!({ "default": "deny" }), "network.default", "network.egress.default"),
        ("resources", json!({ "network": {} }), "resources.network", "network"),
        ("memory", json!(2048), "memory", "resources.memoryMb"),
    ] {
        let mut body = json!({ "image": IMAGE });
        body[name] = value;
        let answer = fixture.post(ALL, body).await;
        assert_eq!(
            (answer.status, answer.code()),
            (StatusCode::BAD_REQUEST, "INVALID_REQUEST"),
            "{answer:?}"
        );
        assert_eq!((answer.detail("field"), answer.detail("nearest")), (field, meant));
        let start = format!("{field} is an unknown field; did you mean '{meant}'? allowed here: ");
        assert!(answer.message().starts_with(&start), "{}", answer.message());
    }
    assert_eq!(fixture.call("GET", ALL).await.json["pagination"]["total"], 0);
}

#[tokio::test]
async fn ignored_fields_are_listed_in_every_form_of_response() {
    let fixture = Fixture::new().await;
    let created = fixture.post(ALL, json!({ "image": IMAGE, "colour": "red", "a,b": 1 })).await;
    assert_eq!((created.status, created.header(HEADER)), (StatusCode::CREATED, "a%2Cb, colour"));
    let id = created.json["id"].as_str().unwrap();
    let execute = format!("{ALL}/{id}/execute");
    let command = json!({ "command": "true", "shell": "zsh" });
    assert_eq!(fixture.post(&execute, command.clone()).await.header(HEADER), "shell");
    let mut streamed = json_request(&execute, command.to_string());
    streamed.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
    let streamed = fixture.ask(streamed).await;
    assert_eq!((streamed.header("content-type"), streamed.header(HEADER)), ("text/event-stream", "shell"));
    let events = json!([{ "type": "agent.thinking", "runId": "r", "priority": 1 }]);
    assert_eq!(fixture.post(&format!("{ALL}/{id}/events"), events).await.header(HEADER), "[0].priority");
    assert_eq!(fixture.post(&format!("{ALL}/{id}/pause"), json!({ "why": "x" })).await.header(HEADER), "why");
    // A refusal for another reason lists them too.
    let refused = fixture.post(ALL, json!({ "image": IMAGE, "timeoutMs": 0, "colour": 1 })).await;
    assert_eq!((refused.code(), refused.header(HEADER)), ("INVALID_CONFIG", "colour"));
    // Requests without ignored fields, or without a body.
    assert_eq!(fixture.post(ALL, json!({ "image": IMAGE })).await.header(HEADER), "");
    assert_eq!(fixture.call("GET", ALL).await.header(HEADER), "");
}

#[tokio::test]
async fn a_replayed_response_lists_them_again() {
    let fixture = Fixture::new().await;
    let body = json!({ "image": IMAGE, "colour": "red" });
    let first = with_key(&fixture, ALL, &body).await;
    let again = with_key(&fixture, ALL, &body).await;
    assert_eq!((again.header("idempotency-replayed"), &again.text), ("true", &first.text));
    assert_eq!((first.header(HEADER), again.header(HEADER)), ("colour", "colour"));
    // Another request with the same key is refused, and lists its own.
    let other = with_key(&fixture, ALL, &json!({ "image": IMAGE, "colours": "red" })).await;
    assert!(other.status.is_client_error(), "{other:?}");
    assert_eq!(other.header(HEADER), "colours");
    // A refusal is replayed like any other.
    let path = format!("{ALL}/{}/execute", first.json["id"].as_str().unwrap());
    for _ in 0..2 {
        let answer = with_key(&fixture, &path, &json!({ "comand": "true" })).await;
        assert_refused(&answer, "comand", "command");
    }
}

#[tokio::test]
async fn a_change_of_the_network_has_no_unknown_field() {
    let fixture = Fixture::new().await;
    let created =
        fixture.post(ALL, json!({ "image": IMAGE, "network": { "egress": { "default": "deny" } } })).await;
    let network = format!("{ALL}/{}/network", created.json["id"].as_str().unwrap());
    let answer = fixture.patch(&network, r#"{"egress":{"alow":["example.com"]}}"#).await;
    assert_refused(&answer, "egress.alow", "allow");
    let answer = fixture.patch(&network, r#"{"Egress":{"default":"allow"}}"#).await;
    assert_refused(&answer, "Egress", "egress");
    let now = fixture.call("GET", &network).await;
    assert_eq!(now.json["egress"], json!({ "allow": [], "default": "deny" }));
}
