//! Work that waits for the disk or the kernel, on threads for it.

use std::fmt;
use std::io;

use tokio::task::JoinError;

/// Work that has no result: it panicked, or the runtime stopped before it began.
#[derive(Debug)]
pub struct TaskLost(JoinError);

impl fmt::Display for TaskLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for TaskLost {}

impl From<TaskLost> for io::Error {
    fn from(lost: TaskLost) -> Self {
        Self::other(lost)
    }
}

/// Runs work that would hold up an async worker. It runs to its end also if the caller stops waiting.
pub async fn blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<TaskLost> + Send + 'static,
{
    tokio::task::spawn_blocking(work).await.map_err(TaskLost)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_caller_gets_the_result_or_the_error() {
        assert_eq!(blocking(|| Ok::<_, io::Error>(1)).await.unwrap(), 1);
        let failed: io::Result<()> = blocking(|| Err(io::ErrorKind::NotFound.into())).await;
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn a_panic_is_an_error_of_the_caller() {
        let lost: io::Result<()> = blocking(|| panic!("a bug")).await;
        let error = lost.unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
        assert!(error.get_ref().is_some_and(|source| source.is::<TaskLost>()));
    }
}
