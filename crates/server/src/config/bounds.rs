//! The check of a number against its range.

use anyhow::{Result, ensure};

/// The error names the key, the value and the range.
pub(super) fn within(key: &str, value: u64, low: u64, high: u64) -> Result<()> {
    ensure!((low..=high).contains(&value), "{key} is {value}; it must be {low} to {high}");
    Ok(())
}
