//! The shared state of all handlers, built by `commands::serve`.

use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use image::Images;
use rules::{ConfigRules, ExecuteRules};
use store::Store;
use tokio_util::sync::CancellationToken;

use crate::idempotency::Idempotency;
use crate::in_flight::InFlight;
use crate::keyring::Keyring;
use crate::limiter::Limiter;
use crate::memory::RequestMemory;
use crate::metrics::Metrics;
use crate::origins::AllowedOrigins;
use crate::output::OutputMemory;
use crate::ports::Ports;
use crate::proxies::TrustedProxies;

/// The shared state of all handlers.
pub struct Service {
    pub engine: Engine,
    pub store: Arc<dyn Store>,
    pub images: Images,
    /// Whether a create may name any image of a registry, not only those of the catalogue.
    pub allow_any_image: bool,
    pub keyring: Keyring,
    pub limiter: Limiter,
    pub idempotency: Idempotency,
    /// Requests and streams of each account.
    pub in_flight: InFlight,
    pub ports: Ports,
    /// Memory for request bodies.
    pub request_memory: RequestMemory,
    /// Memory for output that clients have not read yet.
    pub output_memory: Arc<OutputMemory>,
    pub metrics: Metrics,
    /// Proxies whose forwarding headers count.
    pub trusted_proxies: TrustedProxies,
    /// Web pages that may call the API.
    pub allowed_origins: AllowedOrigins,
    pub config_rules: ConfigRules,
    pub execute_rules: ExecuteRules,
    /// The limit of each stream of a buffered response.
    pub max_output_bytes: usize,
    /// The MCP server; none if it is off.
    pub mcp: Option<Arc<mcp::HttpServer>>,
    /// How long a create waits for a pull.
    pub pull_timeout: Duration,
    /// Cancelled at shutdown; streams then end with an error event.
    pub stopping: CancellationToken,
}
