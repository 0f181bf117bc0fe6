//! What several crates need and the standard library lacks. It knows nothing of sandboxes.

mod poison;
mod time;

pub use poison::IgnorePoison;
pub use time::{millis, unix_ms};
