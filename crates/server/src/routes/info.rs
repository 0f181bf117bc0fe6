//! `GET /v1/info`: the version, the isolation backends, and the limits for the caller.

use api::{BackendView, InfoView, LimitsView};
use axum::http::StatusCode;
use rules::ConfigRules;

use crate::config::Limits;
use crate::endpoint::{Call, Endpoint, Json, READ, Tag};
use crate::error::ApiError;

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
        limits: service.limits.clone(),
    })
}

/// The limits as callers see them.
pub fn limits_of(limits: &Limits, rules: &ConfigRules) -> LimitsView {
    let per_minute = |limit: u32| (limit > 0).then_some(limit);
    LimitsView {
        read_per_minute: per_minute(limits.read_per_minute),
        write_per_minute: per_minute(limits.write_per_minute),
        create_per_minute: per_minute(limits.create_per_minute),
        execute_per_minute: per_minute(limits.execute_per_minute),
        concurrent_executions: limits.concurrent_executions,
        execution_queue: limits.execution_queue,
        max_output_bytes: limits.max_output_bytes as u64,
        cpu: rules.cpu_allowed.clone(),
        memory_mb: rules.memory_mb.into(),
        disk_mb: rules.disk_mb.into(),
        timeout_ms: rules.timeout_ms.into(),
        idle_timeout_ms: rules.idle_timeout_ms.into(),
    }
}
