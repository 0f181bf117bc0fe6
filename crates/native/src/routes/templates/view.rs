//! Converts templates to types of the API.

use api::TemplateView;
use builder::Template;

pub fn template(template: &Template) -> TemplateView {
    let content = &template.content;
    TemplateView {
        id: template.id.clone(),
        name: template.name.clone(),
        version: template.version,
        state: template.state,
        base: content.base.clone(),
        isolation: content.config.isolation,
        steps: content.steps,
        size_bytes: content.size_bytes,
        memory: content.memory,
        start_command: content.start.as_ref().map(|start| start.command.clone()),
        error: content.error.clone(),
        metadata: content.metadata.clone(),
        created_at: template.created_at.into(),
        finished_at: template.finished_at.map(Into::into),
    }
}
