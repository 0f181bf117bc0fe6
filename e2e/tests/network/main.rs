//! Tests of the network from inside of sandboxes, by honest and by hostile clients, on a simulated internet.
//!
//! Most tests share one host with one daemon; a test that stops the daemon or changes its configuration creates another. A
//! refusal is checked by what the client sees, by its event and, above all, by the absence of packets at the target.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod change;
mod check;
mod closed;
mod death;
mod flood;
mod forged;
mod guest;
mod hellos;
mod honest;
mod leftovers;
mod neighbours;
mod private;
mod rebinding;
mod resolvers;
mod spoofing;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use e2e::internet::{self, Internet, RESOLVER, Site};
use e2e::service::{Service, ServiceOptions};
use guest::Guest;
use serde_json::{Value, json};
use tokio::sync::Mutex;

const SANDBOXES: &str = "/v1/sandboxes";
/// The host of package files, to which the indexes point.
const FILES: &str = "files.web.example";

/// A host with a daemon, and the simulated internet around it.
struct World {
    // Dropped before the host.
    service: Service,
    internet: Internet,
}

impl World {
    async fn new(options: ServiceOptions) -> Self {
        internet::image::build().unwrap();
        let internet = Internet::new().unwrap();
        internet.enter().unwrap();
        internet.watch().unwrap();
        internet.web().unwrap();
        internet.site("files").unwrap();
        let options = options
            .image(internet::image::IMAGE, internet::image::SOURCE)
            .with("egress", "resolver", &format!("\"{RESOLVER}\""))
            .with("limits", "concurrent_executions", "20");
        let service = Service::start(&options).await.unwrap();
        Self { service, internet }
    }

    fn site(&self, name: &str) -> Site {
        self.internet.site(name).unwrap()
    }

    /// A sandbox whose policy lists these names.
    async fn strict(&self, names: &[&str]) -> Guest<'_> {
        Guest::new(self, json!({ "default": "deny", "allow": names })).await
    }

    /// A sandbox under default allow.
    async fn open(&self) -> Guest<'_> {
        Guest::new(self, json!({ "default": "allow" })).await
    }

    /// Whether no packet arrived for an address.
    fn saw_nothing_at(&self, address: impl Into<std::net::IpAddr>) {
        let seen = self.internet.seen().to(address);
        assert!(seen.is_empty(), "it arrived: {seen:?}");
    }
}

/// The host that most tests share. The last test that holds it removes it.
async fn world() -> Arc<World> {
    static SHARED: Mutex<Weak<World>> = Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(world) = shared.upgrade() {
        world.internet.enter().unwrap();
        return world;
    }
    let world = Arc::new(World::new(ServiceOptions::default()).await);
    *shared = Arc::downgrade(&world);
    world
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// Waits for a condition.
async fn until(what: &str, within: Duration, mut so: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !so().await {
        assert!(begin.elapsed() < within, "in vain waited until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
