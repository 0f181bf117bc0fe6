//! Templates by `NAME`, `NAME:VERSION` or `NAME:TAG`, which requests accept in place of ids.

use api::{ErrorCode, TemplateId};

use crate::error::{ApiError, no_template};
use crate::service::Service;

/// The most ids that a message lists.
const SHOWN_IDS: usize = 10;

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
            let ids: Vec<&str> =
                templates.iter().take(SHOWN_IDS).map(|template| template.id.as_str()).collect();
            let message = format!(
                "{} templates have the name {}; allowed: an id, such as {}",
                templates.len(),
                rules::quoted(text),
                ids.join(", ")
            );
            Err(ApiError::new(ErrorCode::InvalidState, message).with_detail("field", "id"))
        }
    }
}
