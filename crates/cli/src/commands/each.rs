//! The same for several sandboxes, ports or keys: one that fails does not keep the next from its turn. What was done is one JSON
//! document, whatever failed. Called by `inspect`, `pause`, `resume`, `rm`, `expose`, `unexpose` and
//! `key revoke`.

use std::fmt::Display;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use crate::context::{Failure, OURS};
use crate::output;

/// How it is told what was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As each is done, a line.
    Lines,
    /// For programs: that of the only one.
    Object,
    /// For programs: all in one, at the end.
    Array,
}

impl Form {
    /// For so many that were named.
    pub fn of(json: bool, count: usize) -> Self {
        match (json, count) {
            (false, _) => Self::Lines,
            (true, 1) => Self::Object,
            (true, _) => Self::Array,
        }
    }
}

/// What was done with one.
pub struct Done {
    line: String,
    json: Value,
}

impl Done {
    pub fn new(line: impl Display, said: impl Serialize) -> Result<Self> {
        Ok(Self { line: line.to_string(), json: serde_json::to_value(said)? })
    }
}

/// Tells of each one that it worked for, or what the service said. Where there was nothing to do, nothing is told.
pub async fn each<T>(
    all: &[T],
    form: Form,
    act: impl AsyncFn(&T) -> Result<Option<Done>>,
) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    let mut told = Vec::new();
    for one in all {
        match act(one).await {
            Ok(Some(done)) if form == Form::Lines => output::text(&format!("{}\n", done.line))?,
            Ok(Some(done)) => told.push(done.json),
            Ok(None) => {}
            Err(error) => {
                Failure(&error).print();
                code = ExitCode::from(OURS);
            }
        }
    }
    match form {
        Form::Lines => {}
        Form::Object => told.iter().try_for_each(output::json)?,
        Form::Array => output::json(&told)?,
    }
    Ok(code)
}
