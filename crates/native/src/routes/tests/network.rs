//! The network of a sandbox: seen, and changed while it lives.

use axum::body::Body;
use axum::http::StatusCode;
use serde_json::json;

use super::fixture::{Fixture, IMAGE, bearer, request};

const NETWORK_POLICY: &str =
    r#"{"egress":{"allow":["example.com"],"default":"deny"},"ingress":{"allowPorts":[3000]}}"#;

async fn create_with_policy(fixture: &Fixture) -> (String, String) {
    let network: serde_json::Value = serde_json::from_str(NETWORK_POLICY).unwrap();
    let created = fixture.post("/v1/sandboxes", json!({"image": IMAGE, "network": network})).await;
    let id = created.json["id"].as_str().unwrap().to_owned();
    (format!("/v1/sandboxes/{id}"), format!("/v1/sandboxes/{id}/network"))
}

#[tokio::test]
async fn network_policies_are_read_and_changed() {
    let fixture = Fixture::new().await;
    let (sandbox, network) = create_with_policy(&fixture).await;
    let usage = json!({"bytesOut": 0, "bytesIn": 0, "connections": 0});
    let seen = fixture.call("GET", &network).await;
    assert_eq!(seen.status, StatusCode::OK);
    assert_eq!(
        seen.json,
        json!({"egress": {"allow": ["example.com"], "default": "deny"}, "ingress": {"allowPorts": [3000]}, "usage": usage})
    );
    for (change, allow, default, ports) in [
        ("{}", json!(["example.com"]), "deny", json!([3000])),
        (
            r#"{"egress":{"allow":["a.example","*.b.example"]}}"#,
            json!(["a.example", "*.b.example"]),
            "deny",
            json!([3000]),
        ),
        (r#"{"egress":{"default":"allow"}}"#, json!(["a.example", "*.b.example"]), "allow", json!([3000])),
        (r#"{"ingress":{"allowPorts":[]}}"#, json!(["a.example", "*.b.example"]), "allow", json!([])),
        (r#"{"egress":{"allow":[],"default":"deny"}}"#, json!([]), "deny", json!([])),
    ] {
        let changed = fixture.patch(&network, change).await;
        assert_eq!(changed.status, StatusCode::OK, "{}", changed.text);
        assert_eq!(
            changed.json["network"]["egress"],
            json!({"allow": allow, "default": default}),
            "{change}"
        );
        assert_eq!(changed.json["network"]["ingress"], json!({"allowPorts": ports}), "{change}");
        assert_eq!(fixture.call("GET", &sandbox).await.json, changed.json);
    }
    let open = fixture.create().await;
    let seen = fixture.call("GET", &format!("/v1/sandboxes/{open}/network")).await;
    assert_eq!(seen.json, json!({"egress": {"allow": [], "default": "allow"}, "usage": usage}));
}

#[tokio::test]
async fn lists_of_networks_are_read_and_changed() {
    let fixture = Fixture::new().await;
    let lists = json!({"allowNetworks": ["203.0.113.7/32"], "denyNetworks": ["203.0.113.9/24"]});
    let created = fixture.post("/v1/sandboxes", json!({"image": IMAGE, "network": {"egress": lists}})).await;
    let sandbox = format!("/v1/sandboxes/{}", created.json["id"].as_str().unwrap());
    let network = format!("{sandbox}/network");
    let with = |lists: serde_json::Value| {
        let mut egress = json!({"allow": [], "default": "allow"});
        egress.as_object_mut().unwrap().extend(lists.as_object().unwrap().clone());
        egress
    };
    let first = with(json!({"allowNetworks": ["203.0.113.7"], "denyNetworks": ["203.0.113.0/24"]}));
    assert_eq!(created.json["network"]["egress"], first);
    for (change, expected) in [
        ("{}", first),
        (
            r#"{"egress":{"denyNetworks":["192.0.2.1"]}}"#,
            with(json!({"allowNetworks": ["203.0.113.7"], "denyNetworks": ["192.0.2.1"]})),
        ),
        (r#"{"egress":{"allowNetworks":[]}}"#, with(json!({"denyNetworks": ["192.0.2.1"]}))),
        (r#"{"egress":{"denyNetworks":[]}}"#, with(json!({}))),
    ] {
        let changed = fixture.patch(&network, change).await;
        assert_eq!(changed.json["network"]["egress"], expected, "{change}: {}", changed.text);
        assert_eq!(fixture.call("GET", &network).await.json["egress"], expected);
        assert_eq!(fixture.call("GET", &sandbox).await.json, changed.json);
    }
}

#[tokio::test]
async fn a_bad_change_changes_nothing() {
    let fixture = Fixture::new().await;
    let (_, network) = create_with_policy(&fixture).await;
    for (body, code, field) in [
        ("", "INVALID_REQUEST", ""),
        ("[]", "INVALID_REQUEST", "body"),
        (r#"{"egress":{"allow":null}}"#, "INVALID_REQUEST", "egress.allow"),
        (r#"{"egress":{"default":"ask"}}"#, "INVALID_CONFIG", "egress.default"),
        (r#"{"egress":{"allow":["http://x"],"default":"allow"}}"#, "INVALID_CONFIG", "egress.allow[0]"),
        (r#"{"egress":{"denyNetworks":null}}"#, "INVALID_REQUEST", "egress.denyNetworks"),
        (r#"{"egress":{"denyNetworks":["::/0"]}}"#, "INVALID_CONFIG", "egress.denyNetworks[0]"),
        (r#"{"egress":{"allowNetworks":["a.example"]}}"#, "INVALID_CONFIG", "egress.allowNetworks[0]"),
        (
            r#"{"egress":{"default":"allow"},"ingress":{"allowPorts":[70000]}}"#,
            "INVALID_CONFIG",
            "ingress.allowPorts[0]",
        ),
    ] {
        let refused = fixture.patch(&network, body).await;
        assert_eq!((refused.status, refused.code()), (StatusCode::BAD_REQUEST, code), "{body}");
        assert_eq!(refused.detail("field"), field, "{body}");
    }
    assert_eq!(
        fixture.call("GET", &network).await.json["egress"],
        json!({"allow": ["example.com"], "default": "deny"})
    );
    let untyped = request("PATCH", &network).body(Body::from("{}")).unwrap();
    assert_eq!(fixture.ask(untyped).await.code(), "INVALID_REQUEST");
    let large = fixture.patch(&network, " ".repeat((1 << 20) + 1)).await;
    assert_eq!(large.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn network_changes_of_paused_and_terminated_sandboxes() {
    let fixture = Fixture::new().await;
    let (sandbox, network) = create_with_policy(&fixture).await;
    fixture.call("POST", &format!("{sandbox}/pause")).await;
    let changed = fixture.patch(&network, r#"{"egress":{"allow":["b.example"]}}"#).await;
    assert_eq!((changed.status, &changed.json["state"]), (StatusCode::OK, &json!("paused")));
    assert!(changed.json["pausedAt"].is_string());

    let stranger = |method: &str| request(method, &network).header("content-type", "application/json");
    for method in ["GET", "PATCH"] {
        let mut asked = stranger(method).body(Body::from("{}")).unwrap();
        asked.headers_mut().insert("authorization", bearer(2).parse().unwrap());
        assert_eq!(fixture.ask(asked).await.code(), "SANDBOX_NOT_FOUND");
    }
    fixture.call("DELETE", &sandbox).await;
    for answer in [fixture.call("GET", &network).await, fixture.patch(&network, "{}").await] {
        assert_eq!((answer.status, answer.code()), (StatusCode::NOT_FOUND, "SANDBOX_NOT_FOUND"));
        assert_eq!(answer.detail("state"), "terminated");
    }
    assert_eq!(fixture.call("GET", "/v1/sandboxes/x/network").await.code(), "SANDBOX_NOT_FOUND");
}

#[tokio::test]
async fn a_change_with_an_idempotency_key_is_applied_once() {
    let fixture = Fixture::new().await;
    let (sandbox, network) = create_with_policy(&fixture).await;
    let send = async |body: &'static str| {
        let request = request("PATCH", &network).header("content-type", "application/json");
        fixture.ask(request.header("idempotency-key", "k").body(Body::from(body)).unwrap()).await
    };
    let first = send(r#"{"egress":{"allow":["b.example"]}}"#).await;
    fixture.patch(&network, r#"{"egress":{"allow":["c.example"]}}"#).await;
    let again = send(r#"{"egress":{"allow":["b.example"]}}"#).await;
    assert_eq!((again.header("idempotency-replayed"), &again.text), ("true", &first.text));
    assert_eq!(send("{}").await.code(), "INVALID_REQUEST");
    let now = fixture.call("GET", &sandbox).await;
    assert_eq!(now.json["network"]["egress"]["allow"], json!(["c.example"]));
}

/// Earlier versions stored responses under this text of the endpoint.
#[tokio::test]
async fn the_scope_of_an_idempotency_key_is_method_and_path() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    for (method, path, body) in [
        ("POST", "/v1/sandboxes".to_owned(), json!({"image": IMAGE})),
        ("PATCH", format!("/v1/sandboxes/{id}/network"), json!({"egress": {"default": "allow"}})),
        ("POST", format!("/v1/sandboxes/{id}/execute"), json!({"command": "true"})),
        ("POST", format!("/v1/sandboxes/{id}/ports"), json!({"port": 3000})),
        (
            "POST",
            format!("/v1/sandboxes/{id}/events"),
            json!({"type": "agent.thinking", "runId": "r", "data": {}}),
        ),
        ("POST", format!("/v1/sandboxes/{id}/terminals"), json!({})),
    ] {
        let request = request(method, &path).header("content-type", "application/json");
        let answer = fixture
            .ask(request.header("idempotency-key", "scope").body(Body::from(body.to_string())).unwrap())
            .await;
        assert!(answer.status.is_success(), "{path}: {}", answer.text);
        let endpoint = format!("{method} {path}");
        let record = fixture.service.store.idempotency_record("one", &endpoint, "scope").await.unwrap();
        assert!(record.is_some(), "{endpoint}");
    }
}
