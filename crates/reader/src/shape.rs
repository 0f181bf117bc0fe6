//! The shape of a JSON text, checked before a parser allocates memory for it.
//!
//! Parsers make a value of 32 bytes and more from two bytes such as `0,`, so a bound in bytes does not bound their memory. Handlers
//! whose parser is not [`crate::RequestBody`]'s own call [`check`] first. It reads the text once and holds nothing.

use crate::RequestRefusal;

/// No valid body is nested more deeply.
const DEPTH_MAX: usize = 64;

/// Refuses a JSON text with more than `values_max` values and names, or nested too deeply. Other errors are found by the parser.
pub fn check(json: &[u8], values_max: usize) -> Result<(), RequestRefusal> {
    let (mut depth, mut values, mut in_string, mut escaped) = (0_usize, 1_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                values += 1;
                if depth > DEPTH_MAX {
                    return Err(RequestRefusal::malformed(format!(
                        "the body is nested too deeply; allowed: at most {DEPTH_MAX} levels"
                    )));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' | b':' => values += 1,
            _ => {}
        }
        if values > values_max {
            return Err(RequestRefusal::malformed(format!(
                "the body has more than {values_max} values and names; send fewer"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Values and names of a parsed text.
    fn values_of(value: &Value) -> usize {
        1 + match value {
            Value::Array(all) => all.iter().map(values_of).sum(),
            Value::Object(all) => all.values().map(|value| 1 + values_of(value)).sum(),
            _ => 0,
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
            Just(Value::from("a\\\",[{:")),
        ];
        leaf.prop_recursive(5, 64, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::btree_map(".{0,6}", inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn depth_and_values_are_bounded() {
        let nested = |levels: usize| [vec![b'['; levels], vec![b']'; levels]].concat();
        assert!(check(&nested(DEPTH_MAX), 1000).is_ok());
        assert!(check(&nested(DEPTH_MAX + 1), 1000).is_err());
        assert!(check(&vec![b'['; 8 << 20], usize::MAX).is_err());
        assert!(check(b"[1,2,3]", 4).is_ok() && check(b"[1,2,3]", 3).is_err());
        assert!(check(br#"{"a,b:[{": "c\"[[["}"#, 3).is_ok(), "texts do not count");
    }

    proptest! {
        #[test]
        fn no_value_is_missed(value in any_json()) {
            let text = value.to_string();
            let exact = values_of(&value);
            prop_assert!(check(text.as_bytes(), 2 * exact + 1).is_ok(), "{text}");
            // An array or an object counts once more than its entries have separators.
            prop_assert!(exact <= 1 || check(text.as_bytes(), exact / 2).is_err(), "{text}");
        }
    }
}
