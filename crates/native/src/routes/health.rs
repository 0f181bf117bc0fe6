//! `GET /v1/health`: the status and version of the service. Needs no key and counts against no limit.

use admission::endpoint::{Json, Open, Tag};
use admission::error::ApiError;
use api::{Health, Timestamp};
use axum::http::StatusCode;

use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/health", Open)
        .describe("health", Tag::Service, "Check the service", "Needs no API key.")
        .returns::<Health>(StatusCode::OK, "The service responds.")
        .handler(health)
}

async fn health(_: Call<()>) -> Result<Json<Health>, ApiError> {
    Json::ok(&Health::ok(Timestamp(base::unix_ms())))
}
