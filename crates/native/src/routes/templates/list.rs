//! `GET /v1/templates`: a page of an account's templates.

use admission::endpoint::parameter::{inline, text};
use admission::endpoint::{Json, Parameter, READ, Tag};
use admission::error::ApiError;
use api::{ErrorCode, Pagination, TemplateList, TemplateState};
use axum::http::StatusCode;
use builder::Template;
use rules::TemplateQuery;

use super::view;
use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/templates", READ)
        .describe(
            "listTemplates",
            Tag::Templates,
            "List templates",
            "Lists templates and builds, newest first. Unknown parameters are ignored; a repeated one is an error.",
        )
        .parameters([
            Parameter::query("name", "Only templates with this name.", text).example("web"),
            Parameter::query("state", "Only templates in this state.", inline::<TemplateState>),
            Parameter::LIMIT,
            Parameter::OFFSET,
            Parameter::query(
                "metadata.userId",
                "Only templates with this value for the metadata key `userId`. `metadata.<key>` works \
                 for any key; up to 20 keys can be combined.",
                text,
            ),
        ])
        .returns::<TemplateList>(StatusCode::OK, "A page.")
        .errors([(ErrorCode::InvalidRequest, "A parameter has an invalid value")])
        .handler(list)
}

async fn list(call: Call) -> Result<Json<TemplateList>, ApiError> {
    let Call { service, caller, parts, .. } = call;
    let query = reader::templates(parts.uri.query())?;
    let mut matching = service.builder.list(&caller.account);
    matching.retain(|template| matches(template, &query));
    let total = matching.len() as u64;
    let skipped = usize::try_from(query.offset).unwrap_or(usize::MAX);
    let page = matching.iter().skip(skipped).take(query.limit as usize);
    let data = page.map(|template| view::template(template)).collect();
    Json::ok(&TemplateList { data, pagination: Pagination::new(total, query.limit, query.offset) })
}

fn matches(template: &Template, query: &TemplateQuery) -> bool {
    query.name.as_ref().is_none_or(|name| template.name == *name)
        && query.state.is_none_or(|state| template.state == state)
        && query.metadata.iter().all(|(key, value)| template.content.metadata.get(key) == Some(value))
}
