//! Commands that outlive the request which started them, and terminals: who starts and keeps them, who reads them, and what is sent
//! to them. What is kept of them is in `kept`. The engine's own methods for them are in `engine::detached`.

mod attach;
mod events;
mod keeper;
mod reader;
mod start;
mod text;

pub use attach::{Attachment, Input};
pub use events::ended_with;
pub use keeper::Keeper;
pub use reader::{Followed, OutputReader};
pub use start::start;
