//! The shared state of all handlers, which the program builds.

use std::sync::Arc;
use std::time::Duration;

use admission::Gate;
use admission::endpoint::Door;
use admission::error::ApiError;
use api::LimitsView;
use builder::Builder;
use engine::Engine;
use image::Images;
use rules::{ConfigRules, ExecuteRules, IsolationPolicy, IsolationRules};
use store::Store;
use tokio_util::sync::CancellationToken;

use crate::idempotency::Idempotency;
use crate::image_access::ImageAccess;
use crate::origins::AllowedOrigins;
use crate::ports::Ports;

/// The shared state of all handlers.
pub struct Service {
    pub engine: Engine,
    pub store: Arc<dyn Store>,
    pub images: Images,
    pub builder: Builder,
    /// Which images of registries accounts may name, besides those of the catalogue.
    pub image_access: ImageAccess,
    /// Keys, limits and budgets of all doors.
    pub gate: Arc<Gate>,
    pub idempotency: Idempotency,
    pub ports: Ports,
    /// Web pages that may call the API.
    pub allowed_origins: AllowedOrigins,
    /// Without the isolation, which depends on the account; see [`Self::create_rules`].
    pub config_rules: ConfigRules,
    /// Which isolation sandboxes get.
    pub isolation: Arc<IsolationPolicy>,
    pub execute_rules: ExecuteRules,
    /// The limits that each key has, without its rate limits.
    pub limits: LimitsView,
    /// Whether sandboxes have a network besides their loopback interface.
    pub has_network: bool,
    /// The limit of each stream of a buffered response.
    pub max_output_bytes: usize,
    /// The MCP server; none if it is off.
    pub mcp: Option<Arc<mcp::HttpServer>>,
    /// How long a create waits for a pull.
    pub pull_timeout: Duration,
    /// Cancelled at shutdown; streams then end with an error event.
    pub stopping: CancellationToken,
}

/// For the native API, whose handlers share nothing else.
impl Door for Service {
    type Error = ApiError;
}

impl Service {
    /// The rules for creates of an account.
    pub fn create_rules(&self, account: &str) -> ConfigRules {
        let isolation = IsolationRules::new(&self.isolation, account);
        ConfigRules { isolation, ..self.config_rules.clone() }
    }
}
