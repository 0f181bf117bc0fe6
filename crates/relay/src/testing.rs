//! A whole service on a loopback port, for the tests of the client library: [`TestService`] serves the harness of the native API with the
//! real listener, in a thread of its own. Compiled for tests and with the feature `testing` only.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::Clock;
use listen::{Limits, Listener, Server};
use native::Unrouted;
use native::testing::{Harness, Result, Settings, key};
use rules::Capacity;
use sandboxd_client::{Client, Sandbox};
use tokio_util::sync::CancellationToken;

use crate::Relay;

pub use native::testing::websocket;

/// A service on a loopback port. It has the images `ubuntu:24.04` and `python:3.12`, and `busy`, which it pulls for ever. Dropped,
/// it stops.
pub struct TestService {
    address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl TestService {
    pub fn start() -> Result<Self> {
        let stop = CancellationToken::new();
        let (started, address) = mpsc::sync_channel(1);
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            if let Err(error) = serve(&started, &stopped) {
                let _ = started.send(Err(error));
            }
        });
        let address = address.recv().map_err(|_| "the thread of the service ended")??;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A key of account `one` that may do everything.
    pub fn key(&self) -> String {
        key(1).as_str().to_owned()
    }
}

impl Drop for TestService {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves until `stop`; says the address once requests are accepted.
fn serve(started: &mpsc::SyncSender<Result<SocketAddr>>, stop: &CancellationToken) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let settings = Settings {
            clock: Clock::System,
            allow_any_image: false,
            ready: &["ubuntu:24.04", "python:3.12"],
            hanging: "busy",
            capacity: Capacity { cpu: 1000, memory_mb: 1_000_000, disk_mb: 10_000_000 },
            max_output_bytes: 1 << 20,
        };
        let harness = Harness::new(settings).await?;
        let socket = listen::bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = socket.local_addr()?;
        let server = Server {
            application: Arc::new(Relay { api: harness.guarded.clone(), e2b: None }),
            answers: Arc::new(Unrouted(Arc::clone(&harness.service))),
            limits: Limits::default(),
            is_exempt: Arc::new(|_| false),
        };
        let _ = started.send(Ok(address));
        let listeners = vec![Listener::Http { socket }];
        tokio::select! {
            _ = listen::serve(server, listeners, CancellationToken::new(), Duration::ZERO) => {}
            () = stop.cancelled() => {}
        }
        Ok(())
    })
}

/// The result of an example. Its error fails the test.
type Tested = Result<(), Box<dyn Error>>;

/// Runs an example of a client's documentation against a new service. Panics with the example's error.
pub fn run(example: impl AsyncFnOnce(&TestService) -> Tested) {
    let result = (|| {
        let service = TestService::start().map_err(|error| error as Box<dyn Error>)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(example(&service))
    })();
    if let Err(error) = result {
        panic!("the example fails: {error}");
    }
}

/// Runs an example with a client of a new service, as [`run`] does.
pub fn with_client(example: impl AsyncFnOnce(Client) -> Tested) {
    run(async |service| {
        let client = Client::builder().url(service.url()).key(service.key()).build()?;
        example(client).await
    });
}

/// Runs an example with a running sandbox of a new service, as [`run`] does.
pub fn with_sandbox(example: impl AsyncFnOnce(Sandbox) -> Tested) {
    with_client(async |client| {
        let sandbox = client.create("ubuntu:24.04").await?;
        example(sandbox).await
    });
}
