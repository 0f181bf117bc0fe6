//! Create through the whole service, its record on disk when the answer comes: from the pool.

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
            service.pool_is_full().await?;
            let begin = Instant::now();
            let id = service.create(&mut connection).await?;
            samples.push(begin.elapsed());
            let path = format!("/v1/sandboxes/{id}");
            connection.json(Method::DELETE, &path, None).await.context("removing what was made")?;
        }
        Ok(vec![Row::times("http-create", OURS, &samples)])
    })
    .await
}
