//! The file operations, as seen from inside the sandbox. Each runs in a process of its own. Called by
//! `file_op`.
//!
//! Input is descriptor 0, output descriptor 1, both blocking; a reader that closes ends it. It opens nothing that
//! could block or have effects when opened: the type of a file is checked first.

mod accounts;
mod archive;
mod copy;
mod delete;
mod details;
mod dirs;
mod entry_events;
mod failure;
mod header;
mod in_place;
mod list;
mod pack;
mod read;
mod relocate;
mod reply;
mod stat;
mod temporary;
mod unpack;
mod upload;
mod watch;
mod watched_dirs;
mod write;

use guest_proto::{FileErrorKind, FileReply, FileRequest};

use crate::users::User;
use delete::Depth;
use details::Describer;
use failure::FileFailure;
use relocate::Existing;
use reply::ReplyWriter;
use stat::LinkUse;
use upload::Upload;

/// Whether the operation reads an upload.
pub fn has_upload(request: &FileRequest<'_>) -> bool {
    matches!(
        request,
        FileRequest::Write { .. }
            | FileRequest::Unpack { .. }
            | FileRequest::WriteInPlace { .. }
            | FileRequest::Watch { .. }
    )
}

/// Performs the operation. False if it failed; the error was reported, if the host still reads.
pub fn run(request: &FileRequest<'_>, user: Option<&str>) -> bool {
    let mut reply = ReplyWriter::new();
    let done = match user {
        None => act(request, &mut reply),
        Some(name) => act_for(request, name, &mut reply),
    };
    let done = done.and_then(|()| reply.flush());
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
        FileRequest::Stat { path, follow } => {
            stat::send(path, if follow { LinkUse::Target } else { LinkUse::Link }, reply)
        }
        FileRequest::List { path, offset, limit } => list::list(path, offset, limit, reply),
        FileRequest::Write { path, mode, parents } => {
            write::write(path, mode, parents, &mut Upload::new())?;
            stat::send(path, LinkUse::Target, reply)
        }
        FileRequest::MakeDir { path, mode, recursive } => {
            dirs::make(path, mode, recursive)?;
            stat::send(path, LinkUse::Target, reply)
        }
        FileRequest::Delete { path, recursive } => {
            let depth = if recursive { Depth::Tree } else { Depth::Empty };
            let tally = delete::delete(path, depth, reply)?;
            reply.send(&FileReply::Done(tally))
        }
        FileRequest::Move { from, to, overwrite } => {
            let existing = if overwrite { Existing::Replaced } else { Existing::Kept };
            relocate::relocate(from, to, existing, reply)?;
            stat::send(to, LinkUse::Link, reply)
        }
        FileRequest::Pack { path } => pack::pack(path, reply),
        FileRequest::Unpack { path } => {
            let tally = unpack::unpack(path, None, &mut Upload::new())?;
            reply.send(&FileReply::Done(tally))
        }
        FileRequest::CreateUser { name, uid } => {
            accounts::create(name, uid)?;
            reply.send(&FileReply::Done(guest_proto::Tally::default()))
        }
        FileRequest::Sync => {
            rustix::fs::sync();
            reply.send(&FileReply::Done(guest_proto::Tally::default()))
        }
        FileRequest::Watch { path, recursive } => watch::watch(path, recursive, &mut Upload::new(), reply),
        FileRequest::Describe { path, attributes } => Describer::new(attributes).send(path, reply),
        FileRequest::ListTree { path, depth, attributes } => {
            Describer::new(attributes).send_tree(path, depth, reply)
        }
        FileRequest::SetAttributes { path, ref attributes } => {
            in_place::set_attributes(path, attributes)?;
            Describer::new(Some(attributes.prefix)).send(path, reply)
        }
        FileRequest::WriteInPlace { .. } | FileRequest::MakeDirs { .. } | FileRequest::Rename { .. } => {
            Err(FileFailure::new(FileErrorKind::Invalid, "this operation needs a user"))
        }
    }
}

/// Performs an operation on behalf of a user.
fn act_for(request: &FileRequest<'_>, name: &str, reply: &mut ReplyWriter) -> Result<(), FileFailure> {
    let user = User::find(name).map_err(|missing| {
        let (what, name) = missing.described();
        let message = format!("the sandbox has no {what} '{}'", failure::shown(name.as_bytes()));
        FileFailure::new(FileErrorKind::UserMissing, message)
    })?;
    let absolute = paths_mut(&mut request.clone()).map(|path| path.map(|path| user.path(path)));
    if let Some(long) = absolute.iter().flatten().find(|path| path.len() > guest_proto::MAX_PATH) {
        return Err(FileFailure::of(rustix::io::Errno::NAMETOOLONG, long));
    }
    let mut request = request.clone();
    for (path, absolute) in paths_mut(&mut request).into_iter().flatten().zip(absolute.iter().flatten()) {
        *path = absolute;
    }
    match request {
        FileRequest::WriteInPlace { path, attributes } => {
            in_place::write(path, &user, attributes.as_ref(), &mut Upload::new())?;
            let prefix = attributes.as_ref().map(|attributes| attributes.prefix);
            Describer::new(prefix).send(path, reply)
        }
        FileRequest::MakeDirs { path } => {
            in_place::make_dirs(path, &user)?;
            Describer::new(None).send(path, reply)
        }
        FileRequest::Unpack { path } => {
            let tally = unpack::unpack(path, Some(&user), &mut Upload::new())?;
            reply.send(&FileReply::Done(tally))
        }
        FileRequest::Rename { from, to } => {
            in_place::rename(from, to, &user, reply)?;
            Describer::new(None).send(to, reply)
        }
        request => act(&request, reply),
    }
}

/// The paths of a request.
fn paths_mut<'r, 'a>(request: &'r mut FileRequest<'a>) -> [Option<&'r mut &'a [u8]>; 2] {
    match request {
        FileRequest::Read { path, .. }
        | FileRequest::Stat { path, .. }
        | FileRequest::List { path, .. }
        | FileRequest::Write { path, .. }
        | FileRequest::MakeDir { path, .. }
        | FileRequest::Delete { path, .. }
        | FileRequest::Pack { path }
        | FileRequest::Unpack { path }
        | FileRequest::Describe { path, .. }
        | FileRequest::ListTree { path, .. }
        | FileRequest::WriteInPlace { path, .. }
        | FileRequest::MakeDirs { path }
        | FileRequest::SetAttributes { path, .. }
        | FileRequest::Watch { path, .. } => [Some(path), None],
        FileRequest::Move { from, to, .. } | FileRequest::Rename { from, to } => [Some(from), Some(to)],
        FileRequest::CreateUser { .. } | FileRequest::Sync => [None, None],
    }
}
