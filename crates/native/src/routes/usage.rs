//! `GET /v1/usage`: usage and quotas of the key's account.

use admission::endpoint::{Json, READ, Tag};
use admission::error::ApiError;
use api::{QuotaView, UsageView};
use axum::http::StatusCode;

use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/usage", READ)
        .describe(
            "getUsage",
            Tag::Service,
            "Get usage and quotas",
            "Returns the usage and the limit of each quota of the key's account; `allowed` is `null` if the \
             quota is unlimited. A request that exceeds a quota gets `429 QUOTA_EXCEEDED`; for stored \
             responses and events, the oldest are evicted instead.",
        )
        .returns::<UsageView>(StatusCode::OK, "Every quota of the account.")
        .handler(get)
}

async fn get(call: Call) -> Result<Json<UsageView>, ApiError> {
    let Call { service, caller, .. } = call;
    let account = &*caller.account;
    let (engine, quotas) = (&service.engine, service.engine.quotas().of(account));
    let held = engine.used_by(account);
    let stored = service.store.stored_bytes(account).await?;
    let snapshots = engine.snapshots_of(account);
    let templates = service.builder.list(account).len() as u64;
    let (connections, streams) = service.gate.in_flight.of(account);
    let quota = |used, allowed| QuotaView { used, allowed };
    Json::ok(&UsageView {
        account: account.to_owned(),
        sandboxes: quota(held.sandboxes, quotas.sandboxes),
        vcpus: quota(held.resources.cpu, quotas.vcpus),
        memory_mb: quota(held.resources.memory_mb, quotas.memory_mb),
        disk_mb: quota(held.disk_mb(), quotas.disk_mb),
        snapshots: quota(snapshots.count, quotas.snapshots),
        snapshot_bytes: quota(snapshots.bytes, quotas.snapshot_bytes),
        templates: quota(templates, quotas.templates),
        execution_log_bytes: quota(engine.execution_log_bytes(account), quotas.execution_log_bytes),
        idempotency_bytes: quota(stored.idempotency, quotas.stored.idempotency_bytes),
        event_bytes: quota(stored.events, quotas.stored.event_bytes),
        posted_event_bytes: quota(stored.posted_events, quotas.stored.posted_event_bytes),
        connections: quota(connections, quotas.connections),
        streams: quota(streams, quotas.streams),
    })
}
