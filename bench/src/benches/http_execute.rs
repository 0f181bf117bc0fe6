//! The cost of running `true` through the whole service, compared with the engine alone, a bare process, and a minimal HTTPS server,
//! which is a part of the service's overhead.

use std::time::Instant;

use anyhow::{Result, ensure};
use async_trait::async_trait;
use e2e::{Rig, RigOptions};
use hyper::Method;
use serde_json::{Value, json};

use crate::baselines::bash::Bash;
use crate::baselines::hello::Hello;
use crate::http::Connection;
use crate::report::{OURS, Row};
use crate::service::with_service;
use crate::subject::{Measured, Subject, interleave};
use crate::with_rig::with_rig;

use super::execute::Ours as Engine;

const BENCH: &str = "http-execute";
const ROUNDS: usize = 500;

pub async fn run() -> Result<Vec<Row>> {
    with_service(async |service| {
        with_rig(RigOptions::default(), async |rig: &Rig| {
            let hello = Hello::start(service).await?;
            let mut connection = service.target().connect().await?;
            let path = format!("/v1/sandboxes/{}/execute", service.create(&mut connection).await?);
            let mut subjects: Vec<Box<dyn Subject + '_>> = vec![
                Box::new(Ours { connection, path, body: json!({ "command": "true" }) }),
                Box::new(Engine { bench: BENCH, name: "engine", rig, id: rig.create().await? }),
                Box::new(Bash { bench: BENCH, command: "true" }),
                Box::new(MinimalServer { connection: hello.target().connect().await? }),
            ];
            interleave(ROUNDS, &mut subjects).await
        })
        .await
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
        ensure!(result["exitCode"] == 0, "true ended with {result}");
        Ok(vec![(BENCH, took)])
    }
}

/// A minimal request to a minimal server.
struct MinimalServer {
    connection: Connection,
}

#[async_trait]
impl Subject for MinimalServer {
    fn name(&self) -> &'static str {
        "hello"
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let begin = Instant::now();
        self.connection.bytes(Method::GET, "/", None).await?;
        Ok(vec![(BENCH, begin.elapsed())])
    }
}
