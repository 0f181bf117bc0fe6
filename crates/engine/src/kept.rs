//! What is kept of executions that outlive their requests: their records and logs on disk, and the book of them. `detached` brings
//! them to life; `shared` has the book.

pub mod book;
pub mod cursor;
pub mod execution;
pub mod frame;
pub mod log;
pub mod record;
