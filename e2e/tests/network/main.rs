//! The network of sandboxes, tried from inside by honest clients and by others, on an internet of our own.
//!
//! Most tests share one machine with one daemon; who stops the daemon or changes its configuration makes another. A refusal
//! is what the client sees, the event that says why, and above all that nothing arrived where it was to go.
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
/// Host of the files that package indexes point to.
const FILES: &str = "files.web.example";

/// A machine with a daemon, and the internet around it.
struct World {
    // Ends before its machine.
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

    /// A sandbox that reaches these names and no others.
    async fn strict(&self, names: &[&str]) -> Guest<'_> {
        Guest::new(self, json!({ "default": "deny", "allow": names })).await
    }

    /// A sandbox that reaches everything public.
    async fn open(&self) -> Guest<'_> {
        Guest::new(self, json!({ "default": "allow" })).await
    }

    /// Whether nothing came for an address.
    fn saw_nothing_at(&self, address: impl Into<std::net::IpAddr>) {
        let seen = self.internet.seen().to(address);
        assert!(seen.is_empty(), "it arrived: {seen:?}");
    }
}

/// The machine that tests without wishes share. The last one that holds it takes it down.
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

/// Waits for something that is to become so.
async fn until(what: &str, within: Duration, mut so: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !so().await {
        assert!(begin.elapsed() < within, "in vain waited until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
