//! Percent-encoded text: queries of lists and segments of paths.

use std::borrow::Cow;

use rules::{
    EventQuery, ListQuery, SampleQuery, SnapshotQuery, TemplateQuery, event_query, list_query, quoted,
    sample_query, snapshot_query, template_query,
};

use crate::{FieldFault, Refusal, file_query};

/// Parses the query of a list without its `?`.
pub fn list(query: Option<&str>) -> Result<ListQuery, Refusal> {
    Ok(list_query(pairs(query)?)?)
}

/// Whether the items of a list of sandboxes have more fields.
pub fn details(query: Option<&str>) -> Result<bool, Refusal> {
    file_query(query)?.flag("details", false)
}

/// Parses the query of a list or a stream of events.
pub fn events(query: Option<&str>) -> Result<EventQuery, Refusal> {
    Ok(event_query(pairs(query)?)?)
}

/// Parses the query of the list of snapshots.
pub fn snapshots(query: Option<&str>) -> Result<SnapshotQuery, Refusal> {
    Ok(snapshot_query(pairs(query)?)?)
}

/// Parses the query of the list of templates.
pub fn templates(query: Option<&str>) -> Result<TemplateQuery, Refusal> {
    Ok(template_query(pairs(query)?)?)
}

/// Parses the query of resource samples.
pub fn samples(query: Option<&str>) -> Result<SampleQuery, Refusal> {
    Ok(sample_query(pairs(query)?)?)
}

fn pairs(query: Option<&str>) -> Result<Vec<(String, String)>, Refusal> {
    query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()).map(pair).collect()
}

fn pair(text: &str) -> Result<(String, String), Refusal> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let decoded_name =
        decode(&plus_as_space(name)).ok_or_else(|| broken("name of a parameter".to_owned(), name))?;
    let decoded_value =
        decode(&plus_as_space(value)).ok_or_else(|| broken(rules::escaped(&decoded_name), value))?;
    Ok((decoded_name, decoded_value))
}

fn broken(field: String, got: &str) -> Refusal {
    let allowed = "percent-encoded UTF-8: '%' and two hexadecimal digits, '%25' for a percent sign";
    FieldFault::new(field, quoted(got), allowed).into()
}

/// Forms encode a space as `+`.
pub(crate) fn plus_as_space(text: &str) -> Cow<'_, str> {
    if text.contains('+') { text.replace('+', " ").into() } else { text.into() }
}

/// Decodes a segment of a path; `None` if it is malformed.
pub fn path_segment(segment: &str) -> Option<Cow<'_, str>> {
    if segment.contains('%') { decode(segment).map(Cow::Owned) } else { Some(segment.into()) }
}

fn decode(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
            _ => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

pub(crate) fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}
