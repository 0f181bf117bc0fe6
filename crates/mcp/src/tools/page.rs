//! Pages of the tools that list.

use sandboxd_client::Pagination;
use serde_json::{Value, json};

use super::{schema, within};
use crate::failure::Failure;

const DEFAULT: u64 = 50;
const LARGEST: u64 = 100;

/// The schema of the argument `offset`.
pub fn offset(items: &str) -> Value {
    let about = format!("{items} to skip: nextOffset of the previous result. Default: 0.");
    schema::integer(0, 1_000_000, &about)
}

/// The schema of the argument `limit`.
pub fn limit(items: &str) -> Value {
    schema::integer(1, LARGEST, &format!("Most {items} in the result. Default: {DEFAULT}."))
}

/// The schema of a result that has its items as `name`.
pub fn output(name: &str, item: &Value) -> Value {
    let mut properties = json!({
        "total": {"type": "integer", "description": format!("Number of {name} that match.")},
        "nextOffset": {"type": "integer", "description": "If there are more: the offset of the next call."}
    });
    properties[name] = json!({"type": "array", "items": item});
    schema::output(properties, &[name, "total"])
}

/// The size of a page, from the argument `limit`.
pub fn size(limit: Option<u64>) -> Result<u32, Failure> {
    let limit = within("limit", limit.unwrap_or(DEFAULT), 1, LARGEST)?;
    Ok(u32::try_from(limit).unwrap_or(u32::MAX))
}

/// The offset of the next page, if there is one.
pub fn next_offset(pagination: &Pagination, offset: u64, items: usize) -> Option<u64> {
    pagination.has_more.then_some(offset.saturating_add(items as u64))
}
