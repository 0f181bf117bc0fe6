//! Templates and their builds.

mod builds;
mod corpus;
mod hostile;
pub mod instructions;
mod kills;
