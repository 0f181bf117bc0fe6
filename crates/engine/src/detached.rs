//! Commands that outlive the request which started them, and terminals: their records and output on disk, who reads them, and
//! what is sent to them. The engine's own methods for them are in `engine::detached`.

mod attach;
mod book;
mod cursor;
mod events;
mod execution;
mod frame;
mod keeper;
mod log;
mod reader;
mod record;
mod start;

pub use attach::{Attachment, Input};
pub use book::{Book, Executions, Found, Reach};
pub use execution::Execution;
pub use keeper::Keeper;
pub use reader::{Followed, OutputReader};
pub use start::start;
