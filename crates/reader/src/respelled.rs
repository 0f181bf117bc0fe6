//! Fields of a body that are known ones in another spelling or in another object, for an API whose clients are not ours.
//!
//! Later versions of such clients have fields of their own, and send `null` for what they omit. So this is less strict than
//! [`strict`](crate::strict): only another case, other separators and a single edit of a long name are typing errors here.

use rules::respelled;
use serde::Deserialize;
use serde_json::Value;

use crate::UnknownField;
use crate::known_fields::{FieldPath, trace};

/// The first field of a body that was probably meant to be a known one of the type. `None` if the body is no JSON.
pub fn respelled_field<'de, T: Deserialize<'de>>(body: &[u8]) -> Option<UnknownField> {
    let body: Value = serde_json::from_slice(body).ok()?;
    find(&body, &[], &trace::<'de, T>())
}

/// Searches a value at a path. What the type has no fields for is data. Recurses as deep as the type.
fn find(value: &Value, path: &[&'static str], all: &[FieldPath]) -> Option<UnknownField> {
    if let Value::Array(elements) = value {
        return elements.iter().find_map(|element| find(element, path, all));
    }
    let here: Vec<&'static str> =
        all.iter().filter(|field| field.object() == path).map(FieldPath::name).collect();
    let Value::Object(object) = value else { return None };
    if here.is_empty() {
        return None;
    }
    object.iter().find_map(|(name, inner)| match here.iter().find(|known| *known == name) {
        Some(known) => find(inner, &[path, &[*known]].concat(), all),
        None => unknown(name, path, &here, all),
    })
}

fn unknown(
    name: &str,
    path: &[&'static str],
    here: &[&'static str],
    all: &[FieldPath],
) -> Option<UnknownField> {
    let field = || path.iter().copied().chain([name]).collect::<Vec<_>>().join(".");
    if respelled(name, here).is_some() {
        return Some(UnknownField::new(field(), name, here));
    }
    let names: Vec<&str> = all.iter().map(FieldPath::name).collect();
    let meant = respelled(name, &names)?;
    Some(UnknownField::misplaced(field(), &all[meant], here))
}

#[cfg(test)]
mod tests {
    use api::CreateBody;

    use super::*;

    fn found(body: &str) -> Option<(String, String)> {
        let unknown = respelled_field::<CreateBody>(body.as_bytes())?;
        Some((unknown.field.clone(), unknown.meant.name().to_owned()))
    }

    #[test]
    fn other_spellings_and_places_are_found() {
        for (body, field, meant) in [
            (r#"{"Image":"x"}"#, "Image", "image"),
            (r#"{"idle_timeout_ms":1}"#, "idle_timeout_ms", "idleTimeoutMs"),
            (r#"{"resource":{}}"#, "resource", "resources"),
            (r#"{"network":{"egress":{"defaults":"deny"}}}"#, "network.egress.defaults", "default"),
            (r#"{"egress":{}}"#, "egress", "network.egress"),
            (r#"{"network":{"default":"deny"}}"#, "network.default", "network.egress.default"),
        ] {
            assert_eq!(found(body), Some((field.to_owned(), meant.to_owned())), "{body}");
        }
    }

    #[test]
    fn other_names_and_data_are_not() {
        for body in [
            r#"{"image":"x","network":null,"resources":{"cpu":null}}"#,
            r#"{"colour":1,"cpus":1,"idleTime":2,"timeoutMsec":1}"#,
            r#"{"env":{"Image":"1","egress":"2"},"metadata":{"NETWORK":"x"}}"#,
            r#"{"image":{"Egress":1}}"#,
            "[]",
            "7",
            "no JSON",
        ] {
            assert_eq!(found(body), None, "{body}");
        }
    }
}
