//! `list_templates` and `delete_template`, and what results have of a template.

use rmcp::model::{CallToolResult, JsonObject, Tool};
use sandboxd_client::{TemplateError, TemplateId, TemplateState, TemplateSteps, TemplateView, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schema::{self, Effect};
use super::{Call, json_result, page, parse, parse_id};
use crate::failure::Failure;

pub const LONGEST_NAME: usize = 128;

pub fn list_tool() -> Tool {
    let tool = schema::tool(
        "list_templates",
        "List templates",
        "List the templates and builds of the account, newest first. Those in the state ready can be the image of create_sandbox. If nextOffset is in the result, there are more: \
         call again with it as offset.",
        Effect::Reads,
        schema::input(
            json!({
                "name": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME, "description": "Only versions of this name."},
                "state": {"type": "string", "enum": TemplateState::ALL.map(TemplateState::name), "description": "Only templates in this state."},
                "offset": page::offset("Templates"),
                "limit": page::limit("templates")
            }),
            &[],
        ),
        page::output("templates", &schema::output(properties(), &REQUIRED)),
    );
    schema::idempotent(schema::closed_world(tool))
}

pub fn delete_tool() -> Tool {
    let tool = schema::tool(
        "delete_template",
        "Delete a template",
        "Delete one version of a template, or cancel its build and delete it. This cannot be undone. Sandboxes that were created from it, and templates built upon it, continue to work.",
        Effect::Destroys,
        schema::input(json!({"templateId": template_id()}), &["templateId"]),
        schema::output(json!({"templateId": schema::text("The deleted template.")}), &["templateId"]),
    );
    schema::idempotent(schema::closed_world(tool))
}

pub fn template_id() -> Value {
    schema::id(TemplateId::PREFIX, "The template.")
}

pub const REQUIRED: [&str; 7] = ["templateId", "name", "version", "state", "base", "steps", "createdAt"];

pub fn properties() -> Value {
    json!({
        "templateId": schema::text("The id of the template, which can be the image of create_sandbox."),
        "name": schema::text("The name. As an image it is the newest version that is ready."),
        "version": {"type": "integer", "description": "Counts the builds of the name."},
        "state": {"type": "string", "enum": TemplateState::ALL.map(TemplateState::name)},
        "base": schema::text("What the FROM of the Dockerfile names."),
        "steps": {"type": "object", "properties": {
            "total": {"type": "integer"}, "done": {"type": "integer"}, "cached": {"type": "integer"}
        }, "description": "Steps of the build; done includes those from the cache."},
        "sizeBytes": {"type": "integer", "description": "Disk space of its steps."},
        "error": {"type": "object", "properties": {
            "message": schema::text("Why the build failed."),
            "line": {"type": "integer", "description": "The line of the Dockerfile."}
        }, "required": ["message"]},
        "createdAt": schema::text("When the build was requested.")
    })
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    pub template_id: String,
    pub name: String,
    pub version: u32,
    pub state: TemplateState,
    base: String,
    pub steps: TemplateSteps,
    size_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<TemplateError>,
    created_at: Timestamp,
}

impl From<TemplateView> for Template {
    fn from(view: TemplateView) -> Self {
        let TemplateView { id, name, version, state, base, steps, size_bytes, error, created_at, .. } = view;
        Self { template_id: id.to_string(), name, version, state, base, steps, size_bytes, error, created_at }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ListArguments {
    name: Option<String>,
    state: Option<TemplateState>,
    #[serde(default)]
    offset: u64,
    limit: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TemplatesListed {
    templates: Vec<Template>,
    total: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
}

pub async fn list(call: &Call, arguments: JsonObject) -> Result<CallToolResult, Failure> {
    let ListArguments { name, state, offset, limit } = parse(arguments)?;
    let size = page::size(limit)?;
    let mut query = call.client.templates().page_size(size);
    if let Some(name) = name {
        query = query.name(name);
    }
    if let Some(state) = state {
        query = query.state(state);
    }
    let found = query.page(offset).await?;
    let next_offset = page::next_offset(&found.pagination, offset, found.data.len());
    let listed = TemplatesListed {
        templates: found.data.into_iter().map(Template::from).collect(),
        total: found.pagination.total,
        next_offset,
    };
    json_result(None, &listed)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeleteArguments {
    template_id: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TemplateDeleted {
    template_id: String,
}

pub async fn delete(call: &Call, arguments: JsonObject) -> Result<CallToolResult, Failure> {
    let DeleteArguments { template_id } = parse(arguments)?;
    let id: TemplateId = parse_id("templateId", &template_id)?;
    call.client.delete_template(id.as_str()).await?;
    json_result(None, &TemplateDeleted { template_id })
}
