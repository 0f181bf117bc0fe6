//! The reference page and the start page of a running service.

use std::path::Path;
use std::process::Command;

use e2e::service::Client;
use hyper::Method;
use serde_json::{Value, json};

use crate::skip::skipped;
use crate::{service, stop, text, workspace};

/// The page at /docs needs no key, loads nothing from other hosts, and shows all endpoints and schemas of the OpenAPI document.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_the_whole_api_and_loads_nothing_external() {
    let service = service().await;
    let anybody = service.anonymous().unwrap();
    let page = check_page(&anybody, "/docs").await;
    assert_eq!(anybody.get("/docs/").await.unwrap().text(), page);

    let client = service.account().await.unwrap();
    let openapi = anybody.get("/docs/openapi.json").await.unwrap();
    assert_eq!(openapi.text(), client.get("/v1/openapi.json").await.unwrap().text());
    assert_eq!(anybody.get("/v1/openapi.json").await.unwrap().status, 401);
    let dir = tempfile::tempdir().unwrap();
    for name in ["try.js", "docs.js", "openapi.json"] {
        let content = anybody.get(&format!("/docs/{name}")).await.unwrap().text();
        // The key of a trial is in memory only.
        for storage in ["localStorage", "sessionStorage", "indexedDB", "document.cookie", "caches"] {
            assert!(!name.ends_with(".js") || !content.contains(storage), "{name} uses {storage}");
        }
        std::fs::write(dir.path().join(name), content).unwrap();
    }
    stop(&service).await;

    let interface = openapi.json().unwrap();
    match render(dir.path()) {
        Some(rendered) => {
            assert_complete(&rendered, &interface);
            assert_order_and_trials(&rendered);
        }
        None => skipped("the_page_shows_the_whole_api_and_loads_nothing_external", "node is not installed"),
    }
}

/// A browser at the address of the service gets a page whose links work; it has no secret and no inline script.
#[tokio::test(flavor = "multi_thread")]
async fn the_start_page_leads_on() {
    let service = service().await;
    let anybody = service.anonymous().unwrap();
    let page = check_page(&anybody, "/docs/start").await;
    let browser =
        anybody.call(Method::GET, "/").header("accept", "text/html,*/*;q=0.8").send().await.unwrap();
    assert_eq!((browser.status, browser.text()), (200, page.clone()));
    assert!(page.contains(&format!("version {}", env!("CARGO_PKG_VERSION"))), "{page}");
    let key = service.account().await.unwrap().key().to_owned();
    let data = service.layout.data.canonicalize().unwrap();
    for secret in [key.as_str(), data.to_str().unwrap(), "<script>"] {
        assert!(!page.contains(secret), "{page}");
    }
    assert_eq!(anybody.get("/").await.unwrap().status, 401);
    stop(&service).await;
}

/// The text of a page, whose policy is strict and whose links and parts are on this service and exist.
async fn check_page(anybody: &Client, path: &str) -> String {
    let page = anybody.get(path).await.unwrap();
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!(page.header("content-security-policy"), Some(POLICY));
    let html = page.text();
    for attribute in ["src=\"", "href=\""] {
        for target in html.split(attribute).skip(1).filter_map(|rest| rest.split('"').next()) {
            if target.starts_with('/') {
                assert_eq!(anybody.get(target).await.unwrap().status, 200, "{target}");
            } else {
                assert!(target.starts_with('#') || target == "data:,", "{target} is on another host");
            }
        }
    }
    assert!(!html.contains("<style") && !html.contains(" style=") && !html.contains(" on"), "{html}");
    html
}

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page as its scripts render it; `None` if node is not installed.
fn render(dir: &Path) -> Option<Value> {
    let output =
        Command::new("node").arg(workspace().join("e2e/tests/support/page.js")).arg(dir).output().ok()?;
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// The page begins with keys and sandboxes, and its forms send what was typed, with the key in memory.
fn assert_order_and_trials(rendered: &Value) {
    let headings: Vec<&str> =
        rendered["headings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let at = |name: &str| headings.iter().position(|heading| *heading == name).unwrap();
    assert!(at("Authentication") < at("Sandboxes") && at("Sandboxes") < at("Files"), "{headings:?}");
    assert!(at("Files") < at("Service") && at("Service") < at("Schemas"), "{headings:?}");

    let trial = &rendered["trial"];
    let shown = trial["shown"]["status"].as_str().unwrap();
    assert!(shown.starts_with("201 ") && shown.ends_with(" · req_1"), "{shown}");
    let output = "{\n  \"id\": \"sb_x\",\n  \"state\": \"running\"\n}";
    assert_eq!(trial["shown"]["output"], output);
    assert_eq!(trial["missing"], "Not sent, or without a response: id is required");
    assert_eq!((&trial["keyAfterwards"], &trial["attach"]), (&json!(""), &json!(false)));
    let tried = trial["tried"].as_array().unwrap();
    let urls: Vec<&str> = tried.iter().filter_map(|one| one["url"].as_str()).collect();
    let execute = "/v1/sandboxes/sb_x/execute?lineEnds=true";
    let create = "/v1/sandboxes";
    assert_eq!(urls, [create, create, "/v1/sandboxes/a%2Fb%3Fc", execute, create]);
    let keys: Vec<&Value> = tried.iter().map(|one| &one["headers"]["Authorization"]).collect();
    let key = json!("Bearer sbk_secret");
    assert_eq!(keys, [&Value::Null, &key, &key, &key, &Value::Null]);
    assert!(tried.iter().all(|one| one["credentials"] == "omit"), "{tried:?}");
    let body: Value = serde_json::from_str(tried[0]["body"].as_str().unwrap()).unwrap();
    assert_eq!((&tried[0]["method"], body["image"].is_string()), (&json!("POST"), true));
    assert_eq!(tried[2]["body"], Value::Null);
    assert_eq!(tried[3]["headers"]["Accept"], "text/event-stream");
    assert_eq!(rendered["found"], json!({ "hidden": false, "filter": "", "scrolled": 1 }));
}

fn assert_complete(rendered: &Value, interface: &Value) {
    let list = |name: &str| -> Vec<&str> {
        rendered[name].as_array().unwrap().iter().filter_map(Value::as_str).collect()
    };
    let shown = rendered["text"].as_str().unwrap();
    assert_eq!((list("fetched"), rendered["status"].as_str()), (vec!["/docs/openapi.json"], Some("")));
    let paths = interface["paths"].as_object().unwrap();
    let schemas = interface["components"]["schemas"].as_object().unwrap();
    assert!(paths.len() >= 6 && schemas.len() >= 10, "{} paths, {} schemas", paths.len(), schemas.len());
    for name in paths.keys().chain(schemas.keys()) {
        assert!(shown.contains(name.as_str()), "{name} is not on the page");
    }
    let operations: usize =
        paths.values().map(|item| item.as_object().unwrap().keys().filter(|key| is_verb(key)).count()).sum();
    let ids = list("ids");
    assert_eq!(ids.iter().filter(|id| id.starts_with("op-") && !id.ends_with("-name")).count(), operations);
    for link in list("links") {
        let target = link.strip_prefix('#').unwrap_or_else(|| panic!("{link} is not a link within the page"));
        assert!(ids.contains(&target), "{link} has no target");
    }
    let attributes = list("attributes");
    assert!(!attributes.iter().any(|name| *name == "style" || name.starts_with("on")), "{attributes:?}");
    assert_eq!(rendered["visible"], 0, "the filter hides nothing");
    assert!(!shown.contains("undefined") && !shown.contains("[object"), "{shown}");
}

fn is_verb(key: &str) -> bool {
    ["get", "post", "put", "patch", "delete"].contains(&key)
}
