//! `sandbox-launcher`: builds one container according to a plan of the daemon and starts the agent in it.
//!
//! It has two processes: the launcher itself, which stays outside ([`outside`]), and the container's first process
//! ([`inside`]), which becomes the agent. The steps of each are types: a step consumes the value that the step before it
//! returned, so no other order compiles.
//!
//! ```text
//! outside: Connected -> PrivateMounts -> Forked -> Mapped -> Assembled -> end
//! inside:              Waiting -> Released -> Unshared -> Mounted -> Hidden -> Pivoted -> Sealed -> exec
//! ```
#![expect(
    unsafe_code,
    reason = "namespaces, capabilities and filters of system calls have no safe interface"
)]

mod devices;
mod failure;
mod host_files;
mod inside;
mod mounts;
mod outside;
mod place;
mod sys;

use std::os::fd::AsFd;
use std::process::ExitCode;

use launcher::Report;

fn main() -> ExitCode {
    let socket = match outside::socket() {
        Ok(socket) => socket,
        Err(failure) => {
            eprintln!("sandbox-launcher is started by sandboxd only: {}", failure.step);
            return ExitCode::from(2);
        }
    };
    let (report, root) = match outside::launch(&socket) {
        Ok(root) => (Report::Done, Some(root)),
        Err(failure) => (Report::Failed { step: failure.step, error: failure.error }, None),
    };
    let files: Vec<_> = root.iter().map(AsFd::as_fd).collect();
    // Without a daemon that listens nobody needs the report.
    let _ = launcher::send(&socket, &report, &files);
    if report == Report::Done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
