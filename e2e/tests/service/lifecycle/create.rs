//! Creating a sandbox: the rules of each field, and the defaults.

use e2e::service::{Client, Service, ServiceOptions};
use serde_json::{Map, Value, json};

use crate::{SANDBOXES, output, sandbox_path, small, text, user, with};

async fn create(client: &Client, body: &Value) -> e2e::service::HttpResponse {
    client.post(SANDBOXES, body).await.unwrap()
}

/// A body with the image and one other field.
fn only(field: &str, value: Value) -> Value {
    with(json!({ "image": Service::image() }), field, value)
}

/// Asserts that a create is refused with a message that names the field.
async fn assert_refused(client: &Client, body: &Value, code: &str, field: &str) {
    let excerpt: String = body.to_string().chars().take(200).collect();
    let error = create(client, body).await.error(400, code).unwrap_or_else(|e| panic!("{excerpt}: {e:#}"));
    let message = text(&error["message"]);
    assert!(message.contains(field), "{excerpt}: {message:?} does not name {field}");
}

#[tokio::test]
async fn a_create_with_only_an_image_uses_the_defaults() {
    let (_service, client) = user().await;
    let sandbox = create(&client, &json!({ "image": Service::image() })).await.is(201).unwrap();
    for (field, value) in [
        ("image", json!(Service::image())),
        ("state", json!("running")),
        ("resources", json!({ "cpu": 2, "memoryMb": 4096, "diskMb": 10_240 })),
        ("env", json!({})),
        ("workdir", json!("/workspace")),
        ("timeoutMs", json!(300_000)),
        ("idleTimeoutMs", json!(120_000)),
        ("metadata", json!({})),
        ("network", json!({ "egress": { "allow": [], "default": "allow" } })),
    ] {
        assert_eq!(sandbox[field], value, "{field}");
    }
    let id = text(&sandbox["id"]);
    assert_eq!(output(&client, &id, "pwd; ls -A | wc -l").await, "/workspace\n0\n");
}

#[tokio::test]
async fn fields_at_their_bounds_are_accepted() {
    let (_service, client) = user().await;
    let most: Map<String, Value> = (0..20).map(|n| (format!("k{n}"), json!("v".repeat(256)))).collect();
    let wide: Map<String, Value> = [("ü".to_owned(), json!("ä".repeat(256)))].into_iter().collect();
    for (field, value) in [
        ("resources", json!({ "cpu": 8, "memoryMb": 16_384, "diskMb": 5_120 })),
        ("resources", json!({ "cpu": 2, "memoryMb": 2_048, "diskMb": 51_200 })),
        ("resources", json!({})),
        ("timeoutMs", json!(86_400_000)),
        ("idleTimeoutMs", json!(0)),
        ("idleTimeoutMs", json!(9_007_199_254_740_991_u64)),
        ("metadata", Value::Object(most)),
        ("metadata", Value::Object(wide)),
        ("workdir", json!("/")),
        ("network", json!({})),
        ("network", json!({ "egress": { "default": "deny" } })),
        ("network", json!({ "egress": { "allow": ["*.example.com", "xn--bcher-kva.example"] } })),
    ] {
        let body = only(field, value);
        let sandbox = create(&client, &body).await.is(201).unwrap_or_else(|e| panic!("{body}: {e:#}"));
        client.delete(&sandbox_path(&text(&sandbox["id"]))).await.unwrap().is(200).unwrap();
    }
}

#[tokio::test]
async fn values_out_of_range_are_invalid_config() {
    let (_service, client) = user().await;
    let too_many: Map<String, Value> = (0..21).map(|n| (format!("k{n}"), json!(""))).collect();
    let huge = u64::MAX;
    for (field, value, expected_text) in [
        ("resources", json!({ "cpu": 3 }), "resources.cpu"),
        ("resources", json!({ "cpu": 0 }), "resources.cpu"),
        ("resources", json!({ "cpu": -2 }), "resources.cpu"),
        ("resources", json!({ "cpu": 16 }), "resources.cpu"),
        ("resources", json!({ "cpu": huge }), "resources.cpu"),
        ("resources", json!({ "memoryMb": 2_047 }), "resources.memoryMb"),
        ("resources", json!({ "memoryMb": 16_385 }), "resources.memoryMb"),
        ("resources", json!({ "memoryMb": -1 }), "resources.memoryMb"),
        ("resources", json!({ "diskMb": 5_119 }), "resources.diskMb"),
        ("resources", json!({ "diskMb": 51_201 }), "resources.diskMb"),
        ("timeoutMs", json!(0), "timeoutMs"),
        ("timeoutMs", json!(-5), "timeoutMs"),
        ("timeoutMs", json!(86_400_001), "timeoutMs"),
        ("timeoutMs", json!(huge), "timeoutMs"),
        ("idleTimeoutMs", json!(-1), "idleTimeoutMs"),
        ("idleTimeoutMs", json!(9_007_199_254_740_992_u64), "idleTimeoutMs"),
        ("metadata", Value::Object(too_many), "metadata"),
        ("metadata", json!({ "k": "v".repeat(257) }), "metadata.k"),
        ("metadata", json!({ "": "v" }), "metadata"),
        ("env", json!({ "A=B": "x" }), "env"),
        ("env", json!({ "": "x" }), "env"),
        ("env", json!({ "A": "x\u{0}y" }), "env.A"),
        ("workdir", json!("relative"), "workdir"),
        ("workdir", json!(""), "workdir"),
        ("workdir", json!("/a\u{0}b"), "workdir"),
        ("workdir", json!("/etc/passwd"), "workdir"),
        ("workdir", json!("/etc/passwd/below"), "workdir"),
        ("workdir", json!("/proc/none"), "workdir"),
        ("network", json!({ "egress": { "default": "maybe" } }), "network.egress.default"),
        ("network", json!({ "egress": { "allow": ["not a domain"] } }), "network.egress.allow"),
        ("network", json!({ "egress": { "allow": ["https://example.com/"] } }), "network.egress.allow"),
        ("network", json!({ "egress": { "allow": ["10.0.0.1"] } }), "network.egress.allow"),
        ("network", json!({ "ingress": { "allowPorts": [0] } }), "network.ingress.allowPorts"),
        ("network", json!({ "ingress": { "allowPorts": [65_536] } }), "network.ingress.allowPorts"),
    ] {
        assert_refused(&client, &only(field, value), "INVALID_CONFIG", expected_text).await;
    }
    assert_refused(&client, &json!({ "image": "" }), "INVALID_CONFIG", "image").await;
    assert_eq!(client.get(SANDBOXES).await.unwrap().is(200).unwrap()["pagination"]["total"], 0);
}

#[tokio::test]
async fn wrong_types_are_invalid_request() {
    let (_service, client) = user().await;
    assert_refused(&client, &json!({}), "INVALID_REQUEST", "image").await;
    for wrong in [json!(null), json!(5), json!(true), json!([]), json!({})] {
        assert_refused(&client, &json!({ "image": wrong }), "INVALID_REQUEST", "image").await;
    }
    for (field, value, expected_text) in [
        ("resources", json!(null), "resources"),
        ("resources", json!([]), "resources"),
        ("resources", json!("big"), "resources"),
        ("resources", json!({ "cpu": "2" }), "cpu"),
        ("resources", json!({ "cpu": 2.5 }), "cpu"),
        ("resources", json!({ "cpu": null }), "cpu"),
        ("resources", json!({ "memoryMb": true }), "memoryMb"),
        ("resources", json!({ "diskMb": [10_240] }), "diskMb"),
        ("env", json!([]), "env"),
        ("env", json!({ "A": 1 }), "env"),
        ("env", json!({ "A": null }), "env"),
        ("workdir", json!(7), "workdir"),
        ("timeoutMs", json!("300000"), "timeoutMs"),
        ("timeoutMs", json!(1.5), "timeoutMs"),
        ("idleTimeoutMs", json!({}), "idleTimeoutMs"),
        ("metadata", json!({ "k": ["v"] }), "metadata"),
        ("metadata", json!("k=v"), "metadata"),
        ("network", json!("none"), "network"),
        ("network", json!({ "egress": [] }), "egress"),
        ("network", json!({ "egress": { "allow": "example.com" } }), "allow"),
        ("network", json!({ "egress": { "allow": [1] } }), "allow"),
        ("network", json!({ "egress": { "default": true } }), "default"),
        ("network", json!({ "ingress": { "allowPorts": ["80"] } }), "allowPorts"),
    ] {
        assert_refused(&client, &only(field, value), "INVALID_REQUEST", expected_text).await;
    }
    assert_eq!(client.get(SANDBOXES).await.unwrap().is(200).unwrap()["pagination"]["total"], 0);
}

#[tokio::test]
async fn options_of_a_create_take_effect() {
    let (_service, client) = user().await;
    let body = json!({
        "image": Service::image(),
        "resources": { "cpu": 2, "memoryMb": 2048, "diskMb": 6000 },
        "env": { "GREETING": "it's \"héllo\" $HOME\nnext", "PATH_TO": "/x" },
        "workdir": "/srv/deep/er",
    });
    let id = text(&create(&client, &body).await.is(201).unwrap()["id"]);
    assert_eq!(output(&client, &id, "pwd").await, "/srv/deep/er\n");
    assert_eq!(output(&client, &id, "printf %s \"$GREETING\"").await, "it's \"héllo\" $HOME\nnext");
    let kilobytes = output(&client, &id, "df -k --output=size / | tail -1").await;
    let megabytes = kilobytes.trim().parse::<u64>().unwrap() / 1024;
    assert!((5_000..=6_000).contains(&megabytes), "{megabytes} MB of disk");
}

#[tokio::test]
async fn a_create_beyond_capacity_is_503_and_leaves_nothing() {
    let options = ServiceOptions::default().with("capacity", "memory_mb", "2048").with(
        "capacity",
        "overcommit_memory",
        "2.0",
    );
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let first = text(&create(&client, &small()).await.is(201).unwrap()["id"]);
    create(&client, &small()).await.is(201).unwrap();
    let answer = create(&client, &small()).await;
    let error = answer.error(503, "RESOURCE_EXHAUSTED").unwrap();
    assert!(text(&error["message"]).contains("memory"), "{error}");
    let list = client.get(SANDBOXES).await.unwrap().is(200).unwrap();
    assert_eq!(list["pagination"]["total"], 2);
    // Terminating one frees capacity.
    client.delete(&sandbox_path(&first)).await.unwrap().is(200).unwrap();
    create(&client, &small()).await.is(201).unwrap();
}

#[tokio::test]
async fn a_sandbox_from_the_pool_is_like_any_other() {
    let options = ServiceOptions::default().with("pool", &format!("\"{}\"", Service::image()), "2");
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let body = json!({ "image": Service::image(), "env": { "MINE": "yes" }, "workdir": "/elsewhere" });
    for _ in 0..4 {
        let sandbox = create(&client, &body).await.is(201).unwrap();
        assert!(crate::time(&sandbox["createdAt"]) <= crate::time(&sandbox["startedAt"]), "{sandbox}");
        assert!(
            crate::now_ms() - crate::time(&sandbox["createdAt"]) < 5_000,
            "createdAt is the time of provisioning"
        );
        let id = text(&sandbox["id"]);
        assert_eq!(
            output(&client, &id, "echo $MINE; pwd; hostname").await,
            format!("yes\n/elsewhere\n{}\n", id.replace('_', "-"))
        );
    }
    assert_eq!(client.get(SANDBOXES).await.unwrap().is(200).unwrap()["pagination"]["total"], 4);
}
