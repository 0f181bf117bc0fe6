//! Percent-encoding of query strings, in which `+` is a space.

/// The decoded bytes. What is no escape stays.
pub fn decoded(text: &str) -> Vec<u8> {
    percent_encoding::percent_decode_str(&text.replace('+', " ")).collect()
}

/// The decoded text. `None` if an escape is not complete, or the result is not UTF-8.
pub fn strictly_decoded(text: &str) -> Option<String> {
    let starts_with_digits =
        |rest: &str| rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    if text.split('%').skip(1).all(starts_with_digits) { String::from_utf8(decoded(text)).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_escape_stays_or_is_refused() {
        for (text, lenient, strict) in [
            ("a+b%20c", "a b c", Some("a b c")),
            ("%2B", "+", Some("+")),
            ("%c3%a9", "é", Some("é")),
            ("%2541", "%41", Some("%41")),
            ("100%", "100%", None),
            ("%4", "%4", None),
            ("%zz", "%zz", None),
            ("%é", "%é", None),
            ("", "", Some("")),
        ] {
            assert_eq!(String::from_utf8_lossy(&decoded(text)), lenient, "{text}");
            assert_eq!(strictly_decoded(text).as_deref(), strict, "{text}");
        }
        assert_eq!(decoded("%ff"), [0xff]);
        assert_eq!(strictly_decoded("%ff"), None, "not UTF-8");
    }

    proptest! {
        #[test]
        fn an_encoded_text_comes_back(text in "\\PC{0,40}") {
            let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
            prop_assert_eq!(strictly_decoded(&encoded), Some(text));
        }
    }
}
