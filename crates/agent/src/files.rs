//! The file operations, as seen from inside the sandbox. Each runs in a process of its own. Called by
//! `file_op`.
//!
//! Input is descriptor 0, output descriptor 1, both blocking; a reader that closes ends it. It opens nothing that
//! could block or have effects when opened: the type of a file is checked first.

mod archive;
mod copy;
mod delete;
mod dirs;
mod failure;
mod header;
mod list;
mod pack;
mod read;
mod relocate;
mod reply;
mod stat;
mod temporary;
mod unpack;
mod upload;
mod write;

use guest_proto::{FileReply, FileRequest};

use failure::FileFailure;
use reply::ReplyWriter;
use upload::Upload;

/// Whether the operation reads an upload.
pub fn has_upload(request: &FileRequest<'_>) -> bool {
    matches!(request, FileRequest::Write { .. } | FileRequest::Unpack { .. })
}

/// Performs the operation. False if it failed; the error was reported, if the host still reads.
pub fn run(request: &FileRequest<'_>) -> bool {
    let mut reply = ReplyWriter::new();
    let done = act(request, &mut reply).and_then(|()| reply.flush());
    match done {
        Ok(()) => true,
        Err(FileFailure::Reported { kind, message }) => {
            reply.failure(kind, &message);
            false
        }
        Err(FileFailure::Unreportable) => false,
    }
}

fn act(request: &FileRequest<'_>, reply: &mut ReplyWriter) -> Result<(), FileFailure> {
    match *request {
        FileRequest::Read { path, offset, from_end, length } => {
            read::read(path, read::Range { offset, from_end, length }, reply)
        }
        FileRequest::Stat { path, follow } => stat::send(path, follow, reply),
        FileRequest::List { path, offset, limit } => list::list(path, offset, limit, reply),
        FileRequest::Write { path, mode, parents } => {
            write::write(path, mode, parents, &mut Upload::new())?;
            stat::send(path, true, reply)
        }
        FileRequest::MakeDir { path, mode, recursive } => {
            dirs::make(path, mode, recursive)?;
            stat::send(path, true, reply)
        }
        FileRequest::Delete { path, recursive } => {
            let tally = delete::delete(path, recursive, reply)?;
            reply.send(&FileReply::Done(tally))
        }
        FileRequest::Move { from, to, overwrite } => {
            relocate::relocate(from, to, overwrite, reply)?;
            stat::send(to, false, reply)
        }
        FileRequest::Pack { path } => pack::pack(path, reply),
        FileRequest::Unpack { path } => {
            let tally = unpack::unpack(path, &mut Upload::new())?;
            reply.send(&FileReply::Done(tally))
        }
    }
}
