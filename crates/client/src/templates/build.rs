//! Requests for builds.

use std::path::PathBuf;
use std::time::Duration;

use api::{CreateNetwork, CreateResources, EgressDefault, IsolationChoice, TemplateBody, TemplateView};
use hyper::Method;

use crate::client::Client;
use crate::files::FileBody;
use crate::millis::ms;
use crate::transport::ApiCall;
use crate::transport::retry::Safety;
use crate::{Result, ids};

const DOCKERFILE: &str = "Dockerfile";

impl Client {
    /// Builds a template from a Dockerfile. `.await` sends the request and returns when the build is accepted; follow it with
    /// [`template_log`](Self::template_log). When the template is ready, its name is an image for creates.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let accepted = client.build_template("web").dockerfile("FROM ubuntu:24.04\nENV GREETING=hello").await?;
    /// let template = client.template_log(accepted.id.as_str()).done().await?;
    /// assert_eq!(template.state, sandboxd_client::TemplateState::Ready);
    /// let sandbox = client.create("web").await?;
    /// assert_eq!(sandbox.execute("echo $GREETING").await?.stdout, "hello\n");
    /// # Ok(()) });
    /// ```
    pub fn build_template(&self, name: impl Into<String>) -> BuildTemplate {
        let body = TemplateBody { name: name.into(), ..TemplateBody::default() };
        BuildTemplate { client: self.clone(), body, context: None, key: None }
    }
}

/// A request for a build; `.await` sends it. The service's defaults apply to options that are not set.
///
/// ```
/// # sandboxd::testing::with_client(async |client| {
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("Dockerfile"), "FROM ubuntu:24.04\nARG VERSION=1\nENV VERSION=$VERSION\n")?;
/// # let project = dir.path();
/// let accepted = client.build_template("web").context(project).build_arg("VERSION", "2").metadata("job", "17").await?;
/// assert_eq!(accepted.metadata["job"], "17");
/// # Ok(()) });
/// ```
#[must_use = "a request does nothing unless awaited"]
pub struct BuildTemplate {
    client: Client,
    body: TemplateBody,
    context: Option<PathBuf>,
    key: Option<String>,
}

impl BuildTemplate {
    /// Sets the text of the Dockerfile.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// client.build_template("plain").dockerfile("FROM ubuntu:24.04").await?;
    /// # Ok(()) });
    /// ```
    pub fn dockerfile(mut self, text: impl Into<String>) -> Self {
        self.body.dockerfile = Some(text.into());
        self
    }

    /// Sets the path of the Dockerfile in the context; `Dockerfile` by default.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let dir = tempfile::tempdir()?;
    /// # std::fs::write(dir.path().join("web.Dockerfile"), "FROM ubuntu:24.04\n")?;
    /// # let project = dir.path();
    /// client.build_template("web").context(project).dockerfile_path("web.Dockerfile").await?;
    /// # Ok(()) });
    /// ```
    pub fn dockerfile_path(mut self, path: impl Into<String>) -> Self {
        self.body.dockerfile_path = Some(path.into());
        self
    }

    /// Sends a local directory as the build context, without what its `.dockerignore` excludes. `COPY` and `ADD` take files from it.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let dir = tempfile::tempdir()?;
    /// # std::fs::write(dir.path().join("Dockerfile"), "FROM ubuntu:24.04\n")?;
    /// # let project = dir.path();
    /// client.build_template("web").context(project).await?;
    /// # Ok(()) });
    /// ```
    pub fn context(mut self, directory: impl Into<PathBuf>) -> Self {
        self.context = Some(directory.into());
        self
    }

    /// Uses a context that [`Client::upload_context`] has uploaded.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let dir = tempfile::tempdir()?;
    /// # std::fs::write(dir.path().join("Dockerfile"), "FROM ubuntu:24.04\n")?;
    /// # let project = dir.path();
    /// let context = client.upload_context(sandboxd_client::FileBody::directory(project)).await?;
    /// client.build_template("web").uploaded_context(context.id.to_string()).await?;
    /// # Ok(()) });
    /// ```
    pub fn uploaded_context(mut self, id: impl Into<String>) -> Self {
        self.body.context = Some(id.into());
        self
    }

    /// Sets the value of an `ARG`.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// client.build_template("web").dockerfile("ARG BASE=none\nFROM $BASE").build_arg("BASE", "ubuntu:24.04").await?;
    /// # Ok(()) });
    /// ```
    pub fn build_arg(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.body.build_args.get_or_insert_default().insert(name.into(), value.into());
        self
    }

    /// Sets a command that runs in every sandbox from the template.
    ///
    /// ```no_run
    /// # async fn example(client: &sandboxd_client::Client) -> sandboxd_client::Result<()> {
    /// client.build_template("web").context(".").start_command("python3 -m http.server 8080").await?;
    /// # Ok(()) }
    /// ```
    pub fn start_command(mut self, command: impl Into<String>) -> Self {
        self.body.start_command = Some(command.into());
        self
    }

    /// Sets a command that succeeds when the start command is ready.
    ///
    /// ```no_run
    /// # async fn example(client: &sandboxd_client::Client) -> sandboxd_client::Result<()> {
    /// let build = client.build_template("web").context(".").start_command("python3 -m http.server 8080");
    /// build.ready_command("curl -sf http://127.0.0.1:8080").await?;
    /// # Ok(()) }
    /// ```
    pub fn ready_command(mut self, command: impl Into<String>) -> Self {
        self.body.ready_command = Some(command.into());
        self
    }

    /// Sets the time for the start command to become ready; one minute by default.
    ///
    /// ```no_run
    /// # async fn example(client: &sandboxd_client::Client) -> sandboxd_client::Result<()> {
    /// let build = client.build_template("web").context(".").start_command("./serve").ready_command("./check");
    /// build.ready_timeout(std::time::Duration::from_secs(300)).await?;
    /// # Ok(()) }
    /// ```
    pub fn ready_timeout(mut self, timeout: Duration) -> Self {
        self.body.ready_timeout_ms = Some(ms(timeout).into());
        self
    }

    fn resources(&mut self) -> &mut CreateResources {
        self.body.resources.get_or_insert_default()
    }

    /// Sets the number of vCPUs of the sandboxes in which the steps run: 2, 4 or 8.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// client.build_template("web").dockerfile("FROM ubuntu:24.04").cpu(4).memory_mb(8192).disk_mb(20_480).await?;
    /// # Ok(()) });
    /// ```
    pub fn cpu(mut self, cpu: u32) -> Self {
        self.resources().cpu = Some(cpu.into());
        self
    }

    /// Sets the memory of these sandboxes in MB; see [`cpu`](Self::cpu).
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// client.build_template("web").dockerfile("FROM ubuntu:24.04").memory_mb(8192).await?;
    /// # Ok(()) });
    /// ```
    pub fn memory_mb(mut self, memory_mb: u32) -> Self {
        self.resources().memory_mb = Some(memory_mb.into());
        self
    }

    /// Sets the disk size of these sandboxes in MB; see [`cpu`](Self::cpu). Sandboxes from the template have at least as much.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// client.build_template("web").dockerfile("FROM ubuntu:24.04").disk_mb(20_480).await?;
    /// # Ok(()) });
    /// ```
    pub fn disk_mb(mut self, disk_mb: u32) -> Self {
        self.resources().disk_mb = Some(disk_mb.into());
        self
    }

    /// Sets the isolation of these sandboxes.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let build = client.build_template("web").dockerfile("FROM ubuntu:24.04");
    /// build.isolation(sandboxd_client::IsolationChoice::Container).await?;
    /// # Ok(()) });
    /// ```
    pub fn isolation(mut self, isolation: IsolationChoice) -> Self {
        self.body.isolation = Some(isolation);
        self
    }

    /// Allows the steps only these domains.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// client.build_template("web").dockerfile("FROM ubuntu:24.04").only_domains(["*.example.com"]).await?;
    /// # Ok(()) });
    /// ```
    pub fn only_domains<D: Into<String>>(mut self, domains: impl IntoIterator<Item = D>) -> Self {
        let network = self.body.network.get_or_insert_with(CreateNetwork::default);
        let egress = network.egress.get_or_insert_default();
        egress.default = Some(EgressDefault::Deny);
        egress.allow.get_or_insert_default().extend(domains.into_iter().map(Into::into));
        self
    }

    /// Sets the time for all steps together; 30 minutes by default.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let build = client.build_template("web").dockerfile("FROM ubuntu:24.04");
    /// build.timeout(std::time::Duration::from_secs(7200)).await?;
    /// # Ok(()) });
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.body.timeout_ms = Some(ms(timeout).into());
        self
    }

    /// Runs all steps, also those that an earlier build has carried out.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// client.build_template("web").dockerfile("FROM ubuntu:24.04").no_cache(true).await?;
    /// # Ok(()) });
    /// ```
    pub fn no_cache(mut self, no_cache: bool) -> Self {
        self.body.no_cache = Some(no_cache);
        self
    }

    /// Adds a tag.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// client.build_template("web").dockerfile("FROM ubuntu:24.04").metadata("job", "17").await?;
    /// assert_eq!(client.templates().metadata("job", "17").all().await?.len(), 1);
    /// # Ok(()) });
    /// ```
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.body.metadata.get_or_insert_default().insert(key.into(), value.into());
        self
    }

    /// Sets the `Idempotency-Key`. By default the library generates one for its retries.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let build = || client.build_template("web").dockerfile("FROM ubuntu:24.04").idempotency_key("nightly-17");
    /// assert_eq!(build().await?.id, build().await?.id);
    /// # Ok(()) });
    /// ```
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    async fn send(mut self) -> Result<TemplateView> {
        if let Some(directory) = self.context.take() {
            let keep = self.body.dockerfile_path.clone().unwrap_or_else(|| DOCKERFILE.to_owned());
            let context = self.client.upload_context(FileBody::context(directory, keep)).await?;
            self.body.context = Some(context.id.to_string());
        }
        let key = self.key.unwrap_or_else(|| ids::random_id("tpl_"));
        let call =
            ApiCall::new(Method::POST, "/v1/templates", Safety::Repeatable).json(&self.body)?.key(&key)?;
        self.client.transport().json(call).await
    }
}

awaited! { BuildTemplate -> TemplateView; }
