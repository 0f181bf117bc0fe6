//! The name in a request for a sandbox, and its place among the tags.

use std::collections::BTreeMap;

use api::{BadSandboxName, NAME_KEY, SandboxName};

use super::{ConfigRules, checks};
use crate::config::error::ConfigError;

/// The checked tags of a new sandbox, with its name under [`NAME_KEY`]. The name counts towards no limit of the tags.
pub(super) fn named_metadata(
    name: Option<String>,
    mut tags: BTreeMap<String, String>,
    rules: &ConfigRules,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let name = take_name(name, Some(&mut tags))?;
    let mut tags = checks::metadata(tags, rules)?;
    if let Some(name) = name {
        tags.insert(NAME_KEY.to_owned(), name.into());
    }
    Ok(tags)
}

/// The name of a new sandbox, which is removed from the tags: a client that can only send tags, such as one of E2B, gives it there.
pub(crate) fn take_name(
    name: Option<String>,
    tags: Option<&mut BTreeMap<String, String>>,
) -> Result<Option<SandboxName>, ConfigError> {
    let tag = tags.and_then(|tags| tags.remove(NAME_KEY));
    match (name, tag) {
        (Some(name), Some(tag)) if name != tag => {
            let allowed = format!("no tag '{NAME_KEY}', or one that is equal to the field name");
            Err(ConfigError::text("name", &name, allowed))
        }
        (Some(name), _) => checked("name", &name).map(Some),
        (None, Some(tag)) => checked(&format!("metadata.{NAME_KEY}"), &tag).map(Some),
        (None, None) => Ok(None),
    }
}

fn checked(field: &str, name: &str) -> Result<SandboxName, ConfigError> {
    name.parse().map_err(|why: BadSandboxName| ConfigError::text(field, name, why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn named(name: Option<&str>, given: &[(&str, &str)]) -> Result<BTreeMap<String, String>, ConfigError> {
        named_metadata(name.map(str::to_owned), tags(given), &ConfigRules::default())
    }

    #[test]
    fn a_name_is_stored_among_the_tags() {
        assert_eq!(named(None, &[("a", "1")]), Ok(tags(&[("a", "1")])));
        let expected = Ok(tags(&[("a", "1"), (NAME_KEY, "web")]));
        assert_eq!(named(Some("web"), &[("a", "1")]), expected);
        assert_eq!(named(None, &[("a", "1"), (NAME_KEY, "web")]), expected);
        assert_eq!(named(Some("web"), &[("a", "1"), (NAME_KEY, "web")]), expected);
        // The tag `name` is one of the owner's own.
        assert_eq!(named(None, &[("name", "sb_ any text")]), Ok(tags(&[("name", "sb_ any text")])));
    }

    #[test]
    fn a_bad_name_is_refused_where_it_was_given() {
        for (name, given, field) in [
            (Some("sb_abcdefgh"), &[][..], "name"),
            (Some(""), &[], "name"),
            (None, &[(NAME_KEY, "a/b")], "metadata.sandboxd.name"),
            (Some("web"), &[(NAME_KEY, "other")], "name"),
        ] {
            assert_eq!(named(name, given).unwrap_err().field, field);
        }
    }

    #[test]
    fn a_name_takes_no_place_among_the_tags() {
        let most: BTreeMap<String, String> = (0..20).map(|n| (n.to_string(), String::new())).collect();
        let named = |tags| named_metadata(Some("web".to_owned()), tags, &ConfigRules::default());
        assert_eq!(named(most.clone()).map(|tags| tags.len()), Ok(21));
        let more = most.into_iter().chain([("x".to_owned(), String::new())]).collect();
        assert_eq!(named(more).unwrap_err().field, "metadata");
    }
}
