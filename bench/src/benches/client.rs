//! The overhead of the client library: GETs of one sandbox, compared with a bare hyper connection.

use std::time::Instant;

use anyhow::Result;
use async_trait::async_trait;
use hyper::Method;

use crate::http::Connection;
use crate::report::{OURS, Row};
use crate::service::with_service;
use crate::subject::{Measured, Subject, interleave};

const BENCH: &str = "client";
const ROUNDS: usize = 500;

pub async fn run() -> Result<Vec<Row>> {
    with_service(async |service| {
        let mut connection = service.target().connect().await?;
        let id = service.create(&mut connection).await?;
        let sandbox = service.client()?.sandbox(&id)?;
        let mut subjects: Vec<Box<dyn Subject + '_>> = vec![
            Box::new(Library { sandbox }),
            Box::new(Bare { connection, path: format!("/v1/sandboxes/{id}") }),
        ];
        interleave(ROUNDS, &mut subjects).await
    })
    .await
}

struct Library {
    sandbox: sandboxd_client::Sandbox,
}

#[async_trait]
impl Subject for Library {
    fn name(&self) -> &'static str {
        OURS
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let begin = Instant::now();
        self.sandbox.refresh().await?;
        Ok(vec![(BENCH, begin.elapsed())])
    }
}

struct Bare {
    connection: Connection,
    path: String,
}

#[async_trait]
impl Subject for Bare {
    fn name(&self) -> &'static str {
        "hyper"
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let begin = Instant::now();
        self.connection.json(Method::GET, &self.path, None).await?;
        Ok(vec![(BENCH, begin.elapsed())])
    }
}
