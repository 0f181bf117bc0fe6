//! One file per command.

pub mod accounts;
pub mod config_check;
pub mod config_reference;
pub mod egress;
pub mod image;
pub mod key;
pub mod openapi;
pub mod run;
pub mod sandboxes;
pub mod serve;

/// Exit code when sandboxd itself fails, not the command, as with other container tools.
pub const EXIT_CODE_SANDBOXD_FAILED: u8 = 125;
