//! The tables in `sdk/cases`, which drive the tests of the clients in all languages.

use serde::Deserialize;
use serde::de::DeserializeOwned;

#[derive(Deserialize)]
struct Table<T> {
    cases: Vec<T>,
}

/// The cases of a table.
pub fn of<T: DeserializeOwned>(table: &str) -> Vec<T> {
    let Table { cases } = serde_json::from_str(table).unwrap(); // A table that cannot be read fails the test.
    assert!(!cases.is_empty());
    cases
}
