//! One file a command.

pub mod config_reference;
pub mod egress;
pub mod image;
pub mod key;
pub mod openapi;
pub mod run;
pub mod serve;

/// Exit code when the fault is not the command's but ours, as other tools of this kind have it.
pub const OUR_FAULT: u8 = 125;
