//! `GET /v1/info`: the version, the isolation backends, and the limits for the caller.

use admission::endpoint::{Json, READ, Tag};
use admission::error::ApiError;
use api::{BackendView, InfoView, LimitsView};
use axum::http::StatusCode;
use rules::{ConfigRules, Rates};

use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/info", READ)
        .describe(
            "getInfo",
            Tag::Service,
            "Get version, isolation backends and limits",
            "Returns the version of the service, its isolation backends with their capabilities, and the limits for the key. The \
             quotas of the account are in `GET /v1/usage`.",
        )
        .returns::<InfoView>(StatusCode::OK, "The service as it is for this key.")
        .handler(get)
}

async fn get(call: Call) -> Result<Json<InfoView>, ApiError> {
    let Call { service, caller, .. } = call;
    let isolation = service.create_rules(&caller.account).isolation;
    let backend = |name| BackendView {
        name,
        network: service.has_network,
        memory_snapshots: service.engine.can_store_processes(name),
        hibernation: service.engine.can_store_processes(name),
    };
    // An image that has no choice of its own.
    const ANY_IMAGE: &str = "";
    Json::ok(&InfoView {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        backends: isolation.available().iter().copied().map(backend).collect(),
        default_isolation: isolation.automatic(ANY_IMAGE),
        minimum_isolation: isolation.minimum(ANY_IMAGE),
        limits: with_rates(service.limits.clone(), &service.gate.limiter.rates_of(&caller)),
    })
}

/// The limits that a key has per minute: those of its account, or its own.
fn with_rates(limits: LimitsView, rates: &Rates) -> LimitsView {
    let per_minute = |limit: u32| (limit > 0).then_some(limit);
    LimitsView {
        read_per_minute: per_minute(rates.read),
        write_per_minute: per_minute(rates.write),
        create_per_minute: per_minute(rates.create),
        execute_per_minute: per_minute(rates.execute),
        operate_per_minute: per_minute(rates.operate),
        ..limits
    }
}

/// The limits on commands that the operator has set for all callers.
#[derive(Debug, Clone, Copy)]
pub struct FixedLimits {
    pub concurrent_executions: u32,
    pub detached_executions: u32,
    pub execution_queue: u32,
    pub max_output_bytes: usize,
}

/// The limits that all callers have. Those per minute are added for each.
pub fn limits_of(limits: FixedLimits, rules: &ConfigRules) -> LimitsView {
    LimitsView {
        read_per_minute: None,
        write_per_minute: None,
        create_per_minute: None,
        execute_per_minute: None,
        operate_per_minute: None,
        concurrent_executions: limits.concurrent_executions,
        detached_executions: limits.detached_executions,
        execution_queue: limits.execution_queue,
        max_output_bytes: limits.max_output_bytes as u64,
        cpu: rules.cpu_allowed.clone(),
        memory_mb: rules.memory_mb.into(),
        disk_mb: rules.disk_mb.into(),
        timeout_ms: rules.timeout_ms.into(),
        idle_timeout_ms: rules.idle_timeout_ms.into(),
    }
}
