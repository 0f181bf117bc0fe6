//! The sandbox in the path of a request, by its id or by its name.
//!
//! A name is resolved once, after the key was checked and before anything is counted: it is replaced in the path by the id, so rate
//! limits, idempotency keys and handlers know ids only. A name of another account is unknown, like its ids. An id is parsed and not
//! looked up here.

use std::borrow::Cow;

use admission::keyring::Caller;
use api::{SandboxId, SandboxName};
use axum::extract::Request;
use axum::http::Uri;
use axum::http::uri::PathAndQuery;

use service::Service;

/// Where the paths of sandboxes are. Other resources have paths with ids of their own.
const PREFIX: &str = "/v1/sandboxes/";

/// The sandbox in a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedSandbox {
    /// The path has no id or name, or the account has no sandbox with the name.
    None,
    /// The path has the id.
    ById(SandboxId),
    /// The path has the name of this sandbox.
    ByName(SandboxId),
}

impl NamedSandbox {
    /// `text` is the decoded text in place of the id in the path, if any.
    pub fn find(service: &Service, caller: &Caller, path: &str, text: Option<&str>) -> Self {
        let Some(text) = text else { return Self::None };
        if let Ok(id) = text.parse() {
            return Self::ById(id);
        }
        if !path.starts_with(PREFIX) || text.parse::<SandboxName>().is_err() {
            return Self::None;
        }
        service.engine.named(&caller.account, text).map_or(Self::None, Self::ByName)
    }

    /// The sandbox of a request without a valid key, for the log. Names have a meaning only within an account.
    pub fn without_caller(text: Option<&str>) -> Self {
        text.and_then(|text| text.parse().ok()).map_or(Self::None, Self::ById)
    }

    pub fn id(&self) -> Option<&SandboxId> {
        match self {
            Self::None => None,
            Self::ById(id) | Self::ByName(id) => Some(id),
        }
    }

    /// Replaces a name in the path by the id.
    pub fn write_id(&self, request: &mut Request) {
        let Self::ByName(id) = self else { return };
        if let Some(uri) = with_id(request.uri(), id) {
            *request.uri_mut() = uri;
        }
    }
}

/// The same URI with an id in place of the name. `None` only if the result is no URI, which would leave an unknown id in the path.
fn with_id(uri: &Uri, id: &SandboxId) -> Option<Uri> {
    let rest = uri.path().strip_prefix(PREFIX)?;
    let rest = rest.find('/').map_or("", |end| &rest[end..]);
    let query: Cow<'_, str> = uri.query().map_or("".into(), |query| format!("?{query}").into());
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(format!("{PREFIX}{id}{rest}{query}")).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_path_is_replaced_by_the_id() {
        let id: SandboxId = "sb_aaaaaaaa".parse().unwrap();
        for (path, expected) in [
            ("/v1/sandboxes/web", "/v1/sandboxes/sb_aaaaaaaa"),
            ("/v1/sandboxes/web/", "/v1/sandboxes/sb_aaaaaaaa/"),
            ("/v1/sandboxes/w%65b/files?path=%2Fweb&x", "/v1/sandboxes/sb_aaaaaaaa/files?path=%2Fweb&x"),
            ("/v1/sandboxes/web/executions/web", "/v1/sandboxes/sb_aaaaaaaa/executions/web"),
            ("/v1/sandboxes/web?", "/v1/sandboxes/sb_aaaaaaaa?"),
            ("https://example.com/v1/sandboxes/web?a=b", "https://example.com/v1/sandboxes/sb_aaaaaaaa?a=b"),
        ] {
            assert_eq!(with_id(&path.parse().unwrap(), &id).unwrap().to_string(), expected);
        }
        assert_eq!(with_id(&"/v1/snapshots/web".parse().unwrap(), &id), None);
    }

    #[test]
    fn without_a_caller_only_ids_are_known() {
        let id: SandboxId = "sb_aaaaaaaa".parse().unwrap();
        assert_eq!(NamedSandbox::without_caller(Some("sb_aaaaaaaa")).id(), Some(&id));
        assert_eq!(NamedSandbox::without_caller(Some("web")), NamedSandbox::None);
        assert_eq!(NamedSandbox::without_caller(None).id(), None);
    }
}
