//! What several crates need and the standard library lacks. It knows nothing of sandboxes.

mod poison;

pub use poison::IgnorePoison;
