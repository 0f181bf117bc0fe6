//! What several crates need and the standard library lacks. It knows nothing of sandboxes.

#[cfg(feature = "blocking")]
mod blocking;
mod chain_text;
mod crc32;
mod durable;
mod poison;
mod set_some;
mod time;

#[cfg(feature = "blocking")]
pub use blocking::{TaskLost, blocking};
pub use chain_text::chain_text;
pub use crc32::crc32;
pub use durable::{allow_missing, is_disk_full, lock_file, replace_file, sync_dir, sync_parent};
pub use poison::IgnorePoison;
pub use set_some::SetSome;
pub use time::{millis, unix_ms};
