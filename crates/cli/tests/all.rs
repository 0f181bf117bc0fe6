//! `rm --all` and `ls` while sandboxes change their states: sbx runs against a fake service whose lists contradict
//! each other.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// A fake service with scripted responses, which records requests. Its thread ends with the test process.
struct FakeService {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl FakeService {
    /// `respond` returns status and body for a method and a path.
    fn start(respond: impl Fn(&str, &str) -> (u16, Value) + Send + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let recorded = Arc::clone(&requests);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                serve(&socket.unwrap(), &respond, &recorded);
            }
        });
        Self { url, requests }
    }

    fn sbx(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sbx"));
        command.env_clear().env("SANDBOXD_URL", &self.url).env("SANDBOXD_API_KEY", "sk_test");
        command.args(words).output().unwrap()
    }

    fn removed(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests
            .iter()
            .filter_map(|line| line.strip_prefix("DELETE /v1/sandboxes/"))
            .map(str::to_owned)
            .collect()
    }
}

/// Serves one request without a body.
fn serve(
    mut socket: &TcpStream,
    respond: &impl Fn(&str, &str) -> (u16, Value),
    requests: &Mutex<Vec<String>>,
) {
    let mut lines = BufReader::new(socket).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    lines.find(String::is_empty);
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    requests.lock().unwrap().push(format!("{method} {path}"));
    let (status, body) = respond(method, path);
    let (body, head) = (body.to_string(), "content-type: application/json\r\nconnection: close");
    let length = body.len();
    let text = format!("HTTP/1.1 {status} x\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}");
    socket.write_all(text.as_bytes()).unwrap();
}

const A: &str = "sb_aaaaaaaa";
const B: &str = "sb_bbbbbbbb";
const C: &str = "sb_cccccccc";
const D: &str = "sb_dddddddd";

fn list(state: &str, ids: &[&str]) -> (u16, Value) {
    let items: Vec<Value> = ids
        .iter()
        .map(|id| {
            json!({"id": id, "state": state, "image": "img", "createdAt": "1970-01-01T00:00:00Z",
                "resources": {"cpu": 2, "memoryMb": 4096, "diskMb": 10240}})
        })
        .collect();
    let pagination = json!({"total": ids.len(), "limit": 100, "offset": 0, "hasMore": false});
    (200, json!({"data": items, "pagination": pagination}))
}

/// Between the requests B is paused and D is resumed; C has terminated before its delete.
fn changing() -> FakeService {
    let running = Mutex::new(vec![&[A, B, C, D][..], &[A, B, C]]);
    FakeService::start(move |method, path| match (method, path.rsplit('/').next().unwrap()) {
        ("GET", query) if query.contains("state=running") => {
            list("running", running.lock().unwrap().pop().unwrap())
        }
        ("GET", _) => list("paused", &[B]),
        (_, C) => (
            404,
            json!({"error": {"code": "SANDBOX_NOT_FOUND", "message": "gone", "details": {"sandboxId": C},
                "requestId": "req_1"}}),
        ),
        (_, id) => (
            200,
            json!({"id": id, "state": "terminated", "terminatedAt": "1970-01-01T00:00:00Z", "totalRuntimeMs": 9}),
        ),
    })
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn rm_all_removes_each_sandbox_once_while_states_change() {
    let service = changing();
    let output = service.sbx(&["rm", "--all"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let mut printed: Vec<&str> = text(&output.stdout).lines().collect();
    let mut removed = service.removed();
    printed.sort_unstable();
    removed.sort();
    assert_eq!((printed, removed), (vec![A, B, D], [A, B, C, D].map(str::to_owned).to_vec()));
    // An explicit id of a terminated sandbox is an error.
    let output = service.sbx(&["rm", C]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("SANDBOX_NOT_FOUND"));
}

#[test]
fn ls_lists_a_sandbox_once_that_changes_its_state() {
    let output = changing().sbx(&["ls", "--json"]);
    let items: Value = serde_json::from_slice(&output.stdout).unwrap();
    let states: Vec<(&str, &str)> = items
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["id"].as_str().unwrap(), item["state"].as_str().unwrap()))
        .collect();
    assert_eq!(states, [(A, "running"), (B, "paused"), (C, "running")]);
}
