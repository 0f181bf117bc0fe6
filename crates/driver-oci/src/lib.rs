//! Backends that start agents by an OCI runtime: containers by `runc`, `crun` or `youki`, and gVisor by `runsc`.
#![expect(
    unsafe_code,
    reason = "what happens between fork and exec, and namespaces of a thread, have no safe interface"
)]

mod attribute_filter;
mod backend;
mod bundle;
mod checkpoint;
mod gvisor;
mod gvisor_filter;
mod netns;
mod runtime;

pub use backend::OciRuntime;
pub use gvisor::{Gvisor, GvisorError, OLDEST_RELEASE};
