//! Creating sandboxes.

use std::time::Duration;

use api::{
    CreateBody, CreateEgress, CreateIngress, CreateNetwork, CreateResources, EgressDefault, EventKind,
    IsolationChoice, OnTimeout, SandboxView,
};
use hyper::Method;

use crate::client::Client;
use crate::millis::ms;
use crate::run::Run;
use crate::sandbox::Sandbox;
use crate::sandbox::lifecycle::{Handlers, LifecycleEvent, Started};
use crate::transport::ApiCall;
use crate::transport::retry::Safety;
use crate::{Result, ids};

impl Client {
    /// Creates a sandbox from an image. `.await` sends the request.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("python:3.12").cpu(4).memory_mb(8192).await?;
    /// # Ok(()) });
    /// ```
    pub fn create(&self, image: impl Into<String>) -> Create {
        Create::new(self.clone(), image.into())
    }
}

/// A request for a new sandbox; `.await` sends it. The service's defaults apply to options that are not set.
///
/// ```
/// # sandboxd::testing::with_client(async |client| {
/// use std::time::Duration;
/// let sandbox = client
///     .create("ubuntu:24.04")
///     .cpu(4)
///     .env("GREETING", "hello")
///     .metadata("userId", "user_123")
///     .idle_timeout(Duration::from_secs(60))
///     .await?;
/// assert_eq!(sandbox.execute("echo $GREETING").await?.stdout, "hello\n");
/// # Ok(()) });
/// ```
#[must_use = "a request does nothing unless awaited"]
pub struct Create {
    client: Client,
    body: CreateBody,
    key: Option<String>,
    handlers: Handlers,
    run: Option<Run>,
    is_impatient: bool,
}

impl Create {
    fn new(client: Client, image: String) -> Self {
        let body = CreateBody { image, ..CreateBody::default() };
        Self { client, body, key: None, handlers: Handlers::default(), run: None, is_impatient: false }
    }

    fn resources(&mut self) -> &mut CreateResources {
        self.body.resources.get_or_insert_default()
    }

    fn egress(&mut self) -> &mut CreateEgress {
        self.body.network.get_or_insert_with(CreateNetwork::default).egress.get_or_insert_default()
    }

    /// Sets the number of vCPUs: 2, 4 or 8.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("ubuntu:24.04").cpu(8).await?;
    /// assert_eq!(sandbox.known().unwrap().resources.cpu, 8);
    /// # Ok(()) });
    /// ```
    pub fn cpu(mut self, cpu: u32) -> Self {
        self.resources().cpu = Some(cpu.into());
        self
    }

    /// Sets the memory in MB.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("ubuntu:24.04").memory_mb(2048).await?;
    /// assert_eq!(sandbox.known().unwrap().resources.memory_mb, 2048);
    /// # Ok(()) });
    /// ```
    pub fn memory_mb(mut self, memory_mb: u32) -> Self {
        self.resources().memory_mb = Some(memory_mb.into());
        self
    }

    /// Sets the disk size in MB.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("ubuntu:24.04").disk_mb(5120).await?;
    /// assert_eq!(sandbox.known().unwrap().resources.disk_mb, 5120);
    /// # Ok(()) });
    /// ```
    pub fn disk_mb(mut self, disk_mb: u32) -> Self {
        self.resources().disk_mb = Some(disk_mb.into());
        self
    }

    /// Adds an environment variable for all commands.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("ubuntu:24.04").env("A", "1").env("B", "2").await?;
    /// assert_eq!(sandbox.execute("echo $A$B").await?.stdout, "12\n");
    /// # Ok(()) });
    /// ```
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.body.env.get_or_insert_default().insert(name.into(), value.into());
        self
    }

    /// Sets the working directory of commands.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("ubuntu:24.04").workdir("/src").await?;
    /// assert_eq!(sandbox.known().unwrap().workdir, "/src");
    /// # Ok(()) });
    /// ```
    pub fn workdir(mut self, workdir: impl Into<String>) -> Self {
        self.body.workdir = Some(workdir.into());
        self
    }

    /// Terminates the sandbox after this running time, not counting pauses; see [`on_timeout`](Self::on_timeout).
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let day = std::time::Duration::from_secs(86_400);
    /// let sandbox = client.create("ubuntu:24.04").timeout(day).await?;
    /// assert_eq!(sandbox.known().unwrap().timeout_ms, 86_400_000);
    /// # Ok(()) });
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.body.timeout_ms = Some(ms(timeout).into());
        self
    }

    /// Pauses the sandbox after this time without activity; zero disables it.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("ubuntu:24.04").idle_timeout(std::time::Duration::ZERO).await?;
    /// assert_eq!(sandbox.known().unwrap().idle_timeout_ms, 0);
    /// # Ok(()) });
    /// ```
    pub fn idle_timeout(mut self, idle: Duration) -> Self {
        self.body.idle_timeout_ms = Some(ms(idle).into());
        self
    }

    /// What happens at the end of the timeout.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// use sandboxd_client::OnTimeout;
    /// let sandbox = client.create("ubuntu:24.04").on_timeout(OnTimeout::Pause).await?;
    /// assert_eq!(sandbox.known().unwrap().on_timeout, OnTimeout::Pause);
    /// # Ok(()) });
    /// ```
    pub fn on_timeout(mut self, on_timeout: OnTimeout) -> Self {
        self.body.on_timeout = Some(on_timeout);
        self
    }

    /// With `false`, commands, files and ports do not resume the sandbox while it is paused.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("ubuntu:24.04").auto_resume(false).await?;
    /// sandbox.pause().await?;
    /// let error = sandbox.execute("true").await.unwrap_err();
    /// assert_eq!(error.code(), sandboxd_client::Code::InvalidState);
    /// # Ok(()) });
    /// ```
    pub fn auto_resume(mut self, auto_resume: bool) -> Self {
        self.body.auto_resume = Some(auto_resume);
        self
    }

    /// Sets what separates the sandbox from the host. [`Client::info`] lists what the service has.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// use sandboxd_client::{Isolation, IsolationChoice};
    /// let sandbox = client.create("ubuntu:24.04").isolation(IsolationChoice::Container).await?;
    /// assert_eq!(sandbox.known().unwrap().isolation, Isolation::Container);
    /// # Ok(()) });
    /// ```
    pub fn isolation(mut self, isolation: IsolationChoice) -> Self {
        self.body.isolation = Some(isolation);
        self
    }

    /// Starts a sandbox from a snapshot with processes without them.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let snapshot = client.create("ubuntu:24.04").await?.snapshot().await?;
    /// let sandbox = client.create(snapshot.id.as_str()).cold(true).await?;
    /// # assert_eq!(sandbox.execute("echo runs").await?.stdout, "runs\n");
    /// # Ok(()) });
    /// ```
    pub fn cold(mut self, cold: bool) -> Self {
        self.body.cold = Some(cold);
        self
    }

    /// Names the sandbox. [`Client::find`] and paths accept the name in place of the id. The create fails if another sandbox of the
    /// account that is not terminated has the name.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("ubuntu:24.04").name("web").await?;
    /// assert_eq!(sandbox.known().unwrap().name.as_deref(), Some("web"));
    /// assert!(client.create("ubuntu:24.04").name("web").await.is_err());
    /// # Ok(()) });
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.body.name = Some(name.into());
        self
    }

    /// Adds a tag, by which lists can be filtered.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("ubuntu:24.04").metadata("job", "17").await?;
    /// assert_eq!(sandbox.known().unwrap().metadata["job"], "17");
    /// # Ok(()) });
    /// ```
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.body.metadata.get_or_insert_default().insert(key.into(), value.into());
        self
    }

    /// Allows the sandbox to reach these domains only.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("ubuntu:24.04").only_domains(["example.com", "*.example.org"]).await?;
    /// let egress = sandbox.known().unwrap().network.egress;
    /// assert_eq!(egress.default, sandboxd_client::EgressDefault::Deny);
    /// # Ok(()) });
    /// ```
    pub fn only_domains<D: Into<String>>(mut self, domains: impl IntoIterator<Item = D>) -> Self {
        let egress = self.egress();
        egress.default = Some(EgressDefault::Deny);
        egress.allow.get_or_insert_default().extend(domains.into_iter().map(Into::into));
        self
    }

    /// Allows the sandbox to reach these IPv4 addresses and networks, whatever else is denied.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("ubuntu:24.04").only_domains(["example.com"]).allow_networks(["192.0.2.0/24"]).await?;
    /// assert_eq!(sandbox.known().unwrap().network.egress.allow_networks, ["192.0.2.0/24"]);
    /// # Ok(()) });
    /// ```
    pub fn allow_networks<N: Into<String>>(mut self, networks: impl IntoIterator<Item = N>) -> Self {
        self.egress().allow_networks.get_or_insert_default().extend(networks.into_iter().map(Into::into));
        self
    }

    /// Keeps the sandbox from reaching these IPv4 addresses and networks, which it could reach otherwise.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("ubuntu:24.04").deny_networks(["203.0.113.7"]).await?;
    /// assert_eq!(sandbox.known().unwrap().network.egress.deny_networks, ["203.0.113.7"]);
    /// # Ok(()) });
    /// ```
    pub fn deny_networks<N: Into<String>>(mut self, networks: impl IntoIterator<Item = N>) -> Self {
        self.egress().deny_networks.get_or_insert_default().extend(networks.into_iter().map(Into::into));
        self
    }

    /// Restricts the ports that can be exposed.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("ubuntu:24.04").allow_ports([3000]).await?;
    /// # Ok(()) });
    /// ```
    pub fn allow_ports(mut self, ports: impl IntoIterator<Item = u16>) -> Self {
        let network = self.body.network.get_or_insert_default();
        let ingress = network.ingress.get_or_insert_with(CreateIngress::default);
        ingress.allow_ports.get_or_insert_default().extend(ports.into_iter().map(api::Integer::from));
        self
    }

    /// Sets the `Idempotency-Key`: a request with the same key within 24 hours, from any process, returns the same sandbox. By
    /// default the library generates a key for its own retries.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let first = client.create("ubuntu:24.04").idempotency_key("order-4711").await?;
    /// let again = client.create("ubuntu:24.04").idempotency_key("order-4711").await?;
    /// assert_eq!(first.id(), again.id());
    /// # Ok(()) });
    /// ```
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Returns the first error, without retries, if the service has no capacity or the image is still being pulled, for which the service
    /// itself waits up to 25 s. Use this
    /// to implement your own waiting, for example by polling [`Client::image`].
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let error = client.create("busy").without_waiting().await.unwrap_err();
    /// assert_eq!((error.code(), error.repeats()), (sandboxd_client::Code::ResourceExhausted, 0));
    /// # Ok(()) });
    /// ```
    pub fn without_waiting(mut self) -> Self {
        self.is_impatient = true;
        self
    }

    /// Calls `handler` on lifecycle events of the sandbox, including its start; see [`Sandbox::on`].
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("ubuntu:24.04").on(|_: &sandboxd_client::Started| println!("it runs")).await?;
    /// # Ok(()) });
    /// ```
    pub fn on<H: LifecycleEvent>(self, handler: impl Fn(&H) + Send + Sync + 'static) -> Self {
        self.handlers.add(handler);
        self
    }

    /// Records the events of the sandbox in `run`, including its creation.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let run = sandboxd_client::Run::new();
    /// let sandbox = client.create("ubuntu:24.04").run(&run).await?;
    /// # Ok(()) });
    /// ```
    pub fn run(mut self, run: &Run) -> Self {
        self.run = Some(run.clone());
        self
    }

    async fn send(self) -> Result<Sandbox> {
        let key = self.key.unwrap_or_else(|| ids::random_id("key_"));
        let mut call =
            ApiCall::new(Method::POST, "/v1/sandboxes", Safety::Repeatable).json(&self.body)?.key(&key)?;
        if self.is_impatient {
            call = call.impatient();
        }
        if let Some(run) = &self.run {
            call = run.with_run_id(call)?;
        }
        let view: SandboxView = self.client.transport().json(call).await?;
        let sandbox =
            Sandbox::with(self.client, view.id.clone(), Some(view.clone()), self.handlers, self.run);
        sandbox.record_event(
            EventKind::SandboxCreated,
            &[("image", view.image.into()), ("state", view.state.to_string().into())],
        );
        sandbox.record_event(EventKind::SandboxStarted, &[]);
        sandbox.notify(&Started);
        Ok(sandbox)
    }
}

awaited! { Create -> Sandbox; }
