//! `DELETE /v1/templates/{id}`.

use admission::endpoint::{Json, Parameter, Tag, WRITE};
use admission::error::ApiError;
use api::{ErrorCode, TemplateDeleted};
use axum::http::StatusCode;
use service::error::of_builder;

use super::names;
use crate::endpoint::{Call, Endpoint};
use crate::routes::read::segment;

pub fn endpoint() -> Endpoint {
    Endpoint::delete("/v1/templates/{id}", WRITE)
        .describe(
            "deleteTemplate",
            Tag::Templates,
            "Delete a template",
            "Cancels its build if it is not over. Sandboxes that were created from the template are not affected. \
             Steps that no other template of the account has are deleted with it. A name must be that of one template only.",
        )
        .parameters([Parameter::TEMPLATE_ID])
        .returns::<TemplateDeleted>(StatusCode::OK, "The template is deleted.")
        .errors([
            (ErrorCode::TemplateNotFound, "The template does not exist or was deleted"),
            (ErrorCode::InvalidState, "Several templates have the name"),
        ])
        .handler(delete)
}

async fn delete(call: Call) -> Result<Json<TemplateDeleted>, ApiError> {
    let Call { service, caller, parts, .. } = call;
    let id = names::find_only(&service, &caller.account, &segment(&parts.uri, 3))?;
    let deleted_at = service.builder.delete(&caller.account, &id).await.map_err(of_builder)?.into();
    Json::ok(&TemplateDeleted { id, deleted_at })
}
