//! Errors of requests, and of builds.

use std::io;

use api::TemplateId;
use base::TaskLost;
use dockerfile::DockerfileError;
use engine::{DaemonError, EngineError};
use store::StoreError;

/// Why a request fails.
#[derive(Debug, thiserror::Error)]
pub enum BuilderError {
    #[error("template {} does not exist", rules::quoted(id))]
    NotFound { id: String },
    #[error("an identical build, '{id}', is in progress; wait for its end or cancel it")]
    InProgress { id: TemplateId },
    #[error(transparent)]
    Dockerfile(#[from] DockerfileError),
    /// The build context is not a tar archive, or too large.
    #[error("the build context {0}")]
    Context(String),
    #[error(
        "{active} builds of the account are queued or running; allowed: {allowed}; wait for one to end or cancel it"
    )]
    TooManyBuilds { active: usize, allowed: usize },
    #[error(
        "the build contexts of the account's queued and running builds have {} MB together; allowed, with that of this build: {} MB; \
         wait for one to end or cancel it",
        used_bytes >> 20, allowed_bytes >> 20
    )]
    QueuedContexts { used_bytes: u64, allowed_bytes: u64 },
    #[error("{active} uploads of the account are in progress; allowed: {allowed}; wait for one to end")]
    TooManyUploads { active: usize, allowed: usize },
    #[error(
        "the uploads in progress of the account have more than {} MB together; wait for one to end",
        allowed_bytes >> 20
    )]
    UploadedBytes { allowed_bytes: u64 },
    #[error("{allowed} uploads are in progress on this host, the maximum; try again later")]
    UploadsBusy { allowed: usize },
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("cannot access the files of a template: {0}")]
    Io(#[from] io::Error),
    #[error("the service is stopping")]
    Stopping,
}

/// The runtime has stopped.
impl From<TaskLost> for BuilderError {
    fn from(_: TaskLost) -> Self {
        Self::Stopping
    }
}

impl From<StoreError> for BuilderError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}

/// Why a build ends without a template. The message is for its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildError {
    pub message: String,
    /// In the Dockerfile.
    pub line: Option<usize>,
}

impl BuildError {
    /// An error of the build as a whole, as the log and the template show it.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), line: None }
    }

    /// An error of one line of the Dockerfile.
    pub fn at(line: usize, message: impl Into<String>) -> Self {
        Self { message: message.into(), line: Some(line) }
    }

    /// The line, unless it is known more exactly.
    pub fn in_line(self, line: usize) -> Self {
        Self { line: self.line.or(Some(line)), ..self }
    }
}

impl std::fmt::Display for BuildError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl From<DockerfileError> for BuildError {
    fn from(error: DockerfileError) -> Self {
        Self::at(error.line, error.message)
    }
}

/// How a part of a build ended early.
#[derive(Debug)]
pub enum Ended {
    Failed(BuildError),
    /// The daemon stops: the next one continues the build.
    Stopping,
}

impl From<BuildError> for Ended {
    fn from(error: BuildError) -> Self {
        Self::Failed(error)
    }
}

impl From<DockerfileError> for Ended {
    fn from(error: DockerfileError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        tracing::error!(%error, "cannot read the files of a build");
        Self::Failed(BuildError::new("an internal error of the service"))
    }
}

impl From<BuilderError> for Ended {
    fn from(error: BuilderError) -> Self {
        match error {
            BuilderError::Engine(error) => error.into(),
            BuilderError::Io(error) => error.into(),
            BuilderError::Stopping => Self::Stopping,
            error => Self::Failed(BuildError::new(error.to_string())),
        }
    }
}

impl From<EngineError> for Ended {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Daemon(DaemonError::Stopping) => Self::Stopping,
            error if error.is_internal() => {
                tracing::error!(%error, "a step of a build failed");
                Self::Failed(BuildError::new("an internal error of the service"))
            }
            error => Self::Failed(BuildError::new(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(ended: Ended) -> Option<String> {
        match ended {
            Ended::Failed(error) => Some(error.to_string()),
            Ended::Stopping => None,
        }
    }

    #[test]
    fn the_first_line_that_is_known_is_the_line_of_an_error() {
        assert_eq!(BuildError::new("m").in_line(3), BuildError::at(3, "m"));
        assert_eq!(BuildError::at(2, "m").in_line(3), BuildError::at(2, "m"));
        assert_eq!(
            (BuildError::new("m").to_string(), BuildError::at(3, "m").to_string()),
            ("m".to_owned(), "line 3: m".to_owned())
        );
        let of_file = DockerfileError { line: 7, message: "unknown instruction".to_owned() };
        assert_eq!(BuildError::from(of_file), BuildError::at(7, "unknown instruction"));
    }

    #[test]
    fn errors_of_the_host_are_not_shown_to_the_owner_of_a_build() {
        let internal = Some("an internal error of the service".to_owned());
        assert_eq!(message(io::Error::other("/var/lib/x: disk error").into()), internal);
        assert_eq!(message(BuilderError::Io(io::Error::other("/var/lib/x")).into()), internal);
        let shown = message(BuilderError::Context("is not a valid tar archive".to_owned()).into());
        assert_eq!(shown.as_deref(), Some("the build context is not a valid tar archive"));
    }

    #[test]
    fn a_daemon_that_stops_does_not_fail_a_build() {
        assert_eq!(message(BuilderError::Stopping.into()), None);
        assert_eq!(message(EngineError::Daemon(DaemonError::Stopping).into()), None);
        assert_eq!(message(BuilderError::Engine(EngineError::Daemon(DaemonError::Stopping)).into()), None);
    }

    #[test]
    fn bytes_are_shown_in_mb_and_unknown_names_are_quoted() {
        let queued = BuilderError::QueuedContexts { used_bytes: 5 << 20, allowed_bytes: (8 << 20) + 1 };
        assert!(
            queued.to_string().contains("have 5 MB together; allowed, with that of this build: 8 MB"),
            "{queued}"
        );
        let uploads = BuilderError::UploadedBytes { allowed_bytes: 3 << 20 };
        assert!(uploads.to_string().contains("more than 3 MB together"), "{uploads}");
        let missing = BuilderError::NotFound { id: "a\nb".to_owned() };
        assert!(!missing.to_string().contains('\n'), "{missing}");
    }
}
