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
