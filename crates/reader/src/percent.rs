//! Percent-encoded text. All functions return `None` for malformed text.

use std::borrow::Cow;

/// Forms encode a space as `+`.
pub(crate) fn plus_as_space(text: &str) -> Cow<'_, str> {
    if text.contains('+') { text.replace('+', " ").into() } else { text.into() }
}

/// Decodes a segment of a path.
pub fn path_segment(segment: &str) -> Option<Cow<'_, str>> {
    if segment.contains('%') { text(segment).map(Cow::Owned) } else { Some(segment.into()) }
}

/// Decodes UTF-8.
pub(crate) fn text(encoded: &str) -> Option<String> {
    String::from_utf8(bytes(encoded)?).ok()
}

/// Decodes any bytes, such as a path of Linux.
pub(crate) fn bytes(encoded: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        decoded.push(match byte {
            b'%' => hex(rest.next()?)? << 4 | hex(rest.next()?)?,
            _ => byte,
        });
    }
    Some(decoded)
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}
