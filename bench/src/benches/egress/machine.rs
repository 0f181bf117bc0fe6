//! A host with a daemon on a simulated internet, for the duration of a bench.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::internet::{self, Internet, RESOLVER, Site};
use e2e::service::{Client, Service, ServiceOptions};
use hyper::Method;
use serde_json::{Value, json};

const SANDBOXES: &str = "/v1/sandboxes";

pub struct Machine {
    // Dropped before the internet.
    pub service: Service,
    pub client: Client,
    pub internet: Internet,
    pub site: Site,
}

impl Machine {
    /// Starts it and moves the calling thread to its network namespace.
    pub async fn start(network: &str, pool: u32) -> Result<Self> {
        internet::image::build()?;
        let internet = Internet::new()?;
        internet.enter()?;
        internet.web()?;
        let site = internet.site("measured")?;
        let options = ServiceOptions::default()
            .image(internet::image::IMAGE, internet::image::SOURCE)
            .with("egress", "network", &format!("\"{network}\""))
            .with("egress", "resolver", &format!("\"{RESOLVER}\""))
            .with("pool", &format!("\"{}\"", Service::image()), &pool.to_string())
            .with("limits", "concurrent_executions", "50");
        let service = Service::start(&options).await?;
        let client = service.account().await?;
        Ok(Self { service, client, internet, site })
    }

    /// Creates a small sandbox; returns its id.
    pub async fn create(&self, image: &str, egress: &Value) -> Result<String> {
        self.create_sized(image, egress, &json!({ "memoryMb": 2048, "diskMb": 5120 })).await
    }

    /// Creates a sandbox of the default size, which the pool has.
    pub async fn create_default(&self, image: &str, egress: &Value) -> Result<String> {
        self.create_sized(image, egress, &json!({})).await
    }

    async fn create_sized(&self, image: &str, egress: &Value, resources: &Value) -> Result<String> {
        let body = json!({
            "image": image,
            "resources": resources,
            "timeoutMs": 3_600_000,
            "idleTimeoutMs": 0,
            "network": { "egress": egress },
        });
        let sandbox = self.client.post(SANDBOXES, &body).await?.is(201)?;
        Ok(sandbox["id"].as_str().context("a sandbox without an id")?.to_owned())
    }

    pub async fn destroy(&self, id: &str) -> Result<()> {
        self.client.delete(&format!("{SANDBOXES}/{id}")).await?.is(200)?;
        Ok(())
    }

    pub async fn set_policy(&self, id: &str, egress: &Value) -> Result<()> {
        let call = self.client.call(Method::PATCH, &format!("{SANDBOXES}/{id}/network"));
        call.json(&json!({ "egress": egress })).send().await?.is(200)?;
        Ok(())
    }

    /// The output of a command in a sandbox, or on the machine.
    pub async fn output(&self, sandbox: Option<&str>, command: &str) -> Result<String> {
        let Some(id) = sandbox else {
            // starts: curl, git, python3
            let output = Command::new("bash").args(["-c", command]).output()?;
            let stderr = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{command}: {stderr}");
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        };
        let body = json!({ "command": command, "timeoutMs": 55_000 });
        let result = self.client.post(&format!("{SANDBOXES}/{id}/execute"), &body).await?.is(200)?;
        ensure!(result["exitCode"] == 0, "{command}: {result}");
        Ok(result["stdout"].as_str().unwrap_or_default().to_owned())
    }
}
