//! Work among a sandbox's files: who is let in, and what comes of it. The server's file routes call it.
//!
//! The sandbox is woken, and kept awake until the work is dropped. All that an agent says is taken for hostile: it can lie about
//! its files, and can neither make a caller wait for ever nor hold more than a page of entries in our memory.

use std::borrow::Cow;

use api::SandboxState;
use bytes::Bytes;
use guest_proto::{FileErrorKind, FileKind, FileReply, FileRequest, FileStat, ProtoError, Tally};

use crate::deadline::AGENT_PATIENCE;
use crate::error::{EngineError, FileFault};
use crate::handle::{Entry, Handle, Request};
use crate::link::{Errand, LinkError, Reply};
use crate::patience::Patience;
use crate::status::Status;
use rules::{AutoResume, Operation};
use tokio::sync::watch;

/// What is to be done. Paths are absolute or relative to the sandbox's working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileOrder {
    Read { path: Vec<u8>, range: FileRange },
    Stat { path: Vec<u8>, follow: bool },
    List { path: Vec<u8>, offset: u64, limit: u32 },
    Write { path: Vec<u8>, mode: Option<u32>, parents: bool },
    MakeDir { path: Vec<u8>, mode: Option<u32>, recursive: bool },
    Delete { path: Vec<u8>, recursive: bool },
    Move { from: Vec<u8>, to: Vec<u8>, overwrite: bool },
    Pack { path: Vec<u8> },
    Unpack { path: Vec<u8> },
}

/// Bytes of a file. [`FileRange::ALL`] is all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRange {
    pub offset: u64,
    /// `offset` counts from the end.
    pub from_end: bool,
    pub length: Option<u64>,
}

impl FileRange {
    pub const ALL: Self = Self { offset: 0, from_end: false, length: None };
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    pub kind: FileKind,
    pub mode: u32,
    pub size: u64,
    pub modified_ns: i64,
    pub inode: u64,
    /// Where a link leads.
    pub target: Option<Vec<u8>>,
}

/// A page of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub entries: Vec<(Vec<u8>, FileInfo)>,
    pub total: u64,
}

/// What was said of the work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Info(FileInfo),
    Entry(Vec<u8>, FileInfo),
    Listed(u64),
    Content { info: FileInfo, offset: u64, length: Option<u64> },
    Packing,
    Done(Tally),
}

/// Work that is under way. Dropped, it is ended.
pub struct FileWork {
    errand: Errand,
    status: watch::Receiver<Status>,
    /// The sandbox's working directory and the paths as they were asked for, made absolute.
    pub paths: Vec<Vec<u8>>,
}

/// Lets the work in and starts it.
pub async fn start(handle: &Handle, auto_resume: bool, order: &FileOrder) -> Result<FileWork, EngineError> {
    let operation = Operation::Files { auto_resume: AutoResume::from(auto_resume) };
    let Entry { permit, agent, record, status } =
        handle.ask(|reply| Request::Enter { operation, reply }).await?;
    let workdir = record.config.workdir.as_bytes();
    let paths: Vec<Vec<u8>> =
        order.paths().into_iter().map(|path| absolute(workdir, path).into_owned()).collect();
    if let Some(path) = paths.iter().find(|path| path.len() > guest_proto::MAX_PATH || path.contains(&0)) {
        let message = format!(
            "a path of {} bytes cannot be; allowed are {}, without NUL",
            path.len(),
            guest_proto::MAX_PATH
        );
        return Err(FileFault { kind: FileErrorKind::Invalid, message }.into());
    }
    let errand = agent.file(order.request(&paths), Patience::new(AGENT_PATIENCE, status.clone())).await;
    let errand = errand.map_err(|error| fault(error, &status))?;
    errand.hold(permit);
    Ok(FileWork { errand, paths, status })
}

/// What broke because the sandbox ended is no fault.
fn fault(error: LinkError, status: &watch::Receiver<Status>) -> EngineError {
    match error {
        LinkError::Closed | LinkError::Io(_) | LinkError::Silent(_)
            if status.borrow().state() == SandboxState::Terminated =>
        {
            EngineError::NotFound { terminated: None }
        }
        error => error.into(),
    }
}

fn absolute<'a>(workdir: &[u8], path: &'a [u8]) -> Cow<'a, [u8]> {
    if path.starts_with(b"/") {
        return path.into();
    }
    let between: &[u8] = if workdir.ends_with(b"/") || path.is_empty() { b"" } else { b"/" };
    [workdir, between, path].concat().into()
}

impl FileOrder {
    fn paths(&self) -> Vec<&[u8]> {
        match self {
            Self::Read { path, .. }
            | Self::Stat { path, .. }
            | Self::List { path, .. }
            | Self::Write { path, .. }
            | Self::MakeDir { path, .. }
            | Self::Delete { path, .. }
            | Self::Pack { path }
            | Self::Unpack { path } => vec![path],
            Self::Move { from, to, .. } => vec![from, to],
        }
    }

    /// In the protocol's words; `paths` are this order's own.
    fn request<'a>(&self, paths: &'a [Vec<u8>]) -> FileRequest<'a> {
        let path = paths.first().map_or(&[][..], Vec::as_slice);
        let second = paths.get(1).map_or(&[][..], Vec::as_slice);
        match *self {
            Self::Read { range: FileRange { offset, from_end, length }, .. } => {
                FileRequest::Read { path, offset, from_end, length }
            }
            Self::Stat { follow, .. } => FileRequest::Stat { path, follow },
            Self::List { offset, limit, .. } => FileRequest::List { path, offset, limit },
            Self::Write { mode, parents, .. } => FileRequest::Write { path, mode, parents },
            Self::MakeDir { mode, recursive, .. } => FileRequest::MakeDir { path, mode, recursive },
            Self::Delete { recursive, .. } => FileRequest::Delete { path, recursive },
            Self::Move { overwrite, .. } => FileRequest::Move { from: path, to: second, overwrite },
            Self::Pack { .. } => FileRequest::Pack { path },
            Self::Unpack { .. } => FileRequest::Unpack { path },
        }
    }
}

impl FileWork {
    /// What is said next.
    pub async fn said(&mut self) -> Result<Said, EngineError> {
        loop {
            match self.errand.reply(heard).await.map_err(|error| fault(error, &self.status))? {
                Reply::Said(Heard::Said(said)) => return Ok(said),
                Reply::Said(Heard::Working) => {}
                Reply::Said(Heard::Failed(fault)) => return Err(fault.into()),
                Reply::Ended { .. } => {
                    return Err(LinkError::Unexpected { wanted: "an answer", got: "the end" }.into());
                }
            }
        }
    }

    /// What is at the path.
    pub async fn info(mut self) -> Result<FileInfo, EngineError> {
        match self.said().await? {
            Said::Info(info) => Ok(info),
            _ => Err(unexpected()),
        }
    }

    /// How much was done.
    pub async fn tally(mut self) -> Result<Tally, EngineError> {
        match self.said().await? {
            Said::Done(tally) => Ok(tally),
            _ => Err(unexpected()),
        }
    }

    /// At most `limit` entries.
    pub async fn listed(mut self, limit: u32) -> Result<Listed, EngineError> {
        let mut entries = Vec::new();
        loop {
            match self.said().await? {
                Said::Entry(name, info) if entries.len() < limit as usize => entries.push((name, info)),
                Said::Listed(total) => return Ok(Listed { entries, total }),
                _ => return Err(unexpected()),
            }
        }
    }

    /// The next raw bytes, behind what says that they come; nothing at their end, which an error may be.
    pub async fn bytes(&mut self) -> Result<Option<Bytes>, EngineError> {
        match self.errand.bytes().await.map_err(|error| fault(error, &self.status))? {
            Reply::Said(bytes) => Ok(Some(bytes)),
            Reply::Ended { whole: true } => Ok(None),
            Reply::Ended { whole: false } => {
                Err(LinkError::Unexpected { wanted: "all bytes", got: "an end before" }.into())
            }
        }
    }

    /// Feeds it. False when it takes no more; what it says next says why.
    pub async fn feed(&mut self, bytes: &[u8]) -> Result<bool, EngineError> {
        self.errand.feed(bytes).await.map_err(|error| fault(error, &self.status))
    }

    /// Says that all was fed.
    pub async fn finish(&mut self) -> Result<bool, EngineError> {
        self.errand.finish().await.map_err(|error| fault(error, &self.status))
    }
}

enum Heard {
    Said(Said),
    Working,
    Failed(FileFault),
}

fn heard(reply: &FileReply<'_>) -> Result<Heard, ProtoError> {
    Ok(Heard::Said(match *reply {
        FileReply::Stat(stat) => Said::Info(info(&stat)),
        FileReply::Entry { name, stat } => Said::Entry(name.to_vec(), info(&stat)),
        FileReply::Listed { total } => Said::Listed(total),
        FileReply::Content { stat, offset, length } => Said::Content { info: info(&stat), offset, length },
        FileReply::Packing => Said::Packing,
        FileReply::Done(tally) => Said::Done(tally),
        FileReply::Working => return Ok(Heard::Working),
        FileReply::Failed { kind, message } => {
            return Ok(Heard::Failed(FileFault { kind, message: message.to_owned() }));
        }
    }))
}

fn info(stat: &FileStat<'_>) -> FileInfo {
    FileInfo {
        kind: stat.kind,
        mode: stat.mode & guest_proto::MODE_BITS,
        size: stat.size,
        modified_ns: stat.modified_ns,
        inode: stat.inode,
        target: stat.target.map(<[u8]>::to_vec),
    }
}

fn unexpected() -> EngineError {
    LinkError::Unexpected { wanted: "another answer", got: "this" }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_begin_at_the_working_directory() {
        for (workdir, path, expected) in [
            ("/workspace", "a", "/workspace/a"),
            ("/workspace", "", "/workspace"),
            ("/", "a", "/a"),
            ("/w", "../a", "/w/../a"),
            ("/w", "/a", "/a"),
        ] {
            assert_eq!(&*absolute(workdir.as_bytes(), path.as_bytes()), expected.as_bytes());
        }
    }
}
