//! `POST /v1/templates/{id}/cancel`.

use admission::endpoint::{Json, Parameter, Tag, WRITE};
use admission::error::ApiError;
use api::{ErrorCode, TemplateView};
use axum::http::StatusCode;
use service::error::of_builder;

use super::{names, view};
use crate::endpoint::{Call, Endpoint};
use crate::routes::read::segment;

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/templates/{id}/cancel", WRITE)
        .describe(
            "cancelTemplate",
            Tag::Templates,
            "Cancel the build of a template",
            "Returns when nothing of the build runs any more. A build that is over stays as it is.",
        )
        .parameters([Parameter::TEMPLATE_ID])
        .returns::<TemplateView>(StatusCode::OK, "The build is over.")
        .errors([(ErrorCode::TemplateNotFound, "The template does not exist or was deleted")])
        .handler(cancel)
}

async fn cancel(call: Call) -> Result<Json<TemplateView>, ApiError> {
    let Call { service, caller, parts, .. } = call;
    let id = names::find(&service, &caller.account, &segment(&parts.uri, 3))?;
    let template = service.builder.cancel(&caller.account, &id).await.map_err(of_builder)?;
    Json::ok(&view::template(&template))
}
