//! `GET /v1/templates/{id}`.

use admission::endpoint::{Json, Parameter, READ, Tag};
use admission::error::ApiError;
use api::{ErrorCode, TemplateView};
use axum::http::StatusCode;
use service::error::of_builder;

use super::{names, view};
use crate::endpoint::{Call, Endpoint};
use crate::routes::read::segment;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/templates/{id}", READ)
        .describe("getTemplate", Tag::Templates, "Get a template", "Also shows the progress of its build.")
        .parameters([Parameter::TEMPLATE_ID])
        .returns::<TemplateView>(StatusCode::OK, "The template.")
        .errors([(ErrorCode::TemplateNotFound, "The template does not exist or was deleted")])
        .handler(get)
}

async fn get(call: Call) -> Result<Json<TemplateView>, ApiError> {
    let Call { service, caller, parts, .. } = call;
    let id = names::find(&service, &caller.account, &segment(&parts.uri, 3))?;
    let template = service.builder.find(&caller.account, &id).map_err(of_builder)?;
    Json::ok(&view::template(&template))
}
