//! A backend that builds containers itself, by the program `sandbox-launcher`: no OCI runtime is needed.

mod backend;
mod launchers;
mod plan;
mod quota;
mod seccomp;

pub use backend::Native;
