//! The headers that determine the format of request and response.

use rules::quoted;

use crate::{FieldFault, RequestRefusal};

const ALLOWED: &str = "'application/json', with 'charset=utf-8' or without";

/// Whether a body is JSON, by its `Content-Type` and `Content-Encoding` headers.
pub fn json_content<'a>(
    types: impl IntoIterator<Item = &'a [u8]>,
    encodings: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(), RequestRefusal> {
    let mut types = types.into_iter();
    let fault = |got: String| FieldFault::new("header Content-Type", got, ALLOWED).into();
    match (types.next(), types.next()) {
        (None, _) => return Err(fault("missing".to_owned())),
        (Some(_), Some(_)) => return Err(fault("given twice".to_owned())),
        (Some(only), None) if !is_json(only) => return Err(fault(quoted(&String::from_utf8_lossy(only)))),
        (Some(_), None) => {}
    }
    no_encoding(encodings)
}

/// Checks that the body is not encoded, by its `Content-Encoding` headers.
pub(crate) fn no_encoding<'a>(encodings: impl IntoIterator<Item = &'a [u8]>) -> Result<(), RequestRefusal> {
    for encoding in encodings {
        if !encoding.trim_ascii().eq_ignore_ascii_case(b"identity") {
            let got = quoted(&String::from_utf8_lossy(encoding));
            return Err(FieldFault::new(
                "header Content-Encoding",
                got,
                "no such header; send the body without encoding",
            )
            .into());
        }
    }
    Ok(())
}

fn is_json(content_type: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(content_type) else { return false };
    let mut parts = text.split(';');
    let essence = parts.next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json") && parts.all(is_harmless_parameter)
}

/// Only the parameter `charset` changes the meaning of the bytes.
fn is_harmless_parameter(parameter: &str) -> bool {
    let parameter = parameter.trim();
    if parameter.is_empty() {
        return true;
    }
    let Some((name, value)) = parameter.split_once('=') else { return false };
    let value = value.trim();
    let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    !name.trim().eq_ignore_ascii_case("charset") || value.eq_ignore_ascii_case("utf-8")
}

/// Whether the client accepts Server-Sent Events, by its `Accept` headers.
pub fn wants_stream<'a>(accepts: impl IntoIterator<Item = &'a [u8]>) -> bool {
    names_type(accepts, "text/event-stream")
}

/// Whether the client shows pages to a person, by its `Accept` headers: browsers name HTML, other programs accept anything.
pub fn wants_page<'a>(accepts: impl IntoIterator<Item = &'a [u8]>) -> bool {
    names_type(accepts, "text/html")
}

/// Whether the headers name exactly this media type, without excluding it.
fn names_type<'a>(accepts: impl IntoIterator<Item = &'a [u8]>, wanted: &str) -> bool {
    let texts = accepts.into_iter().filter_map(|accept| std::str::from_utf8(accept).ok());
    texts.flat_map(|text| text.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(wanted));
        is_named && !parts.any(is_never)
    })
}

/// `q=0`, in any spelling, excludes the type.
fn is_never(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else { return false };
    name.trim().eq_ignore_ascii_case("q") && value.trim().parse::<f32>().is_ok_and(|weight| weight <= 0.0)
}
