//! `sandbox-agent`: the first process of every sandbox. It starts commands for the host, transfers their input and output, ends them
//! with all their descendants, and connects the host to ports inside.
//!
//! It protects itself ([`boot`]), then serves one link to the host after the other ([`agent`]) until the sandbox is
//! killed. Its one thread blocks only in `epoll`. Disk access, which blocks, is a [`file_op`].

mod agent;
mod boot;
mod connector;
mod dial;
mod error;
mod exec;
mod file_op;
mod files;
mod identity;
mod link;
mod ops;
mod poll;
mod reaper;
mod serve;
mod spawn;
mod stdio;
mod terminal;
mod tree;
mod users;

use std::process::ExitCode;

fn main() -> ExitCode {
    let run = || agent::Agent::new(boot::boot()?)?.run();
    match run() {
        Ok(never) => match never {},
        Err(error) => {
            boot::report_failure(&error);
            ExitCode::from(2)
        }
    }
}
