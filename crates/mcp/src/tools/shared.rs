//! Arguments that several tools have.

use std::ops::Deref;

use schemars::JsonSchema;
use serde::Deserialize;

/// The sandbox, by its id or its name. Default: the sandbox of this session, which is created on first use.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct SandboxReference(
    #[schemars(length(max = 64), regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"))] String,
);

impl Deref for SandboxReference {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// Domains that a sandbox or the steps of a build can reach.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Domains(#[schemars(length(max = 100), inner(length(min = 1, max = 253)))] pub Vec<String>);
