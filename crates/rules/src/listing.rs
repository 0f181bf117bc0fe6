//! Queries of the list of sandboxes: filters and page.
//!
//! The server passes the query as percent-decoded pairs. A value that is not allowed is a [`QueryError`] (`INVALID_REQUEST`).
//! Unknown parameters are ignored, as unknown fields of bodies are.

pub mod samples;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use api::SandboxState;
use api::bounds::{MAX_SAFE_INTEGER, METADATA_KEYS, PAGE_LIMIT};

use crate::text::quoted::{escaped, quoted};

const METADATA_PREFIX: &str = "metadata.";

/// A query of the list of sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuery {
    pub state: Option<SandboxState>,
    pub image: Option<String>,
    /// All pairs must match.
    pub metadata: BTreeMap<String, String>,
    pub limit: u32,
    pub offset: u64,
}

/// The value of a parameter is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {got}; allowed: {allowed}")]
pub struct QueryError {
    /// As the client wrote it: `metadata.userId`.
    pub field: String,
    /// The received value, shortened and printable.
    pub got: String,
    pub allowed: String,
}

impl QueryError {
    pub(crate) fn new(field: impl Into<String>, got: &str, allowed: impl Into<String>) -> Self {
        Self { field: field.into(), got: quoted(got), allowed: allowed.into() }
    }
}

/// Reads the query of a list.
pub fn list_query(pairs: impl IntoIterator<Item = (String, String)>) -> Result<ListQuery, QueryError> {
    let mut parameters = Parameters::default();
    for (name, value) in pairs {
        parameters.take(name, value)?;
    }
    let Parameters { state, image, limit, offset, metadata } = parameters;
    Ok(ListQuery {
        state: state.map(|state| read_state(&state)).transpose()?,
        image,
        metadata,
        limit: match limit {
            Some(text) => whole_number("limit", &text, PAGE_LIMIT.min, PAGE_LIMIT.max)?,
            None => PAGE_LIMIT.default,
        },
        offset: match offset {
            // The response repeats it.
            Some(text) => whole_number("offset", &text, 0, MAX_SAFE_INTEGER)?,
            None => 0,
        },
    })
}

/// The known parameters, as text.
#[derive(Default)]
struct Parameters {
    state: Option<String>,
    image: Option<String>,
    limit: Option<String>,
    offset: Option<String>,
    metadata: BTreeMap<String, String>,
}

impl Parameters {
    fn take(&mut self, name: String, value: String) -> Result<(), QueryError> {
        let slot = match name.as_str() {
            "state" => &mut self.state,
            "image" => &mut self.image,
            "limit" => &mut self.limit,
            "offset" => &mut self.offset,
            _ => {
                return match name.strip_prefix(METADATA_PREFIX) {
                    Some(key) => self.take_metadata(key, value),
                    None => Ok(()),
                };
            }
        };
        match slot {
            None => {
                *slot = Some(value);
                Ok(())
            }
            Some(first) => Err(repeated(name, first, &value)),
        }
    }

    fn take_metadata(&mut self, key: &str, value: String) -> Result<(), QueryError> {
        if key.is_empty() {
            let allowed = "a key after the dot, such as 'metadata.userId'";
            return Err(QueryError::new("name of a parameter", METADATA_PREFIX, allowed));
        }
        // A longer filter matches no sandbox; this bounds the cost of a search.
        if self.metadata.len() >= METADATA_KEYS && !self.metadata.contains_key(key) {
            let got = format!("a filter of more than {METADATA_KEYS} keys");
            let allowed = format!("at most {METADATA_KEYS} keys, as many as a sandbox has");
            return Err(QueryError { field: "metadata".to_owned(), got, allowed });
        }
        match self.metadata.entry(key.to_owned()) {
            Entry::Vacant(entry) => {
                entry.insert(value);
                Ok(())
            }
            Entry::Occupied(first) => {
                let name = format!("{METADATA_PREFIX}{}", escaped(key));
                Err(repeated(name, first.get(), &value))
            }
        }
    }
}

pub(crate) fn repeated(field: String, first: &str, second: &str) -> QueryError {
    let got = format!("given twice, {} and {}", quoted(first), quoted(second));
    QueryError { field, got, allowed: "one value".to_owned() }
}

fn read_state(text: &str) -> Result<SandboxState, QueryError> {
    match text {
        "running" => Ok(SandboxState::Running),
        "paused" => Ok(SandboxState::Paused),
        "terminated" => Ok(SandboxState::Terminated),
        _ => Err(QueryError::new("state", text, "'running', 'paused' or 'terminated'")),
    }
}

/// Only digits: no sign, no spaces.
pub(crate) fn whole_number<T>(field: &str, text: &str, min: T, max: T) -> Result<T, QueryError>
where
    T: Copy + PartialOrd + std::fmt::Display + std::str::FromStr,
{
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<T>() {
        Ok(number) if digits && min <= number && number <= max => Ok(number),
        _ => Err(QueryError::new(field, text, format!("a whole number from {min} to {max}"))),
    }
}

#[cfg(test)]
mod tests;
