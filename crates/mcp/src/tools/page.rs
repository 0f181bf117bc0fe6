//! Pages of the tools that list.

use sandboxd_client::Pagination;
use schemars::JsonSchema;
use serde::Deserialize;

use super::within;
use crate::failure::ToolFailure;

const DEFAULT: u64 = 50;
const LARGEST: u64 = 100;
const LARGEST_OFFSET: u64 = 1_000_000;

/// Items to skip: nextOffset of the previous result. Default: 0.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Offset(#[schemars(range(max = LARGEST_OFFSET))] pub u64);

/// Most items in the result. Default: 50.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Limit(#[schemars(range(min = 1, max = LARGEST))] u64);

/// The size of a page, from the argument `limit`.
pub fn size(limit: Option<Limit>) -> Result<u32, ToolFailure> {
    let limit = within("limit", limit.map_or(DEFAULT, |limit| limit.0), 1, LARGEST)?;
    Ok(u32::try_from(limit).unwrap_or(u32::MAX))
}

/// The offset of the next page, if there is one.
pub fn next_offset(pagination: &Pagination, offset: Offset, items: usize) -> Option<u64> {
    pagination.has_more.then_some(offset.0.saturating_add(items as u64))
}
