//! Commands: attached, streamed, detached and in terminals.

mod commands;
mod detached;
mod refusals;
mod streams;
mod terminals;
mod unread_output;
