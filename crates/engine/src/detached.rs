//! Commands that outlive the request which started them, and terminals: who starts and keeps them, who reads them, and what is sent
//! to them. What is kept of them is in `kept`. The engine's own methods for them are in `engine::detached`.

mod attachment;
mod events;
pub mod execution;
mod initial_stdin;
pub mod log;
mod log_writer;
mod operations;
mod reader;
pub mod record;
pub mod registry;
mod start;
pub mod status;

pub use attachment::{Attachment, Input};
pub use events::ended_with;
pub use log_writer::LogWriter;
pub use reader::{OutputEvent, OutputReader};
pub use start::start;
