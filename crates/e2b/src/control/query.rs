//! Query strings of the control plane. Pure.

use std::collections::BTreeMap;

use crate::percent;

/// The text without one layer of percent-encoding. What is no escape stays, and invalid UTF-8 is replaced.
pub fn decoded(text: &str) -> String {
    String::from_utf8_lossy(&percent::decoded(text)).into_owned()
}

/// The pairs of a query string, without one layer of encoding. The last of equal names counts.
pub fn pairs(query: Option<&str>) -> BTreeMap<String, String> {
    let parts = query.unwrap_or_default().split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

/// The metadata filter: pairs with an encoding each, encoded as a whole.
pub fn metadata(value: &str) -> BTreeMap<String, String> {
    pairs(Some(&decoded(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_has_three_layers_of_encoding() {
        let query = pairs(Some("metadata=a%252520b%3Dc%252526d&limit=5"));
        assert_eq!(query["limit"], "5");
        assert_eq!(metadata(&query["metadata"]), [("a b".to_owned(), "c&d".to_owned())].into());
    }

    #[test]
    fn hostile_texts_are_decoded_to_something() {
        for text in ["%", "%4", "%zz", "%+1", "%ff", "a=b=c", "&&", "é%C3%A9"] {
            let _ = pairs(Some(text));
        }
        assert_eq!(decoded("%zz%41+%"), "%zzA %");
        assert_eq!(pairs(Some("a=b=c&&d"))["a"], "b=c");
        assert!(pairs(None).is_empty());
    }
}
