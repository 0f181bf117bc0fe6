//! Every decision of the service as a plain function: may this state pause, is this config valid, does it fit, when is it due.
//!
//! Pure: no I/O, no clock, no logging, no randomness. Time comes in as [`TimeMs`]. Whoever carries a decision out lives
//! above (engine, server); a refusal is a value of its own here and never a fault.

mod accounting;
mod admission;
mod config;
mod deadlines;
mod environment;
mod execution;
mod lifecycle;
mod lines;
mod outcome;
mod output;
mod signals;
mod text;
mod time;

pub use accounting::{Accounting, Phase};
pub use admission::{
    Capacity, Exhausted, Hold, Host, Next, Overcommit, Resource, Slot, Slots, TooManyExecutions, Usage,
};
pub use config::{ConfigError, ConfigRules, CreateInput, Integer, Range, sandbox_config};
pub use deadlines::{Activity, Deadline, Due, Expiry, Watch, next_deadline};
pub use environment::environment;
pub use execution::{ExecuteInput, ExecuteRefusal, ExecuteRules, execute_request};
pub use lifecycle::{AutoResume, Operation, Refusal, Step, decide};
pub use lines::{LineSplitter, MAX_PIECE_BYTES};
pub use outcome::{Command, Ended, NeverStarted, Outcome, outcome};
pub use output::{CappedOutput, Captured};
pub use signals::signal_name;
pub use text::lossy;
pub use time::TimeMs;
