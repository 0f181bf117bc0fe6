//! `pip install` of a wheel of 300 modules, which it unpacks and compiles: under gVisor beside a container. Timed inside.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use api::Isolation;
use async_trait::async_trait;
use e2e::internet::image;
use hyper::Method;
use serde_json::json;

use crate::http::Connection;
use crate::report::{OURS, Row};
use crate::service::with_configured_service;
use crate::subject::{Measured, Subject, interleave};

const BENCH: &str = "gvisor-pip";
const ROUNDS: usize = 5;
const MAKE_WHEEL: &str = r#"
import base64, hashlib, zipfile
name = "example-1.0.dist-info/"
module = "".join(f"def function_{n}(a, b={n}):\n    return [a * b + n for n in range(b)]\n\n" for n in range(20))
files = {f"example/module_{n}.py": module for n in range(300)}
files["example/__init__.py"] = ""
files[name + "METADATA"] = "Metadata-Version: 2.1\nName: example\nVersion: 1.0\n"
files[name + "WHEEL"] = "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
digest = lambda text: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
record = [f"{path},sha256={digest(text)},{len(text)}\n" for path, text in files.items()]
files[name + "RECORD"] = "".join(record) + name + "RECORD,,\n"
with zipfile.ZipFile("example-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
    for path, text in files.items():
        wheel.writestr(path, text)
"#;
const INSTALL: &str = "set -e; begin=${EPOCHREALTIME/./}; \
     pip install -q --no-index --no-deps --target into example-1.0-py3-none-any.whl; \
     echo $((${EPOCHREALTIME/./} - begin)); find into -name '*.pyc' | wc -l; rm -r into";

pub async fn run() -> Result<Vec<Row>> {
    tokio::task::spawn_blocking(image::build).await??;
    with_configured_service(
        |options| options.image(image::IMAGE, image::SOURCE),
        async |service| {
            let mut subjects: Vec<Box<dyn Subject + '_>> = Vec::new();
            for (name, isolation) in [(OURS, Isolation::Gvisor), ("container", Isolation::Container)] {
                let mut connection = service.target().connect().await?;
                let body = json!({ "image": image::IMAGE, "isolation": isolation, "idleTimeoutMs": 0 });
                let sandbox = connection.json(Method::POST, "/v1/sandboxes", Some(&body)).await?;
                let id = sandbox["id"].as_str().context("no id")?;
                let path = format!("/v1/sandboxes/{id}/execute");
                let body = json!({ "command": "python3 -", "stdin": MAKE_WHEEL });
                let made = connection.json(Method::POST, &path, Some(&body)).await?;
                ensure!(made["exitCode"] == 0, "no wheel was made: {made}");
                subjects.push(Box::new(Install { name, connection, path }));
            }
            interleave(ROUNDS, &mut subjects).await
        },
    )
    .await
}

struct Install {
    name: &'static str,
    connection: Connection,
    path: String,
}

#[async_trait]
impl Subject for Install {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let body = json!({ "command": INSTALL });
        let installed = self.connection.json(Method::POST, &self.path, Some(&body)).await?;
        ensure!(installed["exitCode"] == 0, "pip failed: {installed}");
        let output = installed["stdout"].as_str().context("no output")?;
        let (took, modules) = output.split_once('\n').context("no time")?;
        ensure!(modules.trim() == "301", "pip compiled {modules} modules");
        Ok(vec![(BENCH, Duration::from_micros(took.parse().context("pip printed no time")?))])
    }
}
