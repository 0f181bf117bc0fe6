//! Builds of a template from a Dockerfile of five steps over HTTPS: with new steps, and again with the same ones. The peer is the
//! classic builder of the Docker Engine.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use async_trait::async_trait;
use e2e::service::Service as Process;
use hyper::Method;
use serde_json::{Value, json};

use super::Setup;
use crate::baselines::docker::Docker;
use crate::http::Connection;
use crate::report::{OURS, Row};
use crate::service::{Service, with_service};
use crate::subject::{Measured, Subject, interleave};

pub const NAMES: [&str; 2] = ["template-build", "template-rebuild"];
const ROUNDS: usize = 20;

/// Five steps that no earlier build has carried out.
fn dockerfile(base: &str) -> String {
    let nonce = rand::random::<u64>();
    format!(
        "FROM {base}\nRUN echo {nonce} > /nonce\nRUN mkdir -p /srv/app\nRUN head -c 1000000 /dev/zero > /srv/app/data\n\
         ENV MODE=bench\nRUN echo $MODE > /srv/app/mode\nWORKDIR /srv/app\nRUN ls > list\n"
    )
}

pub async fn run(setup: &Setup) -> Result<Vec<Row>> {
    with_service(async |service: &Service| {
        let connection = service.target().connect().await?;
        let mut subjects: Vec<Box<dyn Subject + '_>> = vec![Box::new(Ours { connection })];
        if let Some(docker) = &setup.docker {
            subjects.push(Box::new(DockerBuild { docker }));
        }
        interleave(ROUNDS, &mut subjects).await
    })
    .await
}

struct Ours {
    connection: Connection,
}

impl Ours {
    /// Requests a build and follows its log to the end.
    async fn build(&mut self, dockerfile: &str) -> Result<(Duration, Value)> {
        let body = json!({ "name": "bench", "dockerfile": dockerfile, "resources": { "memoryMb": 2048 } });
        let begin = Instant::now();
        let accepted = self.connection.json(Method::POST, "/v1/templates", Some(&body)).await?;
        let path = format!("/v1/templates/{}", accepted["id"].as_str().unwrap_or_default());
        self.connection.bytes(Method::GET, &format!("{path}/logs"), None).await?;
        let took = begin.elapsed();
        let template = self.connection.json(Method::GET, &path, None).await?;
        ensure!(template["state"] == "ready" && template["steps"]["total"] == 5, "{template}");
        Ok((took, template))
    }
}

#[async_trait]
impl Subject for Ours {
    fn name(&self) -> &'static str {
        OURS
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let dockerfile = dockerfile(Process::image());
        let (first, template) = self.build(&dockerfile).await?;
        ensure!(template["steps"]["cached"] == 0, "a new step was cached: {template}");
        let (second, again) = self.build(&dockerfile).await?;
        ensure!(again["steps"]["cached"] == 5, "a step was repeated: {again}");
        for template in [template, again] {
            let path = format!("/v1/templates/{}", template["id"].as_str().unwrap_or_default());
            self.connection.json(Method::DELETE, &path, None).await?;
        }
        Ok(vec![("template-build", first), ("template-rebuild", second)])
    }
}

struct DockerBuild<'a> {
    docker: &'a Docker,
}

#[async_trait]
impl Subject for DockerBuild<'_> {
    fn name(&self) -> &'static str {
        "docker"
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let dockerfile = dockerfile(self.docker.image());
        let begin = Instant::now();
        self.docker.build(&dockerfile).await?;
        let first = begin.elapsed();
        let begin = Instant::now();
        self.docker.build(&dockerfile).await?;
        let second = begin.elapsed();
        self.docker.remove_built().await?;
        Ok(vec![("template-build", first), ("template-rebuild", second)])
    }
}
