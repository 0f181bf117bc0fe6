//! Tests of the network from sandboxes, with honest and hostile clients, on a simulated internet.
//!
//! Most tests share one host with one daemon; a test that stops the daemon or changes its configuration creates another. A
//! refusal is checked by what the client sees, by its event and, above all, by the absence of packets at the target.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod change;
mod check;
mod closed;
mod copies;
mod death;
mod flood;
mod forged;
mod guest;
mod hellos;
mod honest;
mod leftovers;
mod neighbours;
mod networks;
mod private;
mod rebinding;
mod resolvers;
mod spoofing;

use std::sync::{Arc, Weak};

use e2e::internet::{self, Internet, RESOLVER, Site};
use e2e::service::{SANDBOXES, Service, ServiceOptions, text};
use e2e::wait_until;
use guest::Guest;
use serde_json::json;
use tokio::sync::Mutex;

/// The host of package files, to which the indexes point.
const FILES: &str = "files.web.example";

/// A host with a daemon, and the simulated internet around it.
struct TestNet {
    // Dropped before the host.
    service: Service,
    internet: Internet,
}

impl TestNet {
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

    /// Asserts that no packet for an address arrived.
    fn assert_no_packets_to(&self, address: impl Into<std::net::IpAddr>) {
        let seen = self.internet.packets().to(address);
        assert!(seen.is_empty(), "packets arrived: {seen:?}");
    }
}

/// The host that most tests share. The last test that holds it removes it.
async fn shared_net() -> Arc<TestNet> {
    static SHARED: Mutex<Weak<TestNet>> = Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(net) = shared.upgrade() {
        net.internet.enter().unwrap();
        return net;
    }
    let net = Arc::new(TestNet::new(ServiceOptions::default()).await);
    *shared = Arc::downgrade(&net);
    net
}
