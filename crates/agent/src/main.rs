//! `sandbox-agent`: the first process of every sandbox. It starts commands for the host, carries their bytes, ends them
//! with all that they started, and connects the host to ports inside.
//!
//! Its life: protect itself ([`boot`]), then serve one link to the host after the other ([`agent`]) until the sandbox is
//! killed. It is one thread around `epoll`; nothing it does waits for anybody else. What has to wait, for disks, is an [`errand`].

mod agent;
mod boot;
mod caps;
mod dial;
mod door;
mod errand;
mod errands;
mod error;
mod exec;
mod files;
mod keeps;
mod kept;
mod link;
mod ops;
mod poll;
mod reaper;
mod serve;
mod setup;
mod spawn;
mod stdio;
mod terminal;
mod tree;

use std::process::ExitCode;

fn main() -> ExitCode {
    let run = || agent::Agent::new(boot::boot()?)?.run();
    match run() {
        Ok(never) => match never {},
        Err(error) => {
            boot::complain(&error);
            ExitCode::from(2)
        }
    }
}
