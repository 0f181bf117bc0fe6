//! Tests of builds, of the names of templates, and of what their sandboxes begin with.

use std::time::Instant;

use axum::body::Body;
use http_body_util::BodyExt;
use listen::Application;
use native::testing::key;
use serde_json::{Value, json};

use super::*;

/// Longer than everything that a test waits for, also on a busy machine.
const LONG: Duration = Duration::from_secs(60);
/// The form of the id of a build that does not exist.
const NO_BUILD: &str = "12345678-1234-1234-1234-123456789012";

/// The ids of a template and of one of its builds.
#[derive(Clone)]
struct Build {
    template: String,
    id: String,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value}")).to_owned()
}

fn run(command: &str) -> Value {
    json!({ "type": "RUN", "args": [command] })
}

/// Asks for a build of a name.
async fn request(fixture: &Fixture, name: &str) -> Build {
    let got = fixture.ask("POST /v3/templates", json!({ "name": name })).await;
    assert_eq!(got.status, 202, "{}", got.body);
    Build { template: text(&got.body["templateID"]), id: text(&got.body["buildID"]) }
}

/// Starts a build that was asked for.
async fn start(fixture: &Fixture, build: &Build, base: Value, steps: &[Value]) -> Got {
    let mut body = base;
    body["steps"] = json!(steps);
    fixture.ask(&format!("POST /v2/templates/{}/builds/{}", build.template, build.id), body).await
}

fn image() -> Value {
    json!({ "fromImage": "ubuntu:24.04" })
}

async fn status(fixture: &Fixture, build: &Build) -> Got {
    let call = format!("GET /templates/{}/builds/{}/status", build.template, build.id);
    fixture.ask(&call, Value::Null).await
}

/// Waits for the end of a build.
async fn ended(fixture: &Fixture, build: &Build) -> Value {
    let begin = Instant::now();
    loop {
        let got = status(fixture, build).await;
        if got.status != 200 || got.body["status"] != "building" {
            return got.body;
        }
        assert!(begin.elapsed() < LONG, "{}", got.body);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A build that must succeed.
async fn ready(fixture: &Fixture, name: &str, base: Value, steps: &[Value]) -> Build {
    let build = request(fixture, name).await;
    let started = start(fixture, &build, base, steps).await;
    assert_eq!(started.status, 202, "{}", started.body);
    let shown = ended(fixture, &build).await;
    assert_eq!(shown["status"], "ready", "{shown}");
    build
}

/// Creates a sandbox. Returns its id and its access token, or the error.
async fn create(fixture: &Fixture, template: &str) -> Result<(String, String), String> {
    let got = fixture.ask("POST /v2/sandboxes", json!({ "templateID": template })).await;
    match got.status {
        201 => Ok((text(&got.body["sandboxID"]), text(&got.body["envdAccessToken"]))),
        status => Err(format!("{status} {}", text(&got.body["message"]))),
    }
}

async fn envd(fixture: &Fixture, (id, token): &(String, String), request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let host = format!("49983-{id}.sandboxes.localhost");
    parts.headers.insert("host", host.parse().unwrap());
    parts.headers.insert("x-access-token", token.parse().unwrap());
    fixture.relay.answer(Request::from_parts(parts, body)).await
}

/// The content of the file that the steps of a template have written.
async fn file(fixture: &Fixture, template: &str) -> Result<String, String> {
    let sandbox = create(fixture, template).await?;
    let request = Request::builder().uri("/files?path=%2Fhome%2Fuser%2Ffile").body(Body::empty()).unwrap();
    let content = envd(fixture, &sandbox, request).await.into_body().collect().await.unwrap().to_bytes();
    Ok(String::from_utf8_lossy(&content).into_owned())
}

#[tokio::test]
async fn a_template_is_named_by_its_tags_and_builds() {
    let fixture = Fixture::new().await;
    let first = ready(&fixture, "web", image(), &[run("echo one > file")]).await;
    let second = ready(&fixture, "web:dev", image(), &[run("echo two > file")]).await;
    for (name, content) in [
        ("web", "one\n"),
        ("web:default", "one\n"),
        ("web:dev", "two\n"),
        ("web:Dev", "two\n"),
        (format!("web:{}", first.id).as_str(), "one\n"),
        (format!("web:{}", second.id).as_str(), "two\n"),
        (second.template.as_str(), "two\n"),
        (format!("{}:default", second.template).as_str(), "one\n"),
    ] {
        assert_eq!(file(&fixture, name).await, Ok(content.to_owned()), "{name}");
    }
    for (template, tag) in [("web", "v2"), ("web", NO_BUILD), (first.template.as_str(), "v2"), ("base", "v2")]
    {
        let refused = create(&fixture, &format!("{template}:{tag}")).await.unwrap_err();
        assert_eq!(refused, format!("404 tag '{tag}' does not exist for template '{template}'"));
    }
    // Templates of the account hide no images.
    ready(&fixture, "ubuntu", image(), &[run("true")]).await;
    create(&fixture, "ubuntu:24.04").await.unwrap();
    let alias = async |name: &str| {
        let got = fixture.ask(&format!("GET /templates/aliases/{name}"), Value::Null).await;
        (got.status, got.body["templateID"].clone())
    };
    for (name, id) in [("web", &first.template), ("web:dev", &second.template), ("base", &"base".to_owned())]
    {
        assert_eq!(alias(name).await, (200, json!(id)), "{name}");
    }
    assert_eq!((alias("web:v2").await.0, alias("nothing").await.0), (404, 404));
    // Any id of the template names it.
    let named = Build { template: second.template.clone(), id: first.id.clone() };
    assert_eq!(status(&fixture, &named).await.body["status"], "ready");
    let unknown = Build { id: NO_BUILD.to_owned(), ..first.clone() };
    assert_eq!(status(&fixture, &unknown).await.status, 404);
}

#[tokio::test]
async fn tags_are_assigned_and_removed() {
    let fixture = Fixture::new().await;
    let first = ready(&fixture, "web", image(), &[run("echo one > file")]).await;
    let second = ready(&fixture, "web", image(), &[run("echo two > file")]).await;
    let tags = async || {
        let got = fixture.ask("GET /templates/web/tags", Value::Null).await;
        let mut tags: Vec<(String, String)> =
            got.body.as_array().unwrap().iter().map(|it| (text(&it["tag"]), text(&it["buildID"]))).collect();
        tags.sort();
        tags
    };
    let both = |tag: &str, build: &Build| (tag.to_owned(), build.id.clone());
    assert_eq!(tags().await, [both("default", &second)]);
    let assign = json!({ "target": format!("web:{}", first.id), "tags": ["default", "Stable"] });
    let assigned = fixture.ask("POST /templates/tags", assign).await;
    assert_eq!((assigned.status, &assigned.body["buildID"]), (201, &json!(first.id)));
    assert_eq!(tags().await, [both("default", &first), both("stable", &first)]);
    assert_eq!(file(&fixture, "web").await, Ok("one\n".to_owned()));
    for (call, body, status) in [
        ("DELETE /templates/tags", json!({ "name": "web", "tags": ["stable"] }), 204),
        ("DELETE /templates/tags", json!({ "name": "web", "tags": ["default"] }), 400),
        ("POST /templates/tags", json!({ "target": "web:v2", "tags": ["x"] }), 404),
        ("POST /templates/tags", json!({ "target": "web", "tags": [NO_BUILD] }), 400),
        ("POST /v3/templates", json!({ "name": format!("web:{NO_BUILD}") }), 400),
    ] {
        assert_eq!(fixture.ask(call, body.clone()).await.status, status, "{call} {body}");
    }
    assert_eq!(tags().await, [both("default", &first)]);
}

async fn log(fixture: &Fixture, build: &Build, query: &str) -> Got {
    let call = format!("GET /templates/{}/builds/{}/logs?{query}", build.template, build.id);
    fixture.ask(&call, Value::Null).await
}

#[tokio::test]
async fn the_log_of_a_build_has_the_entries_of_its_status_in_pages() {
    let fixture = Fixture::new().await;
    let waiting = request(&fixture, "later").await;
    let none = log(&fixture, &waiting, "").await;
    assert_eq!((none.status, &none.body), (200, &json!({ "logs": [] })));
    let build = ready(&fixture, "web", image(), &[run("echo one"), run("echo two")]).await;
    let entries = status(&fixture, &build).await.body["logEntries"].clone();
    assert_eq!(log(&fixture, &build, "").await.body["logs"], entries);
    let entries = entries.as_array().unwrap();
    let last = log(&fixture, &build, "direction=backward&limit=1").await;
    assert_eq!(last.body["logs"], json!([entries.last().unwrap()]));
    assert_eq!(log(&fixture, &build, "limit=1").await.body["logs"], json!([entries[0]]));
    assert_eq!(log(&fixture, &build, "level=loud").await.status, 400);
    let unknown = Build { id: NO_BUILD.to_owned(), ..build };
    assert_eq!(log(&fixture, &unknown, "").await.status, 404);
}

/// Who reads the log of a build in the background may leave.
#[tokio::test]
async fn only_polls_of_the_status_say_that_a_client_waits() {
    let fixture = Fixture::new().await;
    let build = request(&fixture, "web").await;
    assert_eq!(start(&fixture, &build, image(), &[run("echo begun; sleep 1000")]).await.status, 202);
    let begin = Instant::now();
    loop {
        let got = log(&fixture, &build, "").await;
        if got.body["logs"].as_array().unwrap().iter().any(|entry| entry["message"] == "begun") {
            break;
        }
        assert!(begin.elapsed() < LONG, "{}", got.body);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let pass = async || {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(40)).await;
        tokio::time::resume();
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    for _ in 0..10 {
        assert_eq!(log(&fixture, &build, "").await.status, 200);
    }
    pass().await;
    for _ in 0..10 {
        assert_eq!(status(&fixture, &build).await.body["status"], "building");
    }
    pass().await;
    let cancelled = ended(&fixture, &build).await;
    assert!(text(&cancelled["reason"]["message"]).contains("no longer waits"), "{cancelled}");
}

#[tokio::test]
async fn builds_of_a_name_and_tag_replace_each_other() {
    let fixture = Fixture::new().await;
    let steps = [run("sleep 1000")];
    let [first, same, tagged, other] = [
        request(&fixture, "web").await,
        request(&fixture, "web:default").await,
        request(&fixture, "web:dev").await,
        request(&fixture, "web").await,
    ];
    assert_eq!(start(&fixture, &first, image(), &steps).await.status, 202);
    let refused = start(&fixture, &same, image(), &steps).await;
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert!(text(&refused.body["message"]).contains(&first.id), "{}", refused.body);
    assert_eq!(status(&fixture, &same).await.status, 404, "it is over");
    assert_eq!(start(&fixture, &tagged, image(), &steps).await.status, 202, "another tag");
    assert_eq!(start(&fixture, &other, image(), &[run("true")]).await.status, 202, "other steps");
    let replaced = ended(&fixture, &first).await;
    assert!(text(&replaced["reason"]["message"]).contains("newer"), "{replaced}");
    assert_eq!(status(&fixture, &tagged).await.body["status"], "building");
    // The name stands for a template before one of its builds is ready.
    assert_eq!(fixture.ask("GET /templates/aliases/web", Value::Null).await.status, 200);
    let refused = create(&fixture, "web").await.unwrap_err();
    assert_eq!(refused, "404 tag 'default' does not exist for template 'web'");
    // A build of another template cannot be started by its id.
    let wrong = Build { id: other.id, ..request(&fixture, "web").await };
    assert_eq!(start(&fixture, &wrong, image(), &steps).await.status, 404);
}

#[tokio::test]
async fn templates_are_listed_changed_and_deleted() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.ask("GET /templates", Value::Null).await.body, json!([]));
    let first = ready(&fixture, "web", image(), &[run("true")]).await;
    let second = ready(&fixture, "web", image(), &[run("echo two > file")]).await;
    ready(&fixture, "other", image(), &[run("true")]).await;
    let listed = fixture.ask("GET /templates?teamID=x", Value::Null).await;
    let shown = &listed.body[0];
    assert_eq!((listed.status, listed.body.as_array().unwrap().len()), (200, 2));
    assert_eq!((&shown["templateID"], &shown["buildID"]), (&json!(second.template), &json!(second.id)));
    assert_eq!((&shown["buildCount"], &shown["buildStatus"]), (&json!(2), &json!("ready")));
    let newest = fixture.ask("GET /v2/templates?limit=1", Value::Null).await;
    assert_eq!(newest.body[0]["names"], json!(["other"]));
    let next = newest.headers["x-next-token"].to_str().unwrap().to_owned();
    let last = fixture.ask(&format!("GET /v2/templates?limit=1&nextToken={next}"), Value::Null).await;
    assert_eq!((&last.body[0]["names"], last.headers.contains_key("x-next-token")), (&json!(["web"]), false));
    for name in ["web", first.template.as_str(), second.template.as_str()] {
        let got = fixture.ask(&format!("GET /templates/{name}"), Value::Null).await;
        let builds: Vec<&Value> =
            got.body["builds"].as_array().unwrap().iter().map(|it| &it["buildID"]).collect();
        assert_eq!(builds, [&json!(second.id), &json!(first.id)], "{name}");
    }
    for (call, body, status) in [
        ("PATCH /v2/templates/web", json!({ "public": false }), 200),
        ("PATCH /v2/templates/web", json!({}), 200),
        ("PATCH /v2/templates/web", json!({ "public": true }), 400),
        ("PATCH /v2/templates/nothing", json!({ "public": false }), 404),
        ("PATCH /templates/web", json!({ "public": false }), 200),
        ("GET /templates/nothing", Value::Null, 404),
    ] {
        let got = fixture.ask(call, body).await;
        assert_eq!(got.status, status, "{call} {}", got.body);
        if call.starts_with("PATCH /v2") && status == 200 {
            assert_eq!(got.body, json!({ "names": ["web"] }));
        }
    }
    // All versions of it.
    let delete = format!("DELETE /templates/{}", first.template);
    assert_eq!(fixture.ask(&delete, Value::Null).await.status, 204);
    assert_eq!(fixture.ask(&delete, Value::Null).await.status, 404);
    assert_eq!(fixture.ask("GET /templates", Value::Null).await.body.as_array().unwrap().len(), 1);
    let theirs = fixture.send("localhost", "GET /templates", key(2).as_str(), "").await;
    assert_eq!(theirs.body, json!([]));
}

/// Starts a process that runs for a while. Returns its user and its directory.
async fn started(
    fixture: &Fixture,
    sandbox: &(String, String),
    headers: &[(&str, &str)],
) -> (String, String) {
    let json = json!({ "process": { "cmd": "/bin/bash", "args": ["-c", "sleep 1000"] }, "stdin": false });
    let json = json.to_string();
    let envelope = [&[0][..], &u32::try_from(json.len()).unwrap().to_be_bytes(), json.as_bytes()].concat();
    let request = Request::builder().method("POST").uri("/process.Process/Start");
    let request = request.header("content-type", "application/connect+json");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let id = SandboxId::from_host_name(&sandbox.0).unwrap();
    let running = async || fixture.harness.service.engine.sandbox("one", &id).processes().await.unwrap();
    let before: Vec<_> = running().await.into_iter().map(|process| process.execution).collect();
    let response = envd(fixture, sandbox, request.body(Body::from(envelope)).unwrap()).await;
    assert_eq!(response.status(), 200);
    let new = running().await.into_iter().find(|process| !before.contains(&process.execution)).unwrap();
    (new.user, new.cwd.unwrap_or_default())
}

#[tokio::test]
async fn commands_have_the_last_user_and_directory_of_their_template() {
    let fixture = Fixture::new().await;
    let change = json!({ "type": "USER", "args": ["root"] });
    ready(&fixture, "admin", image(), &[change, run("true")]).await;
    let admin = create(&fixture, "admin").await.unwrap();
    let pair = |user: &str, directory: &str| (user.to_owned(), directory.to_owned());
    let home = "/home/user"; // tidy: allow(machine-path): the home directory inside of sandboxes
    assert_eq!(started(&fixture, &admin, &[]).await, pair("root", home));
    let as_user = [("authorization", "Basic dXNlcjo=")];
    assert_eq!(started(&fixture, &admin, &as_user).await, pair("user", home));
    // Without a template, the directory is the home.
    let plain = create(&fixture, "ubuntu:24.04").await.unwrap();
    assert_eq!(started(&fixture, &plain, &[]).await, pair("user", ""));
    // A snapshot of the sandbox, and a template above its template, have them too.
    let take = format!("POST /sandboxes/{}/snapshots", admin.0);
    let taken = fixture.ask(&take, json!({ "memory": false })).await;
    let again = create(&fixture, &text(&taken.body["snapshotID"])).await.unwrap();
    assert_eq!(started(&fixture, &again, &[]).await, pair("root", home));
    ready(&fixture, "above", json!({ "fromTemplate": "admin" }), &[run("true")]).await;
    let above = create(&fixture, "above").await.unwrap();
    assert_eq!(started(&fixture, &above, &[]).await, pair("root", home));
}

#[tokio::test]
async fn a_link_to_upload_names_the_host_that_the_client_uses() {
    let fixture = Fixture::new().await;
    let build = request(&fixture, "built").await;
    let path = format!("/templates/{}/files/aaaaaaaa", build.template);
    for (uri, host, expected) in [
        // HTTP/2 has the host in the target, and no header.
        (format!("https://127.0.0.1:9443{path}"), None, "https://127.0.0.1:9443/"),
        (format!("https://[::1]:9443{path}"), None, "https://[::1]:9443/"),
        (path.clone(), Some("127.0.0.1:9443"), "https://127.0.0.1:9443/"),
        (path.clone(), None, "https://api.sandboxes.localhost:8443/"),
    ] {
        let request = Request::builder().uri(uri.as_str()).header("x-api-key", key(1).e2b_text());
        let request = host.into_iter().fold(request, |request, host| request.header("host", host));
        let response = fixture.relay.answer(request.body(Body::empty()).unwrap()).await;
        let content = response.into_body().collect().await.unwrap().to_bytes();
        let url = text(&serde_json::from_slice::<Value>(&content).unwrap()["url"]);
        assert!(url.starts_with(&format!("{expected}templates/{}/", build.template)), "{uri}: {url}");
    }
}
