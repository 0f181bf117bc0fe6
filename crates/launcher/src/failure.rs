//! The error of a step.

use std::io;

/// A step that failed, and the kernel's error number.
#[derive(Debug)]
pub struct StepFailure {
    pub step: String,
    pub error: i32,
}

/// Turns an error into the failure of a step.
pub fn failed<E: Into<io::Error>>(step: impl Into<String>) -> impl FnOnce(E) -> StepFailure {
    let step = step.into();
    move |error| StepFailure { step, error: error.into().raw_os_error().unwrap_or(libc::EIO) }
}

impl From<rootfs::StepError> for StepFailure {
    fn from(error: rootfs::StepError) -> Self {
        failed(error.step)(error.source)
    }
}
