//! The root file system of a sandbox, mounted in a private mount namespace: a disk and the layers of an image with mapped ids,
//! an overlay over them, and the sandbox's `/sys`.
#![expect(unsafe_code, reason = "id maps of mounts and file system ids have no safe interface")]

mod idmap;
mod net_counters;
mod oom_score;
mod overlay;
mod sysfs;

pub use idmap::{Attributes, IDS, UserNamespace, attach, set_attributes};
pub use net_counters::hide_host_counters;
pub use oom_score::reset_oom_score;
pub use overlay::{Layer, StepError, as_owner, assemble, leave_host_namespace, prepare};
pub use sysfs::{
    BOOT_ID, DIRECTORY as SYS, EMPTY_DIR, EMPTY_FILE, PARTS as SYS_PARTS, WHOLE as WHOLE_SYS, cover_mounts,
    prepare_cgroup, replacement,
};
