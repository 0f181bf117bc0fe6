//! The Docker Engine, over its socket, with an image imported from the sandboxes' root file system.
//!
//! Image and containers are removed from a daemon that was already running; a daemon started by the bench is removed entirely.

mod daemon;
mod http;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use daemon::Daemon;
use http::{Client, DockerResponse};

const RUNNING: &str = "/var/run/docker.sock";

/// Which daemon to measure against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The daemon on the default socket, if there is one.
    Running,
    /// A daemon started for this run.
    Own,
}

pub struct Docker {
    client: Client,
    image: String,
    own: Option<Daemon>,
}

impl Docker {
    /// `None` if no daemon runs.
    pub async fn find(which: Which) -> Result<Option<Self>> {
        let own = match which {
            Which::Own => {
                Some(Daemon::start().await.context("starting a Docker Engine (package docker.io)")?)
            }
            Which::Running if Path::new(RUNNING).exists() => None,
            Which::Running => return Ok(None),
        };
        let socket = own.as_ref().map_or_else(|| PathBuf::from(RUNNING), Daemon::socket);
        let image = format!("sandboxd-bench:{}", std::process::id());
        let docker = Self { client: Client::new(socket), image, own };
        let ready = docker.import().await.context("importing the root file system into Docker");
        match ready {
            Ok(()) => Ok(Some(docker)),
            Err(error) => {
                docker.close().await?;
                Err(error)
            }
        }
    }

    /// Like `docker import`.
    async fn import(&self) -> Result<()> {
        let (repository, tag) = self.image.split_once(':').unwrap_or((&self.image, "latest"));
        let path = format!("/images/create?fromSrc=-&repo={repository}&tag={tag}");
        let mut tar = tokio::process::Command::new("tar")
            .arg("-C")
            .arg(e2e::rootfs()?)
            .args(["--numeric-owner", "-c", "."])
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("running tar")?;
        let archive = tar.stdout.take().context("tar has no output")?;
        let answer = self.client.upload(&path, archive).await?;
        ensure!(tar.wait().await?.success(), "tar failed");
        answer.expect_status(&[200])?;
        Ok(())
    }

    /// A container that sleeps, with the limits of our sandboxes and no network.
    pub async fn create_and_start(&self) -> Result<String> {
        self.create_and_start_from(&self.image).await
    }

    pub async fn create_and_start_from(&self, image: &str) -> Result<String> {
        let body = json!({
            "Image": image,
            "Cmd": ["sleep", "infinity"],
            "HostConfig": {
                "NetworkMode": "none", "Memory": 2_147_483_648_u64, "NanoCpus": 2_000_000_000_u64, "PidsLimit": 512,
            },
        });
        let created = self.post("/containers/create", Some(&body)).await?.expect_status(&[201])?.json()?;
        let id = created["Id"].as_str().context("Docker returned no container id")?.to_owned();
        self.post(&format!("/containers/{id}/start"), None).await?.expect_status(&[204])?;
        Ok(id)
    }

    /// Runs a command to its end: creates it, starts it, reads its output, gets its exit code.
    pub async fn exec(&self, container: &str, command: &str) -> Result<()> {
        let body = json!({ "AttachStdout": true, "AttachStderr": true, "Cmd": ["bash", "-c", command] });
        let path = format!("/containers/{container}/exec");
        let created = self.post(&path, Some(&body)).await?.expect_status(&[201])?.json()?;
        let id = created["Id"].as_str().context("Docker returned no exec id")?;
        let start = json!({ "Detach": false, "Tty": false });
        self.post(&format!("/exec/{id}/start"), Some(&start)).await?.expect_status(&[200])?;
        let ended = self
            .client
            .request("GET", &format!("/exec/{id}/json"), None)
            .await?
            .expect_status(&[200])?
            .json()?;
        ensure!(ended["ExitCode"] == json!(0), "the command ended with {}", ended["ExitCode"]);
        Ok(())
    }

    pub async fn pause(&self, container: &str) -> Result<()> {
        self.post(&format!("/containers/{container}/pause"), None).await?.expect_status(&[204]).map(drop)
    }

    pub async fn unpause(&self, container: &str) -> Result<()> {
        self.post(&format!("/containers/{container}/unpause"), None).await?.expect_status(&[204]).map(drop)
    }

    /// Makes an image of a container, and returns its id.
    pub async fn commit(&self, container: &str) -> Result<String> {
        let committed = self.post(&format!("/commit?container={container}"), Some(&json!({}))).await?;
        let committed = committed.expect_status(&[201])?.json()?;
        Ok(committed["Id"].as_str().context("Docker returned no image id")?.to_owned())
    }

    /// The image of the containers.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// Builds an image from a Dockerfile without other files.
    pub async fn build(&self, dockerfile: &str) -> Result<()> {
        let mut context = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(dockerfile.len() as u64);
        context.append_data(&mut header, "Dockerfile", dockerfile.as_bytes())?;
        let context = context.into_inner()?;
        let path = format!("/build?t={}-built", self.image);
        let built = self.client.upload(&path, context.as_slice()).await?.expect_status(&[200])?;
        ensure!(built.text().contains("Successfully built"), "Docker built no image: {}", built.text());
        Ok(())
    }

    /// Removes the image of [`Self::build`].
    pub async fn remove_built(&self) -> Result<()> {
        self.remove_image(&format!("{}-built", self.image)).await
    }

    pub async fn remove_image(&self, image: &str) -> Result<()> {
        self.client
            .request("DELETE", &format!("/images/{image}"), None)
            .await?
            .expect_status(&[200])
            .map(drop)
    }

    pub async fn remove(&self, container: &str) -> Result<()> {
        let path = format!("/containers/{container}?force=true&v=true");
        self.client.request("DELETE", &path, None).await?.expect_status(&[204]).map(drop)
    }

    async fn post(&self, path: &str, body: Option<&Value>) -> Result<DockerResponse> {
        self.client.request("POST", path, body).await
    }

    /// Removes the containers of the image, the image, and the daemon if the bench started it.
    pub async fn close(self) -> Result<()> {
        let cleared = self.clear().await;
        match self.own {
            // Its state is removed with it.
            Some(daemon) => daemon.stop().await,
            None => cleared,
        }
    }

    async fn clear(&self) -> Result<()> {
        let filter = format!("%7B%22ancestor%22%3A%5B%22{}%22%5D%7D", self.image);
        let path = format!("/containers/json?all=true&filters={filter}");
        let containers = self.client.request("GET", &path, None).await?.expect_status(&[200])?.json()?;
        for container in containers.as_array().into_iter().flatten() {
            self.remove(container["Id"].as_str().unwrap_or_default()).await?;
        }
        let path = format!("/images/{}?force=true", self.image);
        self.client.request("DELETE", &path, None).await?.expect_status(&[200, 404]).map(drop)
    }
}
