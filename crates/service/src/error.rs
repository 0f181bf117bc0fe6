//! The errors of the engine, the builder and the image store as errors of the API: one row for each fault.

mod code;
mod entry;
mod executions;
mod files;
mod images;
mod keys;
mod names;
mod operations;
mod ports;
mod snapshots;
mod templates;

pub use code::{interpreter_disk_full, invalid_interpreter, no_context, no_interpreter};
pub use entry::of_entry;
pub use executions::{no_execution, not_a_terminal};
pub use files::too_many_watches;
pub use images::{
    KnownImages, needs_digest, of_image, unconfirmed_image, unfinished_template, unknown_image,
};
pub use keys::key_ended;
pub use names::{SHOWN_IDS, ambiguous_name};
pub use operations::{OperationKind, not_found, of_engine};
pub use ports::{gateway_timeout, of_full_ports, port_not_found, unknown_host};
pub use snapshots::no_snapshot;
pub use templates::{no_template, of_builder};

#[cfg(test)]
mod tests;
