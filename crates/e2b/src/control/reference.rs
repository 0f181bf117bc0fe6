//! Which template of an account a text of a client names. Pure.
//!
//! ```text
//! NAME                 as NAME:default; if no ready version has that tag, the newest ready version
//! NAME:TAG             the newest ready version with the tag; `default` is that of versions without one
//! NAME:BUILD_ID        the version that a build has made
//! NAME:NUMBER          the version with the number, as in the native API
//! TEMPLATE_ID          one version
//! TEMPLATE_ID:…        as NAME:…, with the name of that version
//! ```

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::sync::Arc;

use api::{TemplateId, TemplateState};
use builder::{DEFAULT_TAG, Template};
use sha2::{Digest, Sha256};

use crate::error::E2bError;

/// What a text names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// A ready version.
    Version(Arc<Template>),
    /// The template exists, but no ready version of it has the tag.
    NoTag(MissingTag),
    /// No template of the account.
    Unknown,
}

/// A tag that no ready version of a template has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingTag {
    /// As the client named it.
    pub template: String,
    pub tag: String,
}

impl MissingTag {
    pub fn new(template: &str, tag: &str) -> Self {
        Self { template: template.to_owned(), tag: tag.to_owned() }
    }

    /// Clients parse the text.
    pub fn into_error(self) -> E2bError {
        let Self { template, tag } = self;
        // The template exists, so its name has neither quotes nor control characters.
        E2bError::not_found(format!("tag {} does not exist for template '{template}'", rules::quoted(&tag)))
    }
}

/// A UUID that belongs to a version: each has one build.
pub fn build_id(id: &TemplateId) -> String {
    let hash = Sha256::digest(id.as_str().as_bytes());
    let mut text = String::with_capacity(36);
    for (at, byte) in hash.iter().take(16).enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A text without its tag, and the tag.
pub fn split(text: &str) -> (&str, Option<&str>) {
    text.rsplit_once(':').map_or((text, None), |(template, tag)| (template, Some(tag)))
}

/// What a text names among the templates of an account.
pub fn resolve(own: &[Arc<Template>], text: &str) -> Reference {
    let (template, tag) = split(text);
    let mut versions = versions(own, template);
    if versions.is_empty() {
        return Reference::Unknown;
    }
    versions.retain(|version| version.state == TemplateState::Ready);
    let found = match tag {
        Some(tag) => with_tag(&versions, tag),
        None if template.starts_with(TemplateId::PREFIX) => by_id(&versions, template),
        None => with_tag(&versions, DEFAULT_TAG).or(versions.first()),
    };
    match found {
        Some(version) => Reference::Version(Arc::clone(version)),
        None => Reference::NoTag(MissingTag::new(template, tag.unwrap_or(DEFAULT_TAG))),
    }
}

/// All versions of the template with a name, or with the name of the version with an id; the newest first.
pub fn versions(own: &[Arc<Template>], template: &str) -> Vec<Arc<Template>> {
    let name = by_id(own, template).map_or(template, |version| version.name.as_str());
    let mut versions: Vec<_> = own.iter().filter(|version| version.name == name).cloned().collect();
    versions.sort_by_key(|version| Reverse(version.version));
    versions
}

/// The version that a build has made, or is making.
pub fn of_build(own: &[Arc<Template>], template: &TemplateId, build: &str) -> Option<Arc<Template>> {
    let mut versions = versions(own, template.as_str()).into_iter();
    versions.find(|version| build_id(&version.id).eq_ignore_ascii_case(build))
}

/// The tags of a template, each with the newest version that has it.
pub fn tags(own: &[Arc<Template>], template: &str) -> Vec<(String, Arc<Template>)> {
    let mut found: Vec<(String, Arc<Template>)> = Vec::new();
    for version in versions(own, template) {
        for tag in &version.content.tags {
            if found.iter().all(|(known, _)| known != tag) {
                found.push((tag.clone(), Arc::clone(&version)));
            }
        }
    }
    found
}

fn by_id<'a>(versions: &'a [Arc<Template>], id: &str) -> Option<&'a Arc<Template>> {
    versions.iter().find(|version| version.id.as_str() == id)
}

/// The first of some versions that a tag or another text behind the colon names.
fn with_tag<'a>(versions: &'a [Arc<Template>], tag: &str) -> Option<&'a Arc<Template>> {
    let first = |fits: &dyn Fn(&Template) -> bool| versions.iter().find(|version| fits(version));
    // Versions of earlier releases have no tag `default`.
    let is_untagged = |version: &Template| version.content.tags.is_empty() && tag == DEFAULT_TAG;
    first(&|version| build_id(&version.id).eq_ignore_ascii_case(tag))
        .or_else(|| first(&|version| version.content.tags.iter().any(|own| own.eq_ignore_ascii_case(tag))))
        .or_else(|| first(&is_untagged))
        .or_else(|| first(&|version| version.version.to_string() == tag))
}

#[cfg(test)]
pub mod tests {
    use api::NetworkPolicy;
    use rules::TimeMs;
    use serde_json::json;

    use super::*;

    /// A version of a template of the account `one`. The number of milliseconds at which it was created is its number.
    pub fn version(name: &str, number: u32, state: TemplateState, tags: &[&str]) -> Arc<Template> {
        let config = json!({
            "image": name, "resources": { "cpu": 2, "memoryMb": 1024, "diskMb": 2048 }, "env": {}, "workdir": "/",
            "timeoutMs": 1, "idleTimeoutMs": 0, "metadata": {}, "network": NetworkPolicy::default(),
            "defaultUser": true,
        });
        let content = json!({
            "dockerfile": "", "args": {}, "start": null, "config": config, "no_cache": false, "metadata": {},
            "has_context": false, "base": "", "tags": tags,
        });
        Arc::new(Template {
            id: id(name, number),
            account: "one".to_owned(),
            name: name.to_owned(),
            version: number,
            state,
            created_at: TimeMs(number.into()),
            finished_at: state.is_final().then_some(TimeMs(1000)),
            snapshots: Vec::new(),
            content: serde_json::from_value(content).unwrap(),
        })
    }

    pub fn id(name: &str, number: u32) -> TemplateId {
        format!("tpl_{name}00000000{number}").parse().unwrap()
    }

    fn ready(name: &str, number: u32, tags: &[&str]) -> Arc<Template> {
        version(name, number, TemplateState::Ready, tags)
    }

    /// The version that a text names, or the text of the error.
    fn named(own: &[Arc<Template>], text: &str) -> Result<u32, String> {
        match resolve(own, text) {
            Reference::Version(version) => Ok(version.version),
            Reference::NoTag(missing) => Err(missing.into_error().message),
            Reference::Unknown => Err("unknown".to_owned()),
        }
    }

    #[test]
    fn each_form_of_a_name_is_known() {
        let own = [
            version("web", 5, TemplateState::Failed, &["default", "next"]),
            version("web", 4, TemplateState::Building, &["default"]),
            ready("web", 3, &["dev"]),
            ready("web", 2, &["default", "v1"]),
            ready("web", 1, &["default"]),
            ready("other", 9, &["dev"]),
        ];
        let build = |number| build_id(&id("web", number));
        for (text, number) in [
            ("web", 2),
            ("web:default", 2),
            ("web:dev", 3),
            ("web:V1", 2),
            ("web:1", 1),
            (format!("web:{}", build(3)).as_str(), 3),
            (format!("web:{}", build(1).to_uppercase()).as_str(), 1),
            (id("web", 1).as_str(), 1),
            (format!("{}:dev", id("web", 1)).as_str(), 3),
            (format!("{}:default", id("web", 4)).as_str(), 2),
            // Without a version for everybody, the newest one.
            ("other", 9),
        ] {
            assert_eq!(named(&own, text), Ok(number), "{text}");
        }
        let missing =
            |tag: &str, template: &str| Err(format!("tag '{tag}' does not exist for template '{template}'"));
        let (building, failed) = (build(4), id("web", 5));
        for (text, tag, template) in [
            ("web:v2", "v2", "web"),
            ("web:next", "next", "web"),
            ("other:default", "default", "other"),
            (format!("web:{building}").as_str(), building.as_str(), "web"),
            (failed.as_str(), "default", failed.as_str()),
        ] {
            assert_eq!(named(&own, text), missing(tag, template), "{text}");
        }
        for text in ["", ":", "nothing", "nothing:default", "tpl_nothing00", "web:dev:dev"] {
            assert_eq!(named(&own, text), Err("unknown".to_owned()), "{text}");
        }
        assert_eq!(named(&[own[0].clone()], "web"), missing("default", "web"));
    }

    #[test]
    fn versions_of_earlier_releases_are_the_default_ones() {
        let own = [ready("web", 3, &["dev"]), ready("web", 2, &[]), ready("web", 1, &[])];
        assert_eq!((named(&own, "web"), named(&own, "web:default")), (Ok(2), Ok(2)));
        assert!(named(&own, "web:latest").is_err());
    }

    #[test]
    fn a_build_is_found_by_any_id_of_its_template() {
        let own =
            [ready("web", 2, &[]), version("web", 1, TemplateState::Failed, &[]), ready("other", 3, &[])];
        let found = |template: TemplateId, build: &TemplateId| {
            of_build(&own, &template, &build_id(build)).map(|version| version.version)
        };
        assert_eq!(found(id("web", 2), &id("web", 1)), Some(1));
        assert_eq!(found(id("web", 1), &id("web", 1)), Some(1));
        assert_eq!(found(id("other", 3), &id("web", 1)), None);
        assert_eq!(found(id("none", 3), &id("web", 1)), None);
    }

    #[test]
    fn each_tag_is_that_of_its_newest_version() {
        let own = [
            ready("web", 1, &["default", "v1"]),
            version("web", 2, TemplateState::Building, &["default"]),
            ready("other", 3, &["v1"]),
        ];
        let tags = tags(&own, "web").into_iter().map(|(tag, version)| (tag, version.version));
        let expected = [("default", 2), ("v1", 1)].map(|(tag, number)| (tag.to_owned(), number));
        assert_eq!(tags.collect::<Vec<_>>(), expected);
    }
}
