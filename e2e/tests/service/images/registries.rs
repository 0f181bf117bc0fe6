//! Images of registries that accounts may name: patterns, credentials, digests, quotas, and the removal of images.

use std::time::{Duration, Instant};

use e2e::service::{Client, Service, ServiceOptions, small, with};
use e2e::small_registry::SmallRegistry;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::templates::{TEMPLATES, build, create_from, failure};
use crate::{SANDBOXES, output, sandbox_path, take_snapshot, text};

const ALL: &str = "read,execute,write";
/// Of `alice` with `secret-password`.
const PACKED: &str = "YWxpY2U6c2VjcmV0LXBhc3N3b3Jk";
const LOGIN: &str = "Basic YWxpY2U6c2VjcmV0LXBhc3N3b3Jk";

/// A service whose accounts may name images of a registry on loopback, if a pattern allows it.
fn options(registry: &str) -> ServiceOptions {
    let mut options =
        ServiceOptions::default().with("images", "private_registries", &format!("[\"{registry}\"]"));
    options.own_images = true;
    options
}

fn allowing(registry: &SmallRegistry) -> ServiceOptions {
    options(&registry.host()).with("images", "allow", &format!("[\"{}/**\"]", registry.host()))
}

/// Runs a command that must succeed. Returns its output.
fn sandboxd(service: &Service, arguments: &[&str]) -> String {
    let output = service.program().unwrap().args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The error of a create.
async fn refused(client: &Client, image: &str, status: u16, code: &str) -> Value {
    client.post(SANDBOXES, &with(small(), "image", json!(image))).await.unwrap().error(status, code).unwrap()
}

async fn images(client: &Client) -> Vec<String> {
    let list = client.get("/v1/images").await.unwrap().is(200).unwrap();
    list["data"].as_array().unwrap().iter().map(|image| text(&image["name"])).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_allowed_without_a_restart_and_pulled_once() {
    let registry = SmallRegistry::start(None).await.unwrap();
    registry.push("acme/app:1", "first").unwrap();
    let service = Service::start(&options(&registry.host())).await.unwrap();
    let (acme, other) = (
        service.client_with_new_key("acme", ALL).await.unwrap(),
        service.client_with_new_key("other", ALL).await.unwrap(),
    );
    let image = registry.reference("acme/app:1");
    let error = refused(&acme, &image, 400, "INVALID_CONFIG").await;
    let message = text(&error["message"]);
    assert!(message.contains(&format!("sandboxd image allow {image}")), "{message}");
    assert!(message.contains("nearest image"), "{message}");
    assert_eq!(registry.count("GET"), 0, "nothing is requested for an image that is not allowed");

    let pattern = format!("{}/acme/*", registry.host());
    sandboxd(&service, &["image", "allow", &pattern, "--account", "acme"]);
    assert_eq!(sandboxd(&service, &["image", "allowed"]), format!("{pattern} for the account 'acme'\n"));
    let creates = (0..4).map(|_| {
        let (client, image) = (acme.clone(), image.clone());
        tokio::spawn(async move { create_from(&client, &image).await })
    });
    let creates: Vec<_> = creates.collect();
    for created in creates {
        assert_eq!(output(&acme, &created.await.unwrap(), "cat /mark").await, "first");
    }
    assert_eq!(registry.count("/blobs/"), 2, "the configuration and the layer, once");
    assert!(images(&acme).await.contains(&image));
    let mistyped = registry.reference("acme/appp:1");
    let error = refused(&acme, &mistyped, 400, "INVALID_CONFIG").await;
    assert_eq!(error["details"]["nearest"], image, "{error}");
    let error = refused(&other, &mistyped, 400, "INVALID_CONFIG").await;
    assert_ne!(error["details"]["nearest"], image, "what others have is not shown");

    // Another account may not use what is on the host.
    refused(&other, &image, 400, "INVALID_CONFIG").await;
    assert!(!images(&other).await.contains(&image));
    let named = other.get(&format!("/v1/images?name={image}")).await.unwrap().is(200).unwrap();
    assert_eq!(named["pagination"]["total"], 0);

    // A tag stays at its digest until the operator pulls it again.
    registry.push("acme/app:1", "second").unwrap();
    assert_eq!(output(&acme, &create_from(&acme, &image).await, "cat /mark").await, "first");
    sandboxd(&service, &["image", "pull", &image]);
    assert_eq!(output(&acme, &create_from(&acme, &image).await, "cat /mark").await, "second");

    sandboxd(&service, &["image", "disallow", &pattern, "--account", "acme"]);
    refused(&acme, &image, 400, "INVALID_CONFIG").await;
    assert_eq!(sandboxd(&service, &["image", "allowed"]), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_registry_gets_its_login_which_is_not_logged() {
    let registry = SmallRegistry::start(Some(LOGIN)).await.unwrap();
    registry.push("app:1", "private").unwrap();
    let image = registry.reference("app:1");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("docker.json");
    let auths = |host: &str| json!({ "auths": { host: { "auth": PACKED } } }).to_string();
    std::fs::write(&file, auths("registry.example.com")).unwrap();
    let options = allowing(&registry).with("images", "credentials", &format!("{file:?}")).with(
        "log",
        "level",
        "\"debug\"",
    );
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let denied = refused(&client, &image, 400, "INVALID_CONFIG").await;
    assert!(text(&denied["message"]).contains("denies access"), "{denied}");
    // Read for each pull.
    std::fs::write(&file, auths(&registry.host())).unwrap();
    assert_eq!(output(&client, &create_from(&client, &image).await, "cat /mark").await, "private");
    let log = service.log();
    assert!(!log.contains(PACKED) && !log.contains("secret-password"), "the login is in the log");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_digest_can_be_required() {
    let registry = SmallRegistry::start(None).await.unwrap();
    let digest = registry.push("app:1", "pinned").unwrap();
    let options = allowing(&registry).with("images", "require_digest", "true");
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let error = refused(&client, &registry.reference("app:1"), 400, "INVALID_CONFIG").await;
    let form = format!("{}@sha256:", registry.reference("app"));
    assert!(text(&error["message"]).contains(&form), "{error}");
    let pinned = registry.reference(&format!("app@{digest}"));
    assert_eq!(output(&client, &create_from(&client, &pinned).await, "cat /mark").await, "pinned");
    // Another digest is not there.
    let other = registry.reference(&format!("app@sha256:{}", "0".repeat(64)));
    refused(&client, &other, 400, "INVALID_CONFIG").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_image_is_refused_within_two_seconds_whatever_the_registry_does() {
    // Accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!("127.0.0.1:{}", silent.local_addr().unwrap().port());
    let service = Service::start(&options(&host).with("images", "allow_any", "true")).await.unwrap();
    let client = service.account().await.unwrap();
    let registry = SmallRegistry::start(None).await.unwrap();
    // One that hangs, and one that may not be contacted.
    for image in [format!("{host}/no-such:1"), registry.reference("no-such:1"), "NO-SUCH".to_owned()] {
        let begin = Instant::now();
        let error = refused(&client, &image, 400, "INVALID_CONFIG").await;
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(2), "{image}: {took:?}");
        assert!(text(&error["message"]).contains("nearest image"), "{error}");
    }
    assert_eq!(registry.count("GET"), 0, "its address is not public");
}

#[tokio::test(flavor = "multi_thread")]
async fn pulls_count_against_a_quota_of_the_account() {
    let registry = SmallRegistry::start(None).await.unwrap();
    registry.push("app:1", "much").unwrap();
    let options = allowing(&registry).with("images", "pull_bytes_per_day", "10000");
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let error = refused(&client, &registry.reference("app:1"), 429, "QUOTA_EXCEEDED").await;
    assert_eq!(error["details"]["key"], "images.pull_bytes_per_day");
    assert!(registry.count("/blobs/") <= 1, "the layer was not requested");
}

/// Three images, of which one fits into the limit.
#[tokio::test(flavor = "multi_thread")]
async fn images_that_nothing_uses_are_removed_at_the_limit() {
    let registry = SmallRegistry::start(None).await.unwrap();
    for name in ["a", "b", "c"] {
        registry.push(&format!("{name}:1"), &name.repeat(60 << 20)).unwrap();
    }
    let [a, b, c] = ["a:1", "b:1", "c:1"].map(|name| registry.reference(name));
    let options = allowing(&registry).with("images", "max_bytes", "100000000");
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let of_a = create_from(&client, &a).await;
    // The limit is exceeded by the image that was pulled last; both are in use.
    let of_b = create_from(&client, &b).await;
    let error = refused(&client, &c, 503, "RESOURCE_EXHAUSTED").await;
    assert_eq!(error["details"]["key"], "images.max_bytes");
    client.delete(&sandbox_path(&of_a)).await.unwrap().is(200).unwrap();
    let of_c = create_from(&client, &c).await;
    assert_eq!(images(&client).await, [b.clone(), c.clone()]);
    assert_eq!(output(&client, &of_b, "read -rn 1 first < /mark; echo $first").await, "b\n");
    // A snapshot needs the image, too.
    let snapshot = take_snapshot(&client, &of_b).await;
    client.delete(&sandbox_path(&of_b)).await.unwrap().is(200).unwrap();
    refused(&client, &a, 503, "RESOURCE_EXHAUSTED").await;
    create_from(&client, &snapshot).await;
    assert_eq!(images(&client).await, [b, c]);
    assert_eq!(output(&client, &of_c, "echo lives").await, "lives\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dockerfile_begins_with_an_image_that_the_account_may_name() {
    let registry = SmallRegistry::start(None).await.unwrap();
    let digest = registry.push("base:1", "base").unwrap();
    let service = Service::start(&options(&registry.host())).await.unwrap();
    let (acme, other) = (
        service.client_with_new_key("acme", ALL).await.unwrap(),
        service.client_with_new_key("other", ALL).await.unwrap(),
    );
    sandboxd(&service, &["image", "allow", &format!("{}/base", registry.host()), "--account", "acme"]);
    let body = |from: &str| {
        json!({
            "name": "derived", "dockerfile": format!("FROM {from}\nRUN cat /mark > /copy"),
            "resources": small()["resources"], "isolation": e2e::isolation(),
        })
    };
    for from in [registry.reference("base:1"), registry.reference(&format!("base@{digest}"))] {
        build(&acme, &body(&from)).await;
        let sandbox = create_from(&acme, "derived").await;
        assert_eq!(output(&acme, &sandbox, "cat /copy").await, "base");
    }
    let error = failure(&other, &body(&registry.reference("base:1"))).await;
    assert!(text(&error["message"]).contains("sandboxd image allow"), "{error}");
    let templates = other.get(TEMPLATES).await.unwrap().is(200).unwrap();
    assert_eq!(templates["data"][0]["state"], "failed");
}
