//! The cost of `1 + 1` in a warm context through the whole service, compared with the same request to the interpreter from inside
//! its sandbox. The difference is what the service adds to the kernel's own time: at most 15 ms.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use e2e::code_image;
use hyper::Method;
use serde_json::{Value, json};

use crate::http::Connection;
use crate::report::{OURS, Row};
use crate::service::with_service;
use crate::subject::{Measured, Subject, interleave};

const BENCH: &str = "code";
const ROUNDS: usize = 200;
/// Prints the time of one request in nanoseconds.
const INSIDE: &str = "import http.client, json, time
connection = http.client.HTTPConnection('127.0.0.1', 49999)
begin = time.perf_counter_ns()
connection.request('POST', '/execute', json.dumps({'code': '1 + 1'}))
connection.getresponse().read()
print(time.perf_counter_ns() - begin)";

pub async fn run() -> Result<Vec<Row>> {
    tokio::task::spawn_blocking(code_image::build).await??;
    with_service(async |service| {
        let mut connection = service.target().connect().await?;
        let body = json!({
            "image": code_image::IMAGE,
            "resources": { "memoryMb": 2048, "diskMb": 5120 },
            "idleTimeoutMs": 0,
        });
        let sandbox = connection.json(Method::POST, "/v1/sandboxes", Some(&body)).await?;
        let id = sandbox["id"].as_str().context("no id")?.to_owned();
        let path = |action: &str| format!("/v1/sandboxes/{id}/{action}");
        let mut subjects: Vec<Box<dyn Subject + '_>> = vec![
            Box::new(Ours { connection, path: path("code"), body: json!({ "code": "1 + 1" }) }),
            Box::new(Inside {
                connection: service.target().connect().await?,
                path: path("execute"),
                body: json!({ "command": "python3 -", "stdin": INSIDE }),
            }),
        ];
        // Starts the kernel.
        subjects[0].once().await?;
        interleave(ROUNDS, &mut subjects).await
    })
    .await
}

struct Ours {
    connection: Connection,
    path: String,
    body: Value,
}

#[async_trait]
impl Subject for Ours {
    fn name(&self) -> &'static str {
        OURS
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let begin = Instant::now();
        let result = self.connection.json(Method::POST, &self.path, Some(&self.body)).await?;
        let took = begin.elapsed();
        ensure!(result["results"][0]["text"] == "2", "1 + 1 ended with {result}");
        Ok(vec![(BENCH, took)])
    }
}

/// The same request, sent and measured inside.
struct Inside {
    connection: Connection,
    path: String,
    body: Value,
}

#[async_trait]
impl Subject for Inside {
    fn name(&self) -> &'static str {
        "inside"
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let result = self.connection.json(Method::POST, &self.path, Some(&self.body)).await?;
        let nanos = result["stdout"].as_str().unwrap_or_default().trim().parse();
        let nanos: u64 = nanos.with_context(|| format!("the script ended with {result}"))?;
        Ok(vec![(BENCH, Duration::from_nanos(nanos))])
    }
}
