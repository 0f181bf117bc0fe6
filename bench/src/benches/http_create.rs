//! Creates from the pool through the whole service, with the record committed before the response.

use std::time::Instant;

use anyhow::{Context as _, Result};
use hyper::Method;

use crate::report::{OURS, Row};
use crate::samples::Samples;
use crate::service::{Service, with_service};

const ROUNDS: usize = 200;

pub async fn run() -> Result<Vec<Row>> {
    with_service(async |service: &Service| {
        let mut connection = service.target().connect().await?;
        let mut samples = Samples::default();
        for _ in 0..ROUNDS {
            service.wait_for_full_pool().await?;
            let begin = Instant::now();
            let id = service.create(&mut connection).await?;
            samples.push(begin.elapsed());
            let path = format!("/v1/sandboxes/{id}");
            connection.json(Method::DELETE, &path, None).await.context("deleting the sandbox")?;
        }
        Ok(vec![Row::times("http-create", OURS, &samples)])
    })
    .await
}
