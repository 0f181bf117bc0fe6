//! A sandbox of a test and its refusal events.

use std::process::Stdio;
use std::time::{Duration, Instant};

use api::Isolation;
use e2e::PATIENCE;
use e2e::internet;
use e2e::service::{Client, Events};
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::{SANDBOXES, TestNet, text};

/// The variables that point programs to the certificate authority.
const AUTHORITY: &str = "/authority.pem";
const AUTHORITY_NAMES: [&str; 6] = [
    "CURL_CA_BUNDLE",
    "SSL_CERT_FILE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "npm_config_cafile",
];

pub struct Guest<'a> {
    pub net: &'a TestNet,
    pub client: Client,
    pub id: String,
}

impl<'a> Guest<'a> {
    pub async fn new(net: &'a TestNet, egress: Value) -> Self {
        let client = net.service.account().await.unwrap();
        Self::of(net, client, egress).await
    }

    /// Another sandbox of the same account.
    pub async fn of(net: &'a TestNet, client: Client, egress: Value) -> Self {
        let env: serde_json::Map<String, Value> =
            AUTHORITY_NAMES.iter().map(|name| ((*name).to_owned(), json!(AUTHORITY))).collect();
        let body = json!({
            "image": internet::image::IMAGE,
            "resources": { "memoryMb": 2048, "diskMb": 5120 },
            "timeoutMs": 3_600_000,
            "idleTimeoutMs": 0,
            "env": env,
            "network": { "egress": egress },
        });
        let sandbox = client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap();
        let guest = Self { net, client, id: text(&sandbox["id"]) };
        let authority = std::fs::read_to_string(net.internet.authority()).unwrap();
        guest.output(&format!("cat > {AUTHORITY} <<'END'\n{authority}END")).await;
        guest
    }

    pub fn path(&self, verb: &str) -> String {
        format!("{SANDBOXES}/{}/{verb}", self.id)
    }

    pub async fn run(&self, command: &str) -> Value {
        let body = json!({ "command": command, "timeoutMs": 290_000 });
        self.client.post(&self.path("execute"), &body).await.unwrap().is(200).unwrap()
    }

    /// The output of a command that must succeed.
    pub async fn output(&self, command: &str) -> String {
        let result = self.run(command).await;
        assert_eq!(result["exitCode"], 0, "{command}: {result}; refused: {:#?}", self.refusals());
        text(&result["stdout"])
    }

    /// The output of a command that must fail.
    pub async fn fails(&self, command: &str) -> String {
        let result = self.run(command).await;
        assert_ne!(result["exitCode"], 0, "{command} succeeded: {result}");
        format!("{}{}", text(&result["stdout"]), text(&result["stderr"]))
    }

    /// A Python program that must succeed.
    pub async fn python(&self, program: &str) -> String {
        self.output(&python(program)).await
    }

    /// A Python program in the sandbox's namespaces, without its system call filter and with all capabilities: for frames that
    /// no program inside can send, so that the packet filter is tested alone. Under gVisor it is one that broke out of its kernel:
    /// only the network namespace is that of the sandbox, and it has no address.
    pub async fn python_without_seccomp(&self, program: &str) -> String {
        let pid_file = self.net.service.layout.run.join("sandboxes").join(&self.id).join("first.pid");
        let pid = std::fs::read_to_string(pid_file).unwrap();
        let own: &[&str] = match e2e::isolation() {
            Isolation::Container => &["--net", "--mount", "--pid"],
            Isolation::Gvisor => &["--net"],
        };
        let mut child = tokio::process::Command::new("nsenter")
            .args(["--target", pid.trim()])
            .args(own)
            .args(["python3", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(format!("{PRELUDE}\n{program}\n").as_bytes()).await.unwrap();
        drop(stdin);
        let output = child.wait_with_output().await.unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a command and waits for its first line, `begun`.
    pub async fn start(&self, command: &str) -> Events {
        let client = self.client.with_own_connections();
        let body = json!({ "command": command, "timeoutMs": 290_000 });
        let call = client.call(Method::POST, &self.path("execute")).json(&body);
        let mut events = call.stream().await.unwrap();
        let first = events.next().await.unwrap().unwrap();
        assert_eq!((first.name.as_str(), first.data.as_str()), ("stdout", "begun"), "{command}");
        events
    }

    pub async fn patch(&self, egress: Value) {
        let call = self.client.call(Method::PATCH, &self.path("network"));
        call.json(&json!({ "egress": egress })).send().await.unwrap().is(200).unwrap();
    }

    pub async fn post_empty(&self, verb: &str) {
        self.client.post_empty(&self.path(verb)).await.unwrap().is(200).unwrap();
    }

    pub async fn terminate(&self) {
        self.client.delete(&format!("{SANDBOXES}/{}", self.id)).await.unwrap().is(200).unwrap();
    }

    /// The data of the refusal events, oldest first.
    pub fn refusals(&self) -> Vec<Value> {
        let query = format!(
            "select data from events where sandbox = '{}' and kind = 'network.refused' order by sequence",
            self.id
        );
        let rows = self.net.service.stored(&query).unwrap();
        rows.iter().map(|row| serde_json::from_str(row).unwrap()).collect()
    }

    /// Waits for an event with one of these reasons, about a name or an address.
    pub async fn wait_for_refusal(&self, reasons: &[&str], about: &str) {
        let begin = Instant::now();
        loop {
            let refusals = self.refusals();
            let matches = |event: &&Value| {
                reasons.iter().any(|reason| event["reason"] == *reason)
                    && [&event["name"], &event["address"]].iter().any(|of| **of == about)
            };
            if let Some(event) = refusals.iter().find(matches) {
                let message = event["message"].as_str().unwrap_or_default();
                assert!(!message.is_empty() && event["count"].as_u64() >= Some(1), "{event}");
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "no event {reasons:?} about {about} among {refusals:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// An endless download; reports when it stops.
pub fn holds_stream(host: &str, port: u16) -> String {
    python(&format!(
        "s = tcp('{host}', {port}, 3); s.send(request('{host}')); s.recv(99)\nprint('begun', flush=True)\n\
         end = time.time() + 50\ntry:\n    while time.time() < end:\n        if not s.recv(9999): print('closed'); break\n    \
         else: print('still there')\nexcept (ConnectionError, TimeoutError):\n    print('cut')"
    ))
}

/// Exchanges datagrams; reports when no answer arrives.
pub fn holds_echo(host: &str) -> String {
    python(&format!(
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.5); s.connect(('{host}', 7))\n\
         s.send(b'x'); s.recv(9)\nprint('begun', flush=True)\nend = time.time() + 50\n\
         try:\n    while time.time() < end:\n        s.send(b'x'); s.recv(9); time.sleep(0.02)\n    print('still there')\nexcept OSError:\n    print('cut')"
    ))
}

/// A Python program as a command, with common imports.
pub fn python(program: &str) -> String {
    format!("python3 - <<'END_OF_PROGRAM'\n{PRELUDE}\n{program}\nEND_OF_PROGRAM")
}

const PRELUDE: &str = r#"
import os, random, socket, ssl, struct, sys, time
def tcp(address, port, timeout=5):
    return socket.create_connection((address, port), timeout=timeout)
def all_of(stream):
    """All data until the peer closes; a reset or timeout is marked."""
    got = b""
    try:
        while chunk := stream.recv(65536):
            got += chunk
    except ConnectionError:
        got += b"<reset>"
    except TimeoutError:
        got += b"<silence>"
    return got
def request(host, path="/hello", end="close"):
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: {end}\r\n\r\n".encode()
def hello(name):
    """The ClientHello of a TLS client for this name."""
    context = ssl.create_default_context()
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    if name is None:
        context.check_hostname = False
    client = context.wrap_bio(into, out, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()
"#;
