//! Templates by `NAME`, `NAME:VERSION` or `NAME:TAG`, which requests accept in place of ids.

use admission::error::ApiError;
use api::TemplateId;

use service::Service;
use service::error::{SHOWN_IDS, ambiguous_name, no_template};

/// The template with an id, or the newest one with a name, whatever the state of its build is.
pub fn find(service: &Service, account: &str, text: &str) -> Result<TemplateId, ApiError> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let found = service.builder.all_named(account, text);
    found.first().map(|template| template.id.clone()).ok_or_else(|| no_template(text))
}

/// The template with an id, or the only one with a name: which of several is to be deleted must not be guessed.
pub fn find_only(service: &Service, account: &str, text: &str) -> Result<TemplateId, ApiError> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let found = service.builder.all_named(account, text);
    match &found[..] {
        [] => Err(no_template(text)),
        [template] => Ok(template.id.clone()),
        templates => {
            let ids = templates.iter().take(SHOWN_IDS as usize).map(|template| template.id.as_str());
            Err(ambiguous_name("templates", text, templates.len() as u64, &ids.collect::<Vec<_>>()))
        }
    }
}
