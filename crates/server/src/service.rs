//! What every request is served with. Handlers get it as their state; `commands::serve` puts it together.

use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use image::Images;
use rules::{ConfigRules, ExecuteRules};
use store::Store;
use tokio_util::sync::CancellationToken;

use crate::in_flight::InFlight;
use crate::keyring::Keyring;
use crate::limiter::Limiter;
use crate::memory::RequestMemory;
use crate::metrics::Metrics;
use crate::once::Once;
use crate::output::OutputMemory;
use crate::ports::Ports;
use crate::proxies::TrustedProxies;

/// The parts behind the endpoints.
pub struct Service {
    pub engine: Engine,
    pub store: Arc<dyn Store>,
    pub images: Images,
    /// A create may name any image of a registry, not only those of the catalogue.
    pub allow_any_image: bool,
    pub keyring: Keyring,
    pub limiter: Limiter,
    pub once: Once,
    /// Requests and streams of each account.
    pub in_flight: InFlight,
    pub ports: Ports,
    /// For the bodies of requests.
    pub request_memory: RequestMemory,
    /// For outputs that clients have not read yet.
    pub output_memory: Arc<OutputMemory>,
    pub metrics: Metrics,
    /// Believed when they say where a request came from; for the log.
    pub trusted_proxies: TrustedProxies,
    pub config_rules: ConfigRules,
    pub execute_rules: ExecuteRules,
    /// Kept of each stream of a buffered command.
    pub max_output_bytes: usize,
    /// How long a create waits for an image that is not here yet.
    pub pull_patience: Duration,
    /// Cancelled when the daemon stops: streams say so and end.
    pub stopping: CancellationToken,
}
