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

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_failure_has_the_step_and_the_number_of_the_kernel() {
        let StepFailure { step, error } = failed("mount the disk")(Errno::PERM);
        assert_eq!((step.as_str(), error), ("mount the disk", libc::EPERM));
        // An error that the kernel did not return.
        assert_eq!(failed("x")(io::Error::other("no number")).error, libc::EIO);
    }

    #[test]
    fn a_step_of_the_root_file_system_keeps_its_name() {
        let source = io::Error::from_raw_os_error(libc::ENOSPC);
        let failure = StepFailure::from(rootfs::StepError { step: "make mount points".to_owned(), source });
        assert_eq!((failure.step.as_str(), failure.error), ("make mount points", libc::ENOSPC));
    }
}
