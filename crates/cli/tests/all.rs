//! sbx against a fake service: `rm --all` and `ls` while sandboxes change their states and lists contradict each other, waiting for
//! limits, names of snapshots, the newest command of `logs -f`, lost commands, what `ls` and `stats` ask for, and exit codes of damaged
//! output.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// A fake service with scripted responses, which records requests. Its thread ends with the test process.
struct FakeService {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl FakeService {
    /// `respond` returns status and body for a method and a path.
    fn start(respond: impl Fn(&str, &str) -> (u16, Value) + Send + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let bodies: Arc<Mutex<Vec<String>>> = Arc::default();
        let (recorded, recorded_bodies) = (Arc::clone(&requests), Arc::clone(&bodies));
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                serve(&socket.unwrap(), &respond, &recorded, &recorded_bodies);
            }
        });
        Self { url, requests, bodies }
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

/// Serves one request.
fn serve(
    mut socket: &TcpStream,
    respond: &impl Fn(&str, &str) -> (u16, Value),
    requests: &Mutex<Vec<String>>,
    bodies: &Mutex<Vec<String>>,
) {
    let mut reader = BufReader::new(socket);
    let mut lines = reader.by_ref().lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let length =
        head.iter().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    // Unread bytes would reset the connection.
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    bodies.lock().unwrap().push(String::from_utf8(body).unwrap());
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    requests.lock().unwrap().push(format!("{method} {path}"));
    let (status, body) = respond(method, path);
    let retry_after = if status == 429 { "\r\nretry-after: 1" } else { "" };
    let (body, head) =
        (body.to_string(), format!("content-type: application/json\r\nconnection: close{retry_after}"));
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

#[test]
fn a_limit_is_named_once_while_sbx_waits_for_it() {
    let refusals = Mutex::new(3);
    let service = FakeService::start(move |_, path| {
        let mut left = refusals.lock().unwrap();
        if path.contains("state=paused") || *left == 0 {
            return list("running", &[]);
        }
        *left -= 1;
        let details = json!({"limit": "reads per minute", "value": 300, "key": "limits.read_per_minute"});
        (
            429,
            json!({"error": {"code": "RATE_LIMITED", "message": "m", "details": details, "requestId": "r"}}),
        )
    });
    let output = service.sbx(&["ls", "-q"]);
    let expected = "sbx: 300 reads per minute: waiting 1 s; the operator sets limits.read_per_minute; \
                    'sandboxd serve --no-rate-limits' lifts rate limits on a machine of your own; retrying for up to 2m; Ctrl-C \
                    ends the wait\n";
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), expected));
}

/// Creates from `snap_abcdefgh` only, which is the newest snapshot with the name `prepared`.
fn with_snapshot() -> FakeService {
    let creates = Mutex::new(0);
    FakeService::start(move |method, path| match method {
        "POST" => {
            let mut creates = creates.lock().unwrap();
            *creates += 1;
            match *creates {
                1 => (
                    400,
                    json!({"error": {"code": "INVALID_CONFIG", "message": "image is 'prepared'; allowed: 'a'",
                        "details": {"field": "image"}, "requestId": "r"}}),
                ),
                _ => (
                    201,
                    json!({"id": A, "state": "running", "image": "snap_abcdefgh", "env": {}, "workdir": "/",
                        "resources": {"cpu": 2, "memoryMb": 4096, "diskMb": 10240}, "timeoutMs": 1,
                        "idleTimeoutMs": 0, "metadata": {}, "network": {"egress": {"allow": [], "default": "allow"}},
                        "createdAt": "1970-01-01T00:00:00Z"}),
                ),
            }
        }
        _ => {
            let snapshot = json!({"id": "snap_abcdefgh", "sandboxId": B, "name": "prepared", "image": "a",
                "isolation": "container", "memory": false, "sizeBytes": 1, "state": "ready",
                "createdAt": "1970-01-01T00:00:00Z", "metadata": {}});
            let found = if path.contains("name=prepared") { vec![snapshot] } else { Vec::new() };
            let pagination = json!({"total": found.len(), "limit": 1, "offset": 0, "hasMore": false});
            (200, json!({"data": found, "pagination": pagination}))
        }
    })
}

#[test]
fn a_sandbox_is_created_from_the_name_of_a_snapshot() {
    let output = with_snapshot().sbx(&["create", "prepared"]);
    let note = "sbx: 'prepared' is the snapshot snap_abcdefgh\n";
    assert_eq!((text(&output.stdout), text(&output.stderr)), (format!("{A}\n").as_str(), note));
    // An image that is none, and no name either, is refused with the message of the service.
    let output = with_snapshot().sbx(&["create", "other"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("INVALID_CONFIG") && text(&output.stderr).contains("sbx images"));
}

#[test]
fn following_without_an_execution_names_the_newest_command() {
    const COMMAND: &str = "ex_bbbbbbbbbbbbbbbbbbbb";
    let view = |id: &str, terminal: Value| {
        let mut view = json!({"executionId": id, "sandboxId": A, "state": "running", "command": "make", "runId": "",
            "timeoutMs": null, "stdinOpen": false, "startedAt": "1970-01-01T00:00:00Z", "endedAt": null, "exitCode": null,
            "signal": null, "durationMs": null, "outputEnd": "0.0", "outputStart": "0.0"});
        if !terminal.is_null() {
            view["terminal"] = terminal;
        }
        view
    };
    let follow = |executions: Vec<Value>| {
        let service = FakeService::start(move |_, path| {
            if path.contains("/executions?") {
                let pagination =
                    json!({"total": executions.len(), "limit": 100, "offset": 0, "hasMore": false});
                return (200, json!({"data": executions, "pagination": pagination}));
            }
            (404, json!({"error": {"code": "EXECUTION_NOT_FOUND", "message": "gone", "requestId": "r"}}))
        });
        let output = service.sbx(&["logs", "-f", A]);
        assert_eq!(output.status.code(), Some(125));
        (text(&output.stderr).to_owned(), service.requests.lock().unwrap().join("\n"))
    };
    // A terminal is not a command.
    let terminal = view("ex_aaaaaaaaaaaaaaaaaaaa", json!({"cols": 80, "rows": 24}));
    let (stderr, requests) = follow(vec![terminal.clone(), view(COMMAND, Value::Null)]);
    assert!(stderr.starts_with(&format!("sbx: following {COMMAND}: make\n")), "{stderr}");
    assert!(requests.contains(&format!("/executions/{COMMAND}/")), "{requests}");
    let (stderr, _) = follow(vec![terminal]);
    assert!(stderr.contains("no command has run"), "{stderr}");
}

/// It would stand still for two minutes when nobody reads its output.
#[test]
fn a_detached_command_waits_for_a_reader_only_if_asked() {
    for (words, wait) in [(&["exec", "-d"][..], 0), (&["exec", "-d", "--reader-timeout", "2m"], 120_000)] {
        let service = FakeService::start(|_, _| {
            (201, execution(&json!({"state": "running", "endedAt": null, "durationMs": null})))
        });
        let output = service.sbx(&[words, &[A, "make"]].concat());
        assert_eq!(text(&output.stdout), "ex_aaaaaaaaaaaaaaaaaaaa\n", "{}", text(&output.stderr));
        let body: Value = serde_json::from_str(&service.bodies.lock().unwrap()[0]).unwrap();
        assert_eq!(body["readerTimeoutMs"], wait, "{body}");
    }
}

#[test]
fn a_sandbox_that_runs_is_resumed_already() {
    let service = |state: &'static str| {
        FakeService::start(move |method, _| match method {
            "POST" => (
                409,
                json!({"error": {"code": "INVALID_STATE", "message": "it is not paused", "details": {}, "requestId": "r"}}),
            ),
            _ => (
                200,
                json!({"id": A, "state": state, "image": "a", "env": {}, "workdir": "/",
                    "resources": {"cpu": 2, "memoryMb": 4096, "diskMb": 10240}, "timeoutMs": 1,
                    "idleTimeoutMs": 0, "metadata": {}, "network": {"egress": {"allow": [], "default": "allow"}},
                    "createdAt": "1970-01-01T00:00:00Z"}),
            ),
        })
    };
    let output = service("running").sbx(&["resume", A]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), format!("{A}\n").as_str()));
    assert_eq!(text(&output.stderr), format!("sbx: {A} runs already\n"));
    let output = service("running").sbx(&["--json", "resume", A]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed, json!({"id": A, "state": "running"}));
    // One in another state is not resumed, and neither are processes ended that run.
    for (state, words) in [("paused", &["resume", A][..]), ("running", &["resume", "--cold", A])] {
        let output = service(state).sbx(words);
        assert_eq!(output.status.code(), Some(125), "{words:?}");
        assert!(text(&output.stderr).contains("INVALID_STATE"), "{}", text(&output.stderr));
    }
}

#[test]
fn missing_programs_are_told() {
    for (stdout, exit_code, expected, part) in [
        ("a\n", json!(0), 0, ""),
        // Printed by the command, or by a service that sends no bytes.
        ("a\u{fffd}\n", json!(3), 3, ""),
        ("", Value::Null, 126, "sbx: the command could not start"),
    ] {
        let service = FakeService::start(move |_, _| {
            let body = json!({"stdout": stdout, "stderr": "", "exitCode": exit_code, "durationMs": 1, "signal": null});
            (200, body)
        });
        let output = service.sbx(&["exec", "--buffered", A, "true"]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(expected), stdout));
        let stderr = text(&output.stderr);
        assert!(stderr.contains(part) && stderr.is_empty() == part.is_empty(), "{stderr}");
    }
}

/// An execution of A.
fn execution(changes: &Value) -> Value {
    let mut view = json!({"executionId": "ex_aaaaaaaaaaaaaaaaaaaa", "sandboxId": A, "state": "exited", "command": "make",
        "runId": "", "timeoutMs": null, "stdinOpen": false, "startedAt": "1970-01-01T00:00:00Z",
        "endedAt": "1970-01-01T00:00:01Z", "exitCode": null, "signal": null, "durationMs": 1, "outputEnd": "0.0",
        "outputStart": "0.0"});
    for (name, value) in changes.as_object().unwrap() {
        view[name] = value.clone();
    }
    view
}

#[test]
fn a_lost_command_is_a_failure() {
    let lost = execution(&json!({"state": "lost", "message": "the host was restarted"}));
    let service = FakeService::start(move |_, _| (200, lost.clone()));
    let output = service.sbx(&["logs", A, "ex_aaaaaaaaaaaaaaaaaaaa"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(125), ""));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("(state 'lost'): the host was restarted"), "{stderr}");
    let ended = execution(&json!({"exitCode": 3}));
    let service = FakeService::start(move |_, _| (200, ended.clone()));
    let output = service.sbx(&["logs", A, "ex_aaaaaaaaaaaaaaaaaaaa"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

#[test]
fn ls_says_how_the_commands_of_live_sandboxes_ended() {
    let service = FakeService::start(|_, path| {
        if path.contains("/executions?") {
            let data = if path.contains(A) { vec![execution(&json!({"exitCode": 2}))] } else { Vec::new() };
            let pagination = json!({"total": data.len(), "limit": 100, "offset": 0, "hasMore": false});
            return (200, json!({"data": data, "pagination": pagination}));
        }
        list("running", if path.contains("state=running") { &[A, B] } else { &[] })
    });
    let table = service.sbx(&["ls"]);
    let rows: Vec<&str> = text(&table.stdout).lines().skip(1).collect();
    assert_eq!(rows.iter().filter(|row| row.contains("(command exited 2)")).count(), 1, "{rows:?}");
    assert!(rows.iter().any(|row| row.starts_with(A) && row.contains("(command exited 2)")), "{rows:?}");
    // Ids and JSON need no commands.
    let before = service.requests.lock().unwrap().len();
    service.sbx(&["ls", "-q"]);
    service.sbx(&["ls", "--json"]);
    let requests = service.requests.lock().unwrap()[before..].join("\n");
    assert!(!requests.contains("/executions"), "{requests}");
    let found = service.sbx(&["ls", "-q", B]);
    assert_eq!(text(&found.stdout), format!("{B}\n"));
}

#[test]
fn stats_shows_all_live_sandboxes_in_one_table() {
    let service = FakeService::start(|_, path| {
        if path.contains("/metrics") {
            let sample = json!({"timestamp": "1970-01-01T00:00:00Z", "cpuCount": 2, "cpuUsedPercent": 50.0,
                "memoryUsedBytes": 5_000_000, "memoryCacheBytes": 0, "memoryTotalBytes": 4_000_000_000_u64,
                "diskUsedBytes": 1_000_000, "diskTotalBytes": 10_000_000_000_u64});
            return (200, json!({"data": [sample]}));
        }
        if path.contains("state=running") { list("running", &[A, B]) } else { list("paused", &[C]) }
    });
    for words in [&["stats"][..], &["top"], &["stats", "--no-stream"]] {
        let output = service.sbx(words);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{words:?}");
        let table = text(&output.stdout);
        assert!(
            table.starts_with("ID ") && table.contains("100.0 %") && table.contains("200.0 %"),
            "{table}"
        );
        assert_eq!(table.lines().count(), 1 + 3 + 1, "{table}");
    }
    let metrics = service.requests.lock().unwrap().iter().filter(|line| line.contains("/metrics")).count();
    assert_eq!(metrics, 3 * 2, "a paused sandbox has no usage");
    let output = service.sbx(&["stats", "--json"]);
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((all.as_array().unwrap().len(), &all[0]["usage"]["cpuUsedPercent"]), (3, &json!(50.0)));
}
