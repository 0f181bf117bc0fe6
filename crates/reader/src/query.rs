//! Queries of lists.

use rules::{
    EventQuery, ListQuery, SampleQuery, SnapshotQuery, TemplateQuery, event_query, list_query, quoted,
    sample_query, snapshot_query, template_query,
};

use crate::files::file_query;
use crate::percent::{plus_as_space, text};
use crate::{FieldFault, RequestRefusal};

/// Parses the query of a list without its `?`.
pub fn list(query: Option<&str>) -> Result<ListQuery, RequestRefusal> {
    Ok(list_query(pairs(query)?)?)
}

/// Whether the items of a list of sandboxes have more fields.
pub fn details(query: Option<&str>) -> Result<bool, RequestRefusal> {
    file_query(query)?.flag("details")
}

/// Parses the query of a list or a stream of events.
pub fn events(query: Option<&str>) -> Result<EventQuery, RequestRefusal> {
    Ok(event_query(pairs(query)?)?)
}

/// Parses the query of the list of snapshots.
pub fn snapshots(query: Option<&str>) -> Result<SnapshotQuery, RequestRefusal> {
    Ok(snapshot_query(pairs(query)?)?)
}

/// Parses the query of the list of templates.
pub fn templates(query: Option<&str>) -> Result<TemplateQuery, RequestRefusal> {
    Ok(template_query(pairs(query)?)?)
}

/// Parses the query of resource samples.
pub fn samples(query: Option<&str>) -> Result<SampleQuery, RequestRefusal> {
    Ok(sample_query(pairs(query)?)?)
}

fn pairs(query: Option<&str>) -> Result<Vec<(String, String)>, RequestRefusal> {
    query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()).map(pair).collect()
}

fn pair(pair: &str) -> Result<(String, String), RequestRefusal> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let decoded_name =
        text(&plus_as_space(name)).ok_or_else(|| broken("name of a parameter".to_owned(), name))?;
    let decoded_value =
        text(&plus_as_space(value)).ok_or_else(|| broken(rules::escaped(&decoded_name), value))?;
    Ok((decoded_name, decoded_value))
}

fn broken(field: String, got: &str) -> RequestRefusal {
    let allowed = "percent-encoded UTF-8: '%' and two hexadecimal digits, '%25' for a percent sign";
    FieldFault::new(field, quoted(got), allowed).into()
}
