//! `GET /v1/sandboxes/{id}/metrics`: what a sandbox has used lately. Reads memory only.

use admission::endpoint::parameter::inline;
use admission::endpoint::{INSPECT, Json, Parameter, Tag};
use admission::error::ApiError;
use api::{ErrorCode, Moment, ResourceMetrics, ResourceSample};
use axum::http::StatusCode;
use service::error::OperationKind;

use super::requested_sandbox::RequestedSandbox;
use crate::endpoint::{Call, Endpoint};

const MB: u64 = 1 << 20;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/sandboxes/{id}/metrics", INSPECT)
        .describe(
            "getMetrics",
            Tag::Sandboxes,
            "Get the resource usage of a sandbox",
            "Returns samples of CPU, memory and disk, oldest first. A running sandbox is sampled about every \
             5 s, a paused one is not. The last 720 samples are kept; a restart of the service loses them.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::query("start", "Only samples at or after this time.", inline::<Moment>),
            Parameter::query("end", "Only samples at or before this time.", inline::<Moment>),
        ])
        .returns::<ResourceMetrics>(StatusCode::OK, "The samples.")
        .errors([
            (ErrorCode::InvalidRequest, "A parameter has an invalid value"),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
        ])
        .handler(get)
}

async fn get(call: Call) -> Result<Json<ResourceMetrics>, ApiError> {
    let sandbox = RequestedSandbox::of(&call, OperationKind::Other)?;
    let query = reader::samples(call.parts.uri.query())?;
    let samples = sandbox.handle().resource_samples(query).await;
    let (status, samples) = samples.map_err(|error| sandbox.fault(error))?;
    let resources = status.record.config.resources;
    let view = |sample: engine::ResourceSample| ResourceSample {
        timestamp: sample.at.into(),
        cpu_count: resources.cpu,
        cpu_used_percent: sample.cpu_percent / f64::from(resources.cpu.max(1)),
        memory_used_bytes: sample.memory_used,
        memory_cache_bytes: sample.memory_cache,
        memory_total_bytes: u64::from(resources.memory_mb) * MB,
        disk_used_bytes: sample.disk_used,
        disk_total_bytes: u64::from(resources.disk_mb) * MB,
    };
    Json::ok(&ResourceMetrics { data: samples.into_iter().map(view).collect() })
}
