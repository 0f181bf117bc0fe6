//! What several crates need and the standard library lacks. It knows nothing of sandboxes.

mod crc32;
mod durable;
mod poison;
mod time;

pub use crc32::crc32;
pub use durable::{replace_file, sync_dir, sync_parent};
pub use poison::IgnorePoison;
pub use time::{millis, unix_ms};
