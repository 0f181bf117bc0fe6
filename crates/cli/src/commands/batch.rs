//! Applies an action to several sandboxes, ports or keys; a failure does not stop the rest. With `--json` the successful results are one
//! document. Called by `inspect`, `pause`, `resume`, `timeout`, `rm`, `expose`, `unexpose` and `key revoke`.

use std::fmt::Display;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use crate::failure::{PrintedError, SBX_FAILURE};
use crate::output::{self, OutputFormat};

/// The form in which results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchForm {
    /// One line per item, at once.
    Lines,
    /// The JSON object of a single item.
    Object,
    /// One JSON array at the end.
    Array,
}

impl BatchForm {
    /// The form for a number of items.
    pub fn of(format: OutputFormat, count: usize) -> Self {
        match (format, count) {
            (OutputFormat::Plain, _) => Self::Lines,
            (OutputFormat::Json, 1) => Self::Object,
            (OutputFormat::Json, _) => Self::Array,
        }
    }
}

/// The result of one item.
pub struct ItemResult {
    line: String,
    json: Value,
}

impl ItemResult {
    /// A result with its line for people and its JSON value.
    pub fn new(line: impl Display, value: impl Serialize) -> Result<Self> {
        Ok(Self { line: line.to_string(), json: serde_json::to_value(value)? })
    }
}

/// Applies `act` to every item and prints results and errors. `None` prints nothing.
pub async fn for_each<T>(
    items: &[T],
    form: BatchForm,
    act: impl AsyncFn(&T) -> Result<Option<ItemResult>>,
) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    let mut results = Vec::new();
    for item in items {
        match act(item).await {
            Ok(Some(done)) if form == BatchForm::Lines => output::text(&format!("{}\n", done.line))?,
            Ok(Some(done)) => results.push(done.json),
            Ok(None) => {}
            Err(error) => {
                PrintedError(&error).print();
                code = ExitCode::from(SBX_FAILURE);
            }
        }
    }
    match form {
        BatchForm::Lines => {}
        BatchForm::Object => results.iter().try_for_each(output::json)?,
        BatchForm::Array => output::json(&results)?,
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn one_item_is_an_object_and_several_are_an_array() {
        for (format, count, form) in [
            (OutputFormat::Plain, 1, BatchForm::Lines),
            (OutputFormat::Plain, 5, BatchForm::Lines),
            (OutputFormat::Json, 1, BatchForm::Object),
            (OutputFormat::Json, 2, BatchForm::Array),
            // A list that is empty is a list.
            (OutputFormat::Json, 0, BatchForm::Array),
        ] {
            assert_eq!(BatchForm::of(format, count), form, "{count}");
        }
    }

    #[tokio::test]
    async fn an_item_that_fails_does_not_stop_the_others_and_is_the_exit_code() {
        let seen = RefCell::new(Vec::new());
        let act = async |item: &u8| {
            seen.borrow_mut().push(*item);
            anyhow::ensure!(*item != 1, "the first of three fails");
            Ok(None)
        };
        let text = |code: ExitCode| format!("{code:?}");
        let failed = for_each(&[1, 2, 3], BatchForm::Object, &act).await.unwrap();
        assert_eq!(text(failed), text(ExitCode::from(125)));
        let done = for_each(&[2, 3], BatchForm::Object, &act).await.unwrap();
        assert_eq!(text(done), text(ExitCode::SUCCESS));
        assert_eq!(*seen.borrow(), [1, 2, 3, 2, 3]);
    }

    #[test]
    fn a_result_has_a_line_and_a_value() {
        let result = ItemResult::new(7, ["a"]).unwrap();
        assert_eq!((result.line.as_str(), &result.json), ("7", &serde_json::json!(["a"])));
    }
}
