//! `POST /v1/templates/contexts`: uploads a build context. What was received is removed if the client disconnects.

use admission::endpoint::{Json, RawBody, Tag, WRITE};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{BuildContext, ErrorCode};
use axum::body::Body;
use axum::http::StatusCode;
use builder::{Builder, StoredContext};
use http_body_util::BodyExt;
use service::error::of_builder;

use crate::endpoint::{Call, Endpoint};
use crate::routes::read::broken_body;

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/templates/contexts", WRITE)
        .describe(
            "uploadBuildContext",
            Tag::Templates,
            "Upload a build context",
            "Stores a tar archive for an hour. Builds that are requested meanwhile can name its id as their \
             `context`. The service has the ten newest contexts of an account.",
        )
        .raw_body("application/x-tar", true, "The archive, which may be compressed with gzip.")
        .returns::<BuildContext>(StatusCode::CREATED, "The context is stored.")
        .errors([(ErrorCode::InvalidConfig, "The body is not a tar archive, or exceeds a limit of contexts")])
        .handler(upload)
}

async fn upload(call: Call<Caller, RawBody>) -> Result<Json<BuildContext>, ApiError> {
    let Call { service, caller, body: RawBody(body), .. } = call;
    let stored = receive(&service.builder, &caller.account, body).await?;
    let size_bytes = stored.size_bytes;
    let (id, expires_at) = service.builder.keep_context(&caller.account, stored);
    Json::created(&BuildContext { id, size_bytes, expires_at: expires_at.into() })
}

async fn receive(builder: &Builder, account: &str, mut body: Body) -> Result<StoredContext, ApiError> {
    let mut incoming = builder.incoming(account).map_err(of_builder)?;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|fault| broken_body(&fault))?;
        if let Ok(data) = frame.into_data() {
            incoming = incoming.write(data).await.map_err(of_builder)?;
        }
    }
    incoming.finish().await.map_err(of_builder)
}
