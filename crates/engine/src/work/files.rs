//! File operations: admission, requests, and replies.
//!
//! The sandbox is resumed for a file operation and counts as active until the operation is dropped. The agent is untrusted: it can
//! report wrong content, but it cannot make a caller wait without end or buffer more than one page of entries.

pub mod channel;
pub mod content;
pub mod info;
pub mod user_files;
pub mod watch;

use std::borrow::Cow;
use std::collections::VecDeque;

use api::SandboxState;
use bytes::Bytes;
use guest_proto::{FileErrorKind, FileReply, FileRequest, ProtoError, Tally, WatchEventKind};
use rules::{AutoResume, Operation};
use tokio::sync::watch::Receiver;

use crate::error::{EngineError, FileError, SandboxError};
use crate::link::{Agent, LinkError};
use crate::record::status::Status;
use crate::registry::mailbox::{ActorHandle, ActorRequest, Admission, Permit};
use crate::work::agent_timeout::{AGENT_TIMEOUT, AgentTimeout};
use channel::{ChannelRead, FileChannel};
use info::{FileInfo, FileRange, info};
use user_files::{PathDetails, UserFileOp};

/// Most entries of a tree; the agent allows no more.
const MAX_TREE: usize = 100_000;

/// A file operation. Paths are absolute or relative to the sandbox's working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileOp {
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

/// A page of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryPage {
    pub entries: Vec<(Vec<u8>, FileInfo)>,
    pub total: u64,
}

/// A response to a file operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileResponse {
    Info(FileInfo),
    Entry(Vec<u8>, FileInfo),
    Listed(u64),
    Content {
        info: FileInfo,
        offset: u64,
        length: Option<u64>,
    },
    Packing,
    Done(Tally),
    Details(Box<PathDetails>),
    Watching,
    Changed(WatchEventKind, Vec<u8>),
    /// Events of a watch were lost.
    Overflow,
    Synced,
}

/// A running file operation. Dropping it aborts the operation.
pub struct FileOperation {
    channel: FileChannel,
    status: Receiver<Status>,
    /// The absolute paths of the operation.
    pub paths: Vec<Vec<u8>>,
}

/// Waits for admission and starts the operation.
pub async fn start(
    handle: &ActorHandle,
    auto_resume: AutoResume,
    op: &FileOp,
) -> Result<FileOperation, EngineError> {
    let operation = Operation::Files { auto_resume };
    let Admission { permit, agent, record, status } =
        handle.request(|reply| ActorRequest::Enter { operation, reply }).await?;
    let workdir = record.config.workdir.as_bytes();
    let paths: Vec<Vec<u8>> =
        op.paths().into_iter().map(|path| absolute(workdir, path).into_owned()).collect();
    if let Some(path) = paths.iter().find(|path| path.len() > guest_proto::MAX_PATH || path.contains(&0)) {
        let message = format!(
            "the path has {} bytes; a path has at most {} bytes and no NUL byte",
            path.len(),
            guest_proto::MAX_PATH
        );
        return Err(FileError { kind: FileErrorKind::Invalid, message }.into());
    }
    let wire = op.request(&paths);
    let channel = open(&agent, permit, &status, &wire, None).await?;
    Ok(FileOperation { channel, paths, status })
}

/// Waits for admission and starts an operation on behalf of a user. The agent resolves its paths.
pub async fn start_for_user(
    handle: &ActorHandle,
    auto_resume: AutoResume,
    user: &str,
    op: &UserFileOp,
) -> Result<FileOperation, EngineError> {
    op.check(user)?;
    let operation = Operation::Files { auto_resume };
    let Admission { permit, agent, status, .. } =
        handle.request(|reply| ActorRequest::Enter { operation, reply }).await?;
    let channel = open(&agent, permit, &status, &op.request(), Some(user)).await?;
    Ok(FileOperation { channel, paths: Vec::new(), status })
}

async fn open(
    agent: &Agent,
    permit: Permit,
    status: &Receiver<Status>,
    request: &FileRequest<'_>,
    user: Option<&str>,
) -> Result<FileChannel, EngineError> {
    let mut timeout = AgentTimeout::new(AGENT_TIMEOUT, status.clone());
    let started = timeout.answer(agent.file(request.clone(), user)).await;
    let channel = FileChannel::new(started.map_err(|error| engine_error(error, status))?, timeout);
    channel.release_at_end(permit);
    Ok(channel)
}

/// An error of the link is NOT_FOUND if the sandbox was terminated.
fn engine_error(error: LinkError, status: &Receiver<Status>) -> EngineError {
    match error {
        LinkError::Closed | LinkError::Io(_) | LinkError::Silent(_)
            if status.borrow().state() == SandboxState::Terminated =>
        {
            EngineError::Sandbox(SandboxError::NotFound { terminated: None })
        }
        error => error.into(),
    }
}

pub(crate) fn absolute<'a>(workdir: &[u8], path: &'a [u8]) -> Cow<'a, [u8]> {
    if path.starts_with(b"/") {
        return path.into();
    }
    let between: &[u8] = if workdir.ends_with(b"/") || path.is_empty() { b"" } else { b"/" };
    [workdir, between, path].concat().into()
}

impl FileOp {
    /// Whether it takes space on the disk.
    pub fn writes(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::MakeDir { .. } | Self::Unpack { .. })
    }

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

    /// The request to the agent. `paths` are the absolute paths of this operation.
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

impl FileOperation {
    /// Waits for the next response.
    pub async fn next_response(&mut self) -> Result<FileResponse, EngineError> {
        loop {
            match self.channel.reply(decode).await.map_err(|error| engine_error(error, &self.status))? {
                ChannelRead::Data(Decoded::Response(response)) => return Ok(response),
                ChannelRead::Data(Decoded::Working) => {}
                ChannelRead::Data(Decoded::Failed(engine_error)) => return Err(engine_error.into()),
                ChannelRead::Ended { .. } => {
                    return Err(LinkError::Unexpected {
                        wanted: "a response",
                        got: "the end of the operation",
                    }
                    .into());
                }
            }
        }
    }

    /// Waits for the next response; `None` if the operation has ended with success. Cancel safe.
    pub(crate) async fn next_or_end(&mut self) -> Result<Option<FileResponse>, EngineError> {
        loop {
            match self.channel.reply(decode).await.map_err(|error| engine_error(error, &self.status))? {
                ChannelRead::Data(Decoded::Response(response)) => return Ok(Some(response)),
                ChannelRead::Data(Decoded::Working) => {}
                ChannelRead::Data(Decoded::Failed(error)) => return Err(error.into()),
                ChannelRead::Ended { whole: true } => return Ok(None),
                ChannelRead::Ended { whole: false } => return Err(unexpected()),
            }
        }
    }

    /// The metadata that the operation reports.
    pub async fn info(mut self) -> Result<FileInfo, EngineError> {
        match self.next_response().await? {
            FileResponse::Info(info) => Ok(info),
            _ => Err(unexpected()),
        }
    }

    /// The number of files and bytes that the operation processed.
    pub async fn tally(mut self) -> Result<Tally, EngineError> {
        match self.next_response().await? {
            FileResponse::Done(tally) => Ok(tally),
            _ => Err(unexpected()),
        }
    }

    /// Collects the entries of a directory page, at most `limit`.
    pub async fn into_page(mut self, limit: u32) -> Result<DirectoryPage, EngineError> {
        let mut entries = Vec::new();
        loop {
            match self.next_response().await? {
                FileResponse::Entry(name, info) if entries.len() < limit as usize => {
                    entries.push((name, info));
                }
                FileResponse::Listed(total) => return Ok(DirectoryPage { entries, total }),
                _ => return Err(unexpected()),
            }
        }
    }

    /// The details that the operation reports.
    pub async fn details(mut self) -> Result<PathDetails, EngineError> {
        match self.next_response().await? {
            FileResponse::Details(details) => Ok(*details),
            _ => Err(unexpected()),
        }
    }

    /// The entries of a tree, one at a time.
    pub fn into_tree(self) -> TreeEntries {
        TreeEntries { operation: self, count: 0 }
    }

    /// Waits for the next content bytes after the response that announces them; `None` at their end. An error may follow instead.
    pub async fn bytes(&mut self) -> Result<Option<Bytes>, EngineError> {
        match self.channel.bytes().await.map_err(|error| engine_error(error, &self.status))? {
            ChannelRead::Data(bytes) => Ok(Some(bytes)),
            ChannelRead::Ended { whole: true } => Ok(None),
            ChannelRead::Ended { whole: false } => {
                Err(LinkError::Unexpected { wanted: "the complete content", got: "its end" }.into())
            }
        }
    }

    /// Sends content, in any number of parts. False if the operation accepts no more; its next response has the reason.
    pub async fn send_upload(&mut self, parts: VecDeque<Bytes>) -> Result<bool, EngineError> {
        self.channel.send_upload(parts).await.map_err(|error| engine_error(error, &self.status))
    }

    /// Marks the content as complete.
    pub async fn finish(&mut self) -> Result<bool, EngineError> {
        self.channel.finish().await.map_err(|error| engine_error(error, &self.status))
    }
}

/// The entries of a tree. The agent waits until they are asked for, so none but the next is held here.
pub struct TreeEntries {
    operation: FileOperation,
    count: usize,
}

impl TreeEntries {
    /// The details of the next entry; `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<PathDetails>, EngineError> {
        match self.operation.next_response().await? {
            FileResponse::Details(details) if self.count < MAX_TREE => {
                self.count += 1;
                Ok(Some(*details))
            }
            FileResponse::Listed(_) => Ok(None),
            _ => Err(unexpected()),
        }
    }
}

enum Decoded {
    Response(FileResponse),
    Working,
    Failed(FileError),
}

fn decode(reply: &FileReply<'_>) -> Result<Decoded, ProtoError> {
    Ok(Decoded::Response(match *reply {
        FileReply::Stat(stat) => FileResponse::Info(info(&stat)),
        FileReply::Entry { name, stat } => FileResponse::Entry(name.to_vec(), info(&stat)),
        FileReply::Listed { total } => FileResponse::Listed(total),
        FileReply::Content { stat, offset, length } => {
            FileResponse::Content { info: info(&stat), offset, length }
        }
        FileReply::Packing => FileResponse::Packing,
        FileReply::Done(tally) => FileResponse::Done(tally),
        FileReply::Details(ref details) => FileResponse::Details(Box::new(PathDetails::from_wire(details))),
        FileReply::Watching => FileResponse::Watching,
        FileReply::Changed { kind, name } => FileResponse::Changed(kind, name.to_vec()),
        FileReply::Overflow => FileResponse::Overflow,
        FileReply::Synced => FileResponse::Synced,
        FileReply::Working => return Ok(Decoded::Working),
        FileReply::Failed { kind, message } => {
            return Ok(Decoded::Failed(FileError { kind, message: message.to_owned() }));
        }
    }))
}

pub(crate) fn unexpected() -> EngineError {
    LinkError::Unexpected { wanted: "the response of this operation", got: "another one" }.into()
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
