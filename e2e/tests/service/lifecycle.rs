//! The lifecycle of a sandbox: creates, names, reads, pauses, timers and deletes, in every state.

mod create;
mod delete;
mod get;
mod kills;
mod list;
mod names;
mod pause;
mod states;
mod timers;
mod walk;
