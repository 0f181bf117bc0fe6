//! `manage_templates`, and what results have of a template.

mod build;
mod build_log;

use base::SetSome;
use sandboxd_client::{
    TemplateError, TemplateId, TemplateState, TemplateSteps, TemplateView, Templates, Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::build::BuildRequest;
use self::build_log::{Built, ReadLog};
use super::page::{self, Limit, Offset};
use super::reply::ToolReply;
use super::schema::{self, Effect};
use super::{Declared, ToolCall, parse_id};
use crate::failure::ToolFailure;

/// The most characters of the name of a template.
pub const LONGEST_NAME: usize = 128;
/// The pattern of names of templates.
pub const NAME_PATTERN: &str = "^[a-z0-9][a-z0-9._/-]*$";

/// Build an image from a Dockerfile, so that new sandboxes begin with programs and files in place; follow a build; list the templates of
/// the account; or delete one. When the state of a template is ready, pass its name as image to create_sandbox.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum ManageTemplates {
    /// Build a template. Waits for the build up to waitSeconds; a longer build goes on, and read_log follows it. Building a name again
    /// makes a new version. Finished steps are cached. There are no local files: COPY only works with here-documents, so create files
    /// with them or with RUN, for example by git clone.
    Build(Box<BuildRequest>),
    /// Get the state of a template's build and the end of its log. If the build goes on, the call returns when it is over or after
    /// waitSeconds.
    ReadLog(ReadLog),
    /// List the templates and builds of the account, newest first. Those in the state ready can be the image of create_sandbox. If
    /// nextOffset is in the result, there are more: call again with it as offset.
    List(ListTemplates),
    /// Delete one version of a template, or cancel its build and delete it. This cannot be undone. Sandboxes that were created from it,
    /// and templates built upon it, continue to work.
    Delete(DeleteTemplate),
}

/// The result of an action.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum TemplatesManaged {
    Built(Box<Built>),
    Listed(TemplatesListed),
    Deleted(TemplateDeleted),
}

impl Declared for ManageTemplates {
    const NAME: &'static str = "manage_templates";
    const TITLE: &'static str = "Manage templates";
    const EFFECT: Effect = Effect::Runs;
    type Output = TemplatesManaged;

    async fn call(self, call: &ToolCall) -> Result<ToolReply<TemplatesManaged>, ToolFailure> {
        let built = |built: Built| TemplatesManaged::Built(Box::new(built));
        Ok(match self {
            Self::Build(arguments) => build::build(call, *arguments).await?.map(built),
            Self::ReadLog(arguments) => build_log::read(call, arguments).await?.map(built),
            Self::List(arguments) => list(call, arguments).await?.map(TemplatesManaged::Listed),
            Self::Delete(arguments) => delete(call, arguments).await?.map(TemplatesManaged::Deleted),
        })
    }
}

/// A template, as results have it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListedTemplate {
    /// The id of the template, which can be the image of create_sandbox.
    pub template_id: String,
    /// The name. As an image it is the newest version that is ready.
    pub name: String,
    /// Counts the builds of the name.
    pub version: u32,
    #[schemars(schema_with = "schema::template_state")]
    pub state: TemplateState,
    /// What the FROM of the Dockerfile names.
    base: String,
    /// Steps of the build; done includes those from the cache.
    pub steps: Steps,
    /// Disk space of its steps.
    size_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<BuildFault>,
    /// When the build was requested.
    #[schemars(with = "String")]
    created_at: Timestamp,
}

/// The number of steps of a build.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Steps {
    pub total: u32,
    pub done: u32,
    cached: u32,
}

/// Why the build failed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BuildFault {
    /// What went wrong.
    pub message: String,
    /// The line of the Dockerfile.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

impl From<TemplateView> for ListedTemplate {
    fn from(view: TemplateView) -> Self {
        let TemplateView { id, name, version, state, base, steps, size_bytes, error, created_at, .. } = view;
        let template_id = id.to_string();
        let TemplateSteps { total, done, cached } = steps;
        let steps = Steps { total, done, cached };
        let error = error.map(|TemplateError { message, line }| BuildFault { message, line });
        Self { template_id, name, version, state, base, steps, size_bytes, error, created_at }
    }
}

/// Which templates to list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListTemplates {
    /// Only versions of this name.
    #[schemars(length(max = LONGEST_NAME), regex(pattern = NAME_PATTERN))]
    name: Option<String>,
    /// Only templates in this state.
    #[serde(default)]
    #[schemars(schema_with = "schema::template_state")]
    state: Option<TemplateState>,
    #[serde(default)]
    offset: Offset,
    limit: Option<Limit>,
}

/// A page of templates.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplatesListed {
    templates: Vec<ListedTemplate>,
    /// Number of items that match.
    total: u64,
    /// If there are more: the offset of the next call.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
}

async fn list(call: &ToolCall, arguments: ListTemplates) -> Result<ToolReply<TemplatesListed>, ToolFailure> {
    let ListTemplates { name, state, offset, limit } = arguments;
    let size = page::size(limit)?;
    let mut query = call.client.templates().page_size(size);
    query = query.set_some(name, Templates::name).set_some(state, Templates::state);
    let found = query.page(offset.0).await?;
    let next_offset = page::next_offset(&found.pagination, offset, found.data.len());
    let listed = TemplatesListed {
        templates: found.data.into_iter().map(ListedTemplate::from).collect(),
        total: found.pagination.total,
        next_offset,
    };
    Ok(ToolReply::json(None, listed))
}

/// The template to delete.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteTemplate {
    /// The template.
    #[schemars(length(max = 64), regex(pattern = schema::id_pattern(TemplateId::PREFIX)))]
    template_id: String,
}

/// A template that is gone.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateDeleted {
    /// The deleted template.
    template_id: String,
}

async fn delete(
    call: &ToolCall,
    arguments: DeleteTemplate,
) -> Result<ToolReply<TemplateDeleted>, ToolFailure> {
    let DeleteTemplate { template_id } = arguments;
    let id: TemplateId = parse_id("templateId", &template_id)?;
    call.client.delete_template(id.as_str()).await?;
    Ok(ToolReply::json(None, TemplateDeleted { template_id }))
}
