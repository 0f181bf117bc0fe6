//! `/mcp`: keys, scopes, origins, sessions and their bounds, and hostile messages.

use std::cell::Cell;

use ::mcp::BODY_MAX;
use allocation_counter::measure;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use futures_util::FutureExt as _;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::fixture::{Fixture, bearer};
use crate::testing::SCOPED;

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

/// A client of one key, with or without a session.
struct McpClient<'a> {
    fixture: &'a Fixture,
    key: u8,
    session: Option<String>,
    /// Concurrent requests of a session have different ids.
    next_id: Cell<u64>,
}

/// A response, whose messages are in JSON or in server-sent events.
#[derive(Debug)]
struct Reply {
    status: StatusCode,
    session: Option<String>,
    text: String,
}

impl Reply {
    /// The last message.
    fn message(&self) -> Value {
        let data = self.text.lines().rev().find_map(|line| line.strip_prefix("data: {"));
        let json = data.map_or_else(|| self.text.clone(), |rest| format!("{{{rest}"));
        serde_json::from_str(&json).unwrap_or_else(|_| panic!("no message: {self:?}"))
    }
}

impl<'a> McpClient<'a> {
    fn new(fixture: &'a Fixture, key: u8) -> Self {
        Self { fixture, key, session: None, next_id: Cell::new(2) }
    }

    /// With a session.
    async fn initialized(fixture: &'a Fixture, key: u8) -> Self {
        let mut client = Self::new(fixture, key);
        let reply = client.initialize().await;
        assert_eq!(reply.status, StatusCode::OK, "{reply:?}");
        assert_eq!(reply.message()["result"]["protocolVersion"], LEGACY, "{reply:?}");
        client.session = reply.session;
        assert!(client.session.is_some());
        let told = client.post(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        assert_eq!(told.status, StatusCode::ACCEPTED);
        client
    }

    async fn initialize(&self) -> Reply {
        let info = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info});
        self.post(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})).await
    }

    fn request(&self, method: &str) -> axum::http::request::Builder {
        let mut request = Request::builder()
            .method(method)
            .uri("/mcp")
            .header("host", "localhost")
            .header("authorization", bearer(self.key))
            .header("accept", "application/json, text/event-stream");
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session).header("mcp-protocol-version", LEGACY);
        }
        request
    }

    async fn post(&self, message: Value) -> Reply {
        let request = self.request("POST").header("content-type", "application/json");
        self.send(request.body(Body::from(message.to_string())).unwrap()).await
    }

    async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.fixture.send(request).await;
        let session = response.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Reply { status, session, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        self.post(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
            .await
            .message()
    }

    async fn end(&self) -> Reply {
        self.send(self.request("DELETE").body(Body::empty()).unwrap()).await
    }
}

/// Waits until an account has this number of running sandboxes.
async fn wait_for_running(fixture: &Fixture, count: u64) {
    for _ in 0..200 {
        let list = fixture.call("GET", "/v1/sandboxes?state=running").await;
        if list.json["pagination"]["total"] == count {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the account has not {count} running sandboxes");
}

#[tokio::test]
async fn a_request_needs_a_key_that_may_read() {
    let fixture = Fixture::new().await;
    for method in ["POST", "GET", "DELETE"] {
        let bare = Request::builder().method(method).uri("/mcp").body(Body::empty()).unwrap();
        assert_eq!(fixture.ask(bare).await.code(), "UNAUTHORIZED");
        for (key, scope) in SCOPED {
            let request = McpClient::new(&fixture, key).request(method).body(Body::empty()).unwrap();
            let status = fixture.send(request).await.status();
            assert_eq!(status == StatusCode::FORBIDDEN, scope != rules::Scope::Read, "{method} {scope:?}");
        }
    }
}

#[tokio::test]
async fn the_unnamed_sandbox_is_created_on_first_use_and_ends_with_the_session() {
    let fixture = Fixture::new().await;
    let client = McpClient::initialized(&fixture, 1).await;
    wait_for_running(&fixture, 0).await;
    let calls = (0..10).map(|_| client.call("run_command", json!({"command": "echo hi"})));
    let replies = futures_util::future::join_all(calls).await;
    for reply in &replies {
        assert_eq!(reply["result"]["isError"], false, "{reply}");
        assert_eq!(reply["result"]["structuredContent"]["stdout"], "hi\n", "{reply}");
    }
    wait_for_running(&fixture, 1).await;
    assert!(client.end().await.status.is_success());
    wait_for_running(&fixture, 0).await;
    assert_eq!(
        client.post(json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list"})).await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn a_sandbox_has_the_isolation_that_the_model_chose() {
    let fixture = Fixture::new().await;
    let client = McpClient::initialized(&fixture, 1).await;
    let choose = async |isolation| {
        let arguments = json!({"image": super::fixture::IMAGE, "isolation": isolation});
        client.call("create_sandbox", arguments).await["result"].clone()
    };
    for isolation in ["auto", "container"] {
        let created = choose(isolation).await;
        assert_eq!(created["structuredContent"]["isolation"], "container", "{created}");
    }
    for (isolation, allowed) in [("gvisor", "'auto' or 'container'"), ("vm", "`auto`, `container`, `gvisor`")]
    {
        let refused = choose(isolation).await;
        assert_eq!(refused["isError"], true, "{refused}");
        let text = refused["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(allowed), "{text}");
    }
    assert!(client.end().await.status.is_success());
}

#[tokio::test]
async fn the_session_of_another_key_does_not_exist() {
    let fixture = Fixture::new().await;
    let owner = McpClient::initialized(&fixture, 1).await;
    let list = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list"});
    let mut thief = McpClient::new(&fixture, 2);
    for session in [owner.session.clone().unwrap(), "0".repeat(36), "x".repeat(4000), String::new()] {
        thief.session = Some(session);
        for reply in [thief.post(list.clone()).await, thief.end().await, thief.initialize().await] {
            assert_eq!(reply.status, StatusCode::NOT_FOUND, "{reply:?}");
        }
        let stream = thief.request("GET").body(Body::empty()).unwrap();
        assert_eq!(thief.send(stream).await.status, StatusCode::NOT_FOUND);
    }
    assert_eq!(owner.post(list).await.status, StatusCode::OK);
}

#[tokio::test]
async fn requests_of_web_pages_are_refused() {
    let fixture = Fixture::new().await;
    let client = McpClient::new(&fixture, 1);
    for origin in ["https://evil.example", "null", "http://localhost:8443", "http://127.0.0.1", "x"] {
        let request =
            client.request("POST").header("content-type", "application/json").header("origin", origin);
        let reply = client.send(request.body(Body::from("{}")).unwrap()).await;
        assert_eq!(reply.status, StatusCode::FORBIDDEN, "{origin}");
    }
}

#[tokio::test]
async fn an_account_has_a_bounded_number_of_sessions() {
    let fixture = Fixture::new().await;
    let mut clients = Vec::new();
    for _ in 0..250 {
        clients.push(McpClient::initialized(&fixture, 1).await);
    }
    let refused = McpClient::new(&fixture, 1).initialize().await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{refused:?}");
    McpClient::initialized(&fixture, 2).await;
    clients.pop().unwrap().end().await;
    for _ in 0..200 {
        if McpClient::new(&fixture, 1).initialize().await.status == StatusCode::OK {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the end of a session frees no slot");
}

#[tokio::test]
async fn sessions_that_begin_at_once_are_within_the_share_of_their_account() {
    let fixture = Fixture::new().await;
    let client = McpClient::new(&fixture, 1);
    let replies = futures_util::future::join_all((0..400).map(|_| client.initialize())).await;
    let begun = replies.iter().filter(|reply| reply.status == StatusCode::OK).count();
    let refused = replies.iter().filter(|reply| reply.status == StatusCode::TOO_MANY_REQUESTS).count();
    assert_eq!((begun, refused), (250, 150));
    McpClient::initialized(&fixture, 2).await;
}

#[tokio::test]
async fn a_session_of_a_client_that_disconnected_keeps_its_slot() {
    let fixture = Fixture::new().await;
    let client = McpClient::new(&fixture, 1);
    for _ in 0..251 {
        // Polled often enough to begin a session, and dropped before the response.
        let mut beginning = Box::pin(client.initialize());
        for _ in 0..3 {
            if beginning.as_mut().now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(beginning);
    }
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    let open = fixture.service.mcp.as_ref().unwrap().sessions();
    let begun = futures_util::future::join_all((0..400).map(|_| client.initialize())).await;
    let begun = begun.iter().filter(|reply| reply.status == StatusCode::OK).count();
    assert!(open > 0 && open + begun == 250, "{open} were open, {begun} could begin");
}

#[tokio::test]
async fn messages_with_many_values_are_refused_before_they_are_parsed() {
    let fixture = Fixture::new().await;
    let client = McpClient::initialized(&fixture, 1).await;
    let values = vec!["0"; BODY_MAX / 2 - 200].join(",");
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{{"name":"x","arguments":{{"a":[{values}]}}}}}}"#
    );
    let request = client.request("POST").header("content-type", "application/json");
    let reply = client.send(request.body(Body::from(body)).unwrap()).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{reply:?}");
    assert!(reply.text.contains("values"), "{reply:?}");
}

#[tokio::test]
async fn a_tool_needs_the_scope_of_what_it_does() {
    let fixture = Fixture::new().await;
    let (reader, _) = SCOPED.into_iter().find(|(_, scope)| *scope == rules::Scope::Read).unwrap();
    let client = McpClient::initialized(&fixture, reader).await;
    let listed = client.call("manage_sandboxes", json!({"action": "list"})).await;
    assert_eq!(listed["result"]["isError"], false, "{listed}");
    let created = client.call("create_sandbox", json!({})).await;
    assert_eq!(created["result"]["isError"], true, "{created}");
    let text = created["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("FORBIDDEN") && text.contains("write"), "{text}");
}

#[tokio::test]
async fn a_request_of_the_newest_version_has_no_session() {
    let fixture = Fixture::new().await;
    let client = McpClient::new(&fixture, 1);
    let send = async |version: &str| {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({"name": "run_command", "arguments": {"command": "true"}, "_meta": meta});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let request = client
            .request("POST")
            .header("content-type", "application/json")
            .header("mcp-protocol-version", version)
            .header("mcp-method", "tools/call")
            .header("mcp-name", "run_command");
        client.send(request.body(Body::from(message.to_string())).unwrap()).await
    };
    let reply = send(MODERN).await;
    assert_eq!((reply.status, reply.session.as_deref()), (StatusCode::OK, None), "{reply:?}");
    let text = reply.message()["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("create_sandbox"), "{text}");
    // The error is the protocol's and not the REST API's.
    let reply = send("2099-01-01").await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert_eq!(reply.message()["jsonrpc"], "2.0", "{reply:?}");
    wait_for_running(&fixture, 0).await;
}

#[tokio::test]
async fn hostile_messages_are_refused() {
    let fixture = Fixture::new().await;
    let client = McpClient::initialized(&fixture, 1).await;
    let raw = async |body: Vec<u8>| {
        let request = client.request("POST").header("content-type", "application/json");
        client.send(request.body(Body::from(body)).unwrap()).await
    };
    assert_eq!(raw(vec![b' '; BODY_MAX + 1]).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    for body in ["", "{", "[]", "null", "[[[[", "{\"jsonrpc\": \"2.0\"}"] {
        let reply = raw(body.into()).await;
        assert!(reply.status.is_client_error(), "{body}: {reply:?}");
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(raw(deep.into()).await.status.is_client_error());
    let unknown = client.call(&"x".repeat(100_000), json!({})).await;
    assert!(unknown["error"]["message"].as_str().unwrap().len() < 1000, "{unknown}");
    let quoted = client.call("read_file", json!({"x".repeat(100_000): 1})).await;
    assert!(quoted["result"]["content"][0]["text"].as_str().unwrap().len() < 5000);
    let listed = client.call("manage_sandboxes", json!({"action": "list"})).await;
    assert_eq!(listed["result"]["isError"], false, "the session works on: {listed}");
}

#[test]
fn a_message_takes_no_more_than_a_few_times_its_bytes() {
    // Not an async test: what is measured is a closure.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let fixture = runtime.block_on(Fixture::new());
    let client = runtime.block_on(McpClient::initialized(&fixture, 1));
    let send = |body: String| {
        let request = client.request("POST").header("content-type", "application/json");
        client.send(request.body(Body::from(body)).unwrap())
    };
    let call = |arguments: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{{"name":"x","arguments":{arguments}}}}}"#
        )
    };
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let names: String = (0..BODY_MAX / 12 - 200).map(|n| format!(r#""{n}":"","#)).collect();
    for (name, body, limit) in [
        ("values", call(&format!(r#"{{"a":[{}]}}"#, vec!["0"; BODY_MAX / 2 - 200].join(","))), 2 * BODY_MAX),
        ("names", call(&format!(r#"{{{names}"last":0}}"#)), 2 * BODY_MAX),
        ("levels", call(&nested(BODY_MAX / 2 - 200)), 2 * BODY_MAX),
        ("a batch", format!("[{}0]", "{},".repeat(BODY_MAX / 3 - 200)), 2 * BODY_MAX),
        ("most values", call(&format!(r#"{{"a":[{}]}}"#, vec!["0"; 16_000].join(","))), 8 << 20),
        ("one text", call(&format!(r#"{{"a":"{}"}}"#, "x".repeat(BODY_MAX - 200))), 6 * BODY_MAX),
    ] {
        let mut reply = None;
        let peak = measure(|| reply = Some(runtime.block_on(send(body)))).bytes_max;
        let reply = reply.unwrap();
        assert!(reply.status.is_client_error() || reply.status == StatusCode::OK, "{name}: {reply:?}");
        assert!(peak <= limit as u64, "{name}: {peak} bytes");
    }
}
