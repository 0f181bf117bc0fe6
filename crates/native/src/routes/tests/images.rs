//! The list of images: stored ones, and pulls in progress.

use std::path::Path;
use std::time::{Duration, Instant};

use api::{TemplateId, TemplateState};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use rules::{AddedPattern, AllowedVersions, ImagePattern, ImagePolicy, ImageReference};
use serde_json::{Value, json};
use service::error::{KnownImages, unfinished_template, unknown_image};
use service::image_access::AllowedImages;
use service::image_access::{ImageAccess, ImageSettings};

use super::fixture::{Answer, Fixture, HANGING, IMAGE, bearer, request};

const ALL: &str = "/v1/images";

fn names(answer: &Answer) -> Vec<&str> {
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    answer.json["data"].as_array().unwrap().iter().map(|image| image["name"].as_str().unwrap()).collect()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// A create that gets 503 because its image is being pulled.
async fn begin_to_fetch(fixture: &Fixture, image: &str) {
    let answer = fixture.post("/v1/sandboxes", json!({ "image": image })).await;
    assert_eq!(
        (answer.status, answer.detail("field")),
        (StatusCode::SERVICE_UNAVAILABLE, "image"),
        "{}",
        answer.text
    );
}

#[tokio::test]
async fn stored_images_and_pulls_are_listed() {
    let fixture = Fixture::new().await;
    let before = fixture.call("GET", ALL).await;
    assert_eq!(names(&before), [IMAGE]);
    let ready = &before.json["data"][0];
    assert_eq!(keys(ready), ["createdAt", "digest", "name", "sizeBytes", "status"]);
    assert_eq!(ready["status"], "ready");
    assert!(ready["digest"].as_str().unwrap().starts_with("sha256:"), "{ready}");

    begin_to_fetch(&fixture, HANGING).await;
    let now = fixture.call("GET", ALL).await;
    assert_eq!(names(&now), [HANGING, IMAGE]);
    let pulling = &now.json["data"][0];
    assert_eq!(
        *pulling,
        json!({ "name": HANGING, "status": "pulling", "progress": { "stage": "resolving", "doneBytes": 0, "totalBytes": 0 } })
    );
    assert_eq!(now.json["pagination"], json!({ "total": 2, "limit": 20, "offset": 0, "hasMore": false }));
    assert_eq!(names(&fixture.call("GET", "/v1/images?name=hanging%3A1").await), [HANGING]);
    assert!(names(&fixture.call("GET", "/v1/images?name=custom").await).is_empty());
    let page = fixture.call("GET", "/v1/images?limit=1&offset=1").await;
    assert_eq!(names(&page), [IMAGE]);
    assert_eq!(page.json["pagination"]["total"], 2);
}

/// As another process of the same host puts it there.
#[tokio::test]
async fn what_another_process_fetched_is_listed() {
    let fixture = Fixture::new().await;
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("usr")).unwrap();
    let beside = fixture.images_beside();
    let source = format!("rootfs:{}", root.path().display()).parse().unwrap();
    beside.import("beside:1", source, std::sync::Arc::new(|_| {})).await.unwrap();
    assert_eq!(names(&fixture.call("GET", "/v1/images?name=beside:1").await), ["beside:1"]);
    assert_eq!(names(&fixture.call("GET", ALL).await), ["beside:1", IMAGE]);
}

#[tokio::test]
async fn an_image_is_listed_for_accounts_that_name_it() {
    let fixture = Fixture::with_any_image().await;
    let theirs = fixture.hanging_reference("their/secret:1");
    begin_to_fetch(&fixture, &theirs).await;
    assert_eq!(names(&fixture.call("GET", ALL).await), [theirs.as_str(), IMAGE]);
    let of_other = async |path: &str| {
        let request = Request::builder().uri(path).header("authorization", bearer(2));
        fixture.ask(request.body(Body::empty()).unwrap()).await
    };
    assert_eq!(names(&of_other(ALL).await), [IMAGE]);
    let named = of_other(&format!("/v1/images?name={theirs}")).await;
    assert_eq!(names(&named), [theirs.as_str()]);
    assert_eq!(named.json["data"][0]["status"], "pulling");
}

#[tokio::test]
async fn a_create_cannot_name_a_registry_without_a_public_address() {
    let fixture = Fixture::with_any_image().await;
    let port = fixture.registry_port();
    // Only its address is listed.
    let names = [format!("localhost:{port}/app:1"), "169.254.169.254/latest/meta-data:1".to_owned()];
    for name in names {
        let answer = fixture.post("/v1/sandboxes", json!({ "image": name })).await;
        assert_eq!(
            (answer.status, answer.code()),
            (StatusCode::BAD_REQUEST, "INVALID_CONFIG"),
            "{}",
            answer.text
        );
        assert_eq!(answer.detail("field"), "image");
        assert!(answer.text.contains("images.private_registries"), "{}", answer.text);
        // The addresses of names are only in the log.
        assert!(!answer.text.contains("127.0.0.1"), "{}", answer.text);
    }
    assert_eq!(names_of_pulls(&fixture).await, [IMAGE]);
}

async fn names_of_pulls(fixture: &Fixture) -> Vec<String> {
    names(&fixture.call("GET", ALL).await).into_iter().map(str::to_owned).collect()
}

/// The settings of a service in a directory.
fn access(dir: &Path, policy: ImagePolicy) -> ImageAccess {
    ImageAccess::open(dir, ImageSettings { policy, ..ImageSettings::default() })
}

async fn create(fixture: &Fixture, image: &str) -> Answer {
    fixture.post("/v1/sandboxes", json!({ "image": image })).await
}

#[tokio::test]
async fn an_image_that_no_registry_confirms_is_refused_long_before_its_pull_ends() {
    let fixture =
        Fixture::with_any_image_changed(|service| service.pull_timeout = Duration::from_secs(60)).await;
    // Accepts the connection and never answers, and where nothing listens.
    for image in [fixture.hanging_reference("no-such:1"), "127.0.0.1:1/no-such:1".to_owned()] {
        let begun = Instant::now();
        let answer = create(&fixture, &image).await;
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        assert_eq!(
            (answer.status, answer.code()),
            (StatusCode::BAD_REQUEST, "INVALID_CONFIG"),
            "{}",
            answer.text
        );
        assert!(answer.message().contains("the nearest image"), "{}", answer.text);
        assert_eq!(answer.detail("field"), "image");
    }
}

/// Another attempt can succeed, so a repeat under the key must not get the first error.
#[tokio::test]
async fn an_image_that_is_not_confirmed_in_time_is_not_refused_for_ever() {
    let fixture =
        Fixture::with_any_image_changed(|service| service.pull_timeout = Duration::from_secs(60)).await;
    let image = fixture.hanging_reference("slow:1");
    for _ in 0..2 {
        let request = request("POST", "/v1/sandboxes").header("content-type", "application/json");
        let request = request.header("idempotency-key", "one");
        let answer = fixture.ask(request.body(json!({ "image": image }).to_string().into()).unwrap()).await;
        assert_eq!(answer.code(), "INVALID_CONFIG", "{}", answer.text);
        assert!(!answer.headers.contains_key("idempotency-replayed"), "{}", answer.text);
    }
}

#[tokio::test]
async fn an_image_is_allowed_while_the_service_runs() {
    let dir = tempfile::tempdir().unwrap();
    let fixture =
        Fixture::changed(|service| service.image_access = access(dir.path(), ImagePolicy::default())).await;
    let image = fixture.hanging_reference("app:1");
    let refused = create(&fixture, &image).await;
    assert_eq!((refused.status, refused.code()), (StatusCode::BAD_REQUEST, "INVALID_CONFIG"));
    assert!(refused.message().contains(&format!("sandboxd image allow {image}")), "{}", refused.text);
    let allowed = AllowedImages::in_dir(dir.path());
    let added = |account: &str| AddedPattern {
        pattern: ImagePattern::parse(&image).unwrap(),
        account: Some(account.to_owned()),
    };
    // For another account.
    allowed.allow(added("two")).unwrap();
    assert_eq!(create(&fixture, &image).await.code(), "INVALID_CONFIG");
    allowed.allow(added("one")).unwrap();
    begin_to_fetch(&fixture, &image).await;
    allowed.disallow(&added("one")).unwrap();
    assert_eq!(create(&fixture, &image).await.code(), "INVALID_CONFIG");
}

#[tokio::test]
async fn a_tag_is_refused_with_the_form_of_a_digest_if_that_is_required() {
    let dir = tempfile::tempdir().unwrap();
    let policy = ImagePolicy {
        allow: vec![ImagePattern::parse("**").unwrap()],
        versions: AllowedVersions::Digests,
        ..ImagePolicy::default()
    };
    let fixture = Fixture::changed(|service| service.image_access = access(dir.path(), policy)).await;
    let refused = create(&fixture, "python:3.12").await;
    assert_eq!((refused.status, refused.code()), (StatusCode::BAD_REQUEST, "INVALID_CONFIG"));
    assert!(refused.message().contains("docker.io/library/python@sha256:"), "{}", refused.text);
    // Images of the catalogue have no digest in their names.
    assert_eq!(create(&fixture, IMAGE).await.status, StatusCode::CREATED);
    let digest = format!("app@sha256:{}", "a".repeat(64));
    begin_to_fetch(&fixture, &fixture.hanging_reference(&digest)).await;
}

#[test]
fn templates_are_suggested_too() {
    let known = KnownImages { images: vec!["ubuntu:24.04".to_owned()], templates: vec!["my-web".to_owned()] };
    let error = unknown_image("my-wbe", None, &known);
    assert_eq!(
        (error.details["nearest"].as_str(), error.details["nearestTemplate"].as_str()),
        (Some("ubuntu:24.04"), Some("my-web"))
    );
    assert!(error.message.contains("the nearest template is 'my-web'"), "{}", error.message);
}

#[test]
fn an_image_without_its_tag_is_suggested_before_other_short_names() {
    let images = ["code-interpreter", "custom", "node:22", "python:3.12", "python:3.13", "ubuntu:24.04"];
    let known =
        KnownImages { images: images.iter().map(|&name| name.to_owned()).collect(), templates: Vec::new() };
    for (name, nearest) in [
        ("ubuntu", "ubuntu:24.04"),
        ("ubnutu", "ubuntu:24.04"),
        ("ubuntu:22.04", "ubuntu:24.04"),
        ("python:3.13-slim", "python:3.13"),
        ("python", "python:3.12"),
        ("node:latest", "node:22"),
        ("costum", "custom"),
        ("codeinterpreter", "code-interpreter"),
    ] {
        assert_eq!(unknown_image(name, None, &known).details["nearest"], nearest, "{name}");
    }
}

#[test]
fn an_image_of_the_same_repository_comes_before_the_command_that_allows_another_tag() {
    let images = ["node:22", "python:3.12", "python:2.7", "ubuntu:24.04"].map(str::to_owned).to_vec();
    let known = KnownImages { images, templates: Vec::new() };
    let unknown = |name: &str| unknown_image(name, ImageReference::parse(name).as_ref(), &known);
    for name in ["python:3.12-slim", "docker.io/library/python:3.12-slim"] {
        let error = unknown(name);
        assert_eq!(error.details["nearest"], "python:3.12");
        let expected = format!(
            "image is '{name}'; the nearest image is 'python:3.12', of the same repository: use that;"
        );
        assert!(error.message.starts_with(&expected), "{}", error.message);
        assert!(error.message.contains("if its registry can be reached, with: sandboxd image allow"));
    }
    assert!(!unknown("ghcr.io/acme/python:3").message.contains("same repository"));
}

#[test]
fn a_template_without_a_finished_build_is_told_from_an_unknown_image() {
    let id: TemplateId = "tpl_abcdefgh".parse().unwrap();
    let failed = unfinished_template("app", &id, TemplateState::Failed);
    assert!(failed.message.contains("'app', a template without a finished build: its newest build failed"));
    assert_eq!(
        (&failed.details["field"], &failed.details["templateId"]),
        (&json!("image"), &json!("tpl_abcdefgh"))
    );
    assert!(unfinished_template("app", &id, TemplateState::Building).message.contains("still being built"));
}

#[test]
fn names_that_are_not_similar_are_not_suggested() {
    let images = ["node:22", "python:3.12", "ubuntu:24.04", "custom"].map(str::to_owned).to_vec();
    let known = KnownImages { images, templates: vec!["bad".to_owned(), "web-server".to_owned()] };
    for name in ["alpine:3.20", "mid", "registry.example/acme/app:1"] {
        let error = unknown_image(name, None, &known);
        assert!(error.message.contains("no image has a similar name"), "{}", error.message);
        assert!(!error.message.contains("template"), "{}", error.message);
        assert!(!error.details.contains_key("nearestTemplate"), "{name}");
    }
    for (name, part) in [
        ("python-slim:3", "the nearest image is 'python:3.12'"),
        ("docker.io/library/node", "the nearest image is 'node:22'"),
        ("web", "the nearest template is 'web-server'"),
    ] {
        let error = unknown_image(name, None, &known);
        assert!(error.message.contains(part), "{name}: {}", error.message);
    }
}

#[test]
fn names_of_registries_keep_their_ports_in_suggestions() {
    let images = vec!["localhost:5000/app".to_owned(), "localhost:5000/web:2".to_owned()];
    let known = KnownImages { images, templates: Vec::new() };
    assert_eq!(unknown_image("localhost:5000/wbe", None, &known).details["nearest"], "localhost:5000/web:2");
}

#[tokio::test]
async fn parameters_are_read_strictly() {
    let fixture = Fixture::new().await;
    for query in ["limit=0", "limit=x", "offset=-1", "name=a&name=b", "name=%ff"] {
        let answer = fixture.call("GET", &format!("{ALL}?{query}")).await;
        assert_eq!((answer.status, answer.code()), (StatusCode::BAD_REQUEST, "INVALID_REQUEST"), "{query}");
    }
    assert_eq!(names(&fixture.call("GET", "/v1/images?unknown=1").await), [IMAGE]);
}
