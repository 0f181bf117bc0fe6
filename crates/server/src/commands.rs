//! One file a command.

pub mod image;
pub mod run;

/// Exit code when the fault is not the command's but ours, as other tools of this kind have it.
pub const OUR_FAULT: u8 = 125;
