//! Errors of names in place of ids.

use admission::error::ApiError;
use api::ErrorCode;

/// The most ids that a message lists.
pub const SHOWN_IDS: u32 = 10;

/// Several objects have a name that must be that of one. `ids` are the first of them, `objects` says what they are.
pub fn ambiguous_name(objects: &str, name: &str, total: u64, ids: &[&str]) -> ApiError {
    let message = format!(
        "{total} {objects} have the name {}; allowed: an id, such as {}",
        rules::quoted(name),
        ids.join(", ")
    );
    ApiError::new(ErrorCode::InvalidState, message).with_detail("field", "id")
}
