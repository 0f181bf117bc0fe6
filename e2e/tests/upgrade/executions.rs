//! Detached executions for the upgrade tests.

use e2e::service::{Client, Event, Events};
use hyper::Method;
use serde_json::{Value, json};

use crate::{action_path, output, sandbox_path, text, wait_until};

/// A detached execution in a sandbox.
#[derive(Debug, Clone)]
pub struct Execution {
    pub sandbox: String,
    pub id: String,
}

/// Counts lines on both streams until the file `/stop` exists.
const COUNTS: &str =
    "i=0; while [ ! -e /stop ]; do i=$((i+1)); echo $i; echo e$i >&2; sleep 0.01; done; echo last";

impl Execution {
    pub async fn start(client: &Client, sandbox: &str, command: &str) -> Self {
        let body = json!({ "command": command, "detached": true, "openStdin": true });
        Self::from(client, sandbox, "execute", &body).await
    }

    pub async fn terminal(client: &Client, sandbox: &str) -> Self {
        Self::from(client, sandbox, "terminals", &json!({})).await
    }

    async fn from(client: &Client, sandbox: &str, endpoint: &str, body: &Value) -> Self {
        let view = client.post(&action_path(sandbox, endpoint), body).await.unwrap().is(201).unwrap();
        Self { sandbox: sandbox.to_owned(), id: text(&view["executionId"]) }
    }

    pub fn path(&self, what: &str) -> String {
        format!("{}/executions/{}{what}", sandbox_path(&self.sandbox), self.id)
    }

    pub async fn view(&self, client: &Client) -> Value {
        client.get(&self.path("")).await.unwrap().is(200).unwrap()
    }

    /// Its output so far, or from an offset.
    pub async fn output(&self, client: &Client, query: &str) -> Value {
        client.get(&self.path(&format!("/output{query}"))).await.unwrap().is(200).unwrap()
    }

    pub async fn ended(&self, client: &Client) -> Value {
        wait_until("the execution has ended", async || self.view(client).await["state"] != "running").await;
        self.view(client).await
    }

    pub async fn prints(&self, client: &Client, wanted: &str) {
        let stdout = async || text(&self.output(client, "").await["stdout"]);
        wait_until(wanted, async || stdout().await.contains(wanted)).await;
    }

    pub async fn stream(&self, client: &Client, after: Option<&str>) -> Events {
        let (client, path) = (client.with_own_connections(), self.path("/output"));
        let call = client.call(Method::GET, &path);
        match after {
            Some(after) => call.header("last-event-id", after).stream().await.unwrap(),
            None => call.stream().await.unwrap(),
        }
    }

    pub async fn lines(&self, client: &Client, after: Option<&str>) -> Vec<Event> {
        self.stream(client, after).await.rest().await.unwrap()
    }

    pub async fn write(&self, client: &Client, query: &str, bytes: &str) {
        let call = client.call(Method::POST, &self.path(&format!("/stdin{query}")));
        call.body("application/octet-stream", bytes.as_bytes().to_vec())
            .send()
            .await
            .unwrap()
            .is(200)
            .unwrap();
    }
}

/// An execution that writes continuously, and a client that reads its output.
pub struct Counting {
    pub execution: Execution,
    seen: Vec<Event>,
    stream: Events,
}

impl Counting {
    pub async fn start(client: &Client, sandbox: &str) -> Self {
        let execution = Execution::start(client, sandbox, COUNTS).await;
        let stream = execution.stream(client, None).await;
        let mut counting = Self { execution, seen: Vec::new(), stream };
        counting.read(100).await;
        counting
    }

    async fn read(&mut self, lines: usize) {
        for _ in 0..lines {
            self.seen.push(self.stream.next().await.unwrap().unwrap());
        }
    }

    /// Reads the events that were sent before the daemon ended. Its last event may report the shutdown.
    pub async fn read_the_rest(&mut self) {
        while let Ok(Some(event)) = self.stream.next().await {
            if event.name != "error" {
                self.seen.push(event);
            }
        }
    }

    /// The output continues after the last offset, complete and without repetition.
    pub async fn verify(mut self, client: &Client) {
        let last = self.seen.last().unwrap().id.clone().unwrap();
        self.stream = self.execution.stream(client, Some(&last)).await;
        self.read(100).await;
        output(client, &self.execution.sandbox, "touch /stop").await;
        while let Some(event) = self.stream.next().await.unwrap() {
            self.seen.push(event);
        }
        assert_eq!(self.seen.last().unwrap().name, "done");
        let lines = |name: &str, events: &[Event]| -> Vec<String> {
            events.iter().filter(|event| event.name == name).map(|event| event.data.clone()).collect()
        };
        let again = self.execution.lines(client, None).await;
        for events in [&self.seen, &again] {
            let (mut stdout, stderr) = (lines("stdout", events), lines("stderr", events));
            assert_eq!(stdout.pop().as_deref(), Some("last"));
            assert!(stdout.iter().eq(&(1..=stdout.len()).map(|n| n.to_string()).collect::<Vec<_>>()));
            assert!(stderr.iter().eq(&(1..=stdout.len()).map(|n| format!("e{n}")).collect::<Vec<_>>()));
        }
        let view = self.execution.ended(client).await;
        assert_eq!((&view["state"], &view["exitCode"]), (&json!("exited"), &json!(0)));
    }
}

/// An execution that ended before the upgrade, with its output.
pub struct Ended {
    execution: Execution,
    view: Value,
    whole: Value,
    lines: Vec<Event>,
}

impl Ended {
    pub async fn prepare(client: &Client, sandbox: &str) -> Self {
        let command =
            "for i in $(seq 1 3000); do echo line $i; echo err $i >&2; done; printf '\\377\\0rest'; exit 5";
        let execution = Execution::start(client, sandbox, command).await;
        let view = execution.ended(client).await;
        assert_eq!(view["exitCode"], 5);
        let (whole, lines) = (execution.output(client, "").await, execution.lines(client, None).await);
        assert!(lines.len() > 6000, "{} lines", lines.len());
        Self { execution, view, whole, lines }
    }

    pub async fn verify(&self, client: &Client) {
        let view = self.execution.view(client).await;
        for field in ["state", "exitCode", "signal", "durationMs", "command", "outputStart", "outputEnd"] {
            assert_eq!(view[field], self.view[field], "{field}");
        }
        let whole = self.execution.output(client, "").await;
        for field in ["stdout", "stderr", "next", "more", "dropped", "state"] {
            assert_eq!(whole[field], self.whole[field], "{field}");
        }
        assert_eq!(self.execution.lines(client, None).await, self.lines);
        for number in [0, 1, 2999, self.lines.len() - 2] {
            let after = self.lines[number].id.clone().unwrap();
            let rest = self.execution.lines(client, Some(&after)).await;
            assert_eq!(rest, self.lines[number + 1..], "after {after}");
        }
        let cut = text(&self.execution.output(client, "?after=5.0").await["stdout"]);
        assert_eq!(cut, text(&self.whole["stdout"])[5..]);
    }
}
