//! The headers that say what a body is and what the answer should be.

use rules::shown;

use crate::{FieldFault, Refusal};

const ALLOWED: &str = "'application/json', with 'charset=utf-8' or without";

/// Whether a body is JSON, by every `Content-Type` and `Content-Encoding` that came with it.
pub fn json_content<'a>(
    types: impl IntoIterator<Item = &'a [u8]>,
    encodings: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(), Refusal> {
    let mut types = types.into_iter();
    let fault = |got: String| FieldFault::new("header Content-Type", got, ALLOWED).into();
    match (types.next(), types.next()) {
        (None, _) => return Err(fault("missing".to_owned())),
        (Some(_), Some(_)) => return Err(fault("given twice".to_owned())),
        (Some(only), None) if !is_json(only) => return Err(fault(shown(&String::from_utf8_lossy(only)))),
        (Some(_), None) => {}
    }
    for encoding in encodings {
        if !encoding.trim_ascii().eq_ignore_ascii_case(b"identity") {
            let got = shown(&String::from_utf8_lossy(encoding));
            return Err(
                FieldFault::new("header Content-Encoding", got, "none: send the body as it is").into()
            );
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

/// Of parameters only the character set changes what the bytes mean.
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

/// Whether the client asks for Server-Sent Events, by every `Accept` it sent.
pub fn wants_stream<'a>(accepts: impl IntoIterator<Item = &'a [u8]>) -> bool {
    let texts = accepts.into_iter().filter_map(|accept| std::str::from_utf8(accept).ok());
    texts.flat_map(|text| text.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_stream = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("text/event-stream"));
        is_stream && !parts.any(is_never)
    })
}

/// `q=0` in any of its ways to be written says that this is not wanted.
fn is_never(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else { return false };
    name.trim().eq_ignore_ascii_case("q") && value.trim().parse::<f32>().is_ok_and(|weight| weight <= 0.0)
}
