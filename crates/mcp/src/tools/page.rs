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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_50_items_unless_another_number_up_to_100_is_asked_for() {
        assert_eq!(size(None).unwrap(), 50);
        assert_eq!([1, 100].map(|limit| size(Some(Limit(limit))).unwrap()), [1, 100]);
        for limit in [0, 101, u64::MAX] {
            let failure = format!("{:?}", size(Some(Limit(limit))).unwrap_err());
            assert!(failure.contains(&format!("limit is {limit}; it must be 1 to 100.")), "{failure}");
        }
    }

    #[test]
    fn the_next_page_begins_after_the_items_of_this_one() {
        let pagination = |has_more| Pagination { total: 9, limit: 3, offset: 4, has_more };
        assert_eq!(next_offset(&pagination(true), Offset(4), 3), Some(7));
        assert_eq!(next_offset(&pagination(false), Offset(4), 3), None);
        assert_eq!(next_offset(&pagination(true), Offset(u64::MAX), 3), Some(u64::MAX));
    }
}
