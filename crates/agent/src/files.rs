//! What an errand does, in a process of its own: one operation among the sandbox's files, with the sandbox's own eyes. Called by
//! `errand`.
//!
//! Its input is descriptor 0, its output descriptor 1, both blocking; who does not read it any more ends it. It opens nothing that
//! could block or act by being opened: what is no file is told apart first.

mod archive;
mod copy;
mod delete;
mod dirs;
mod fault;
mod feed;
mod header;
mod list;
mod pack;
mod read;
mod relocate;
mod say;
mod stat;
mod temporary;
mod unpack;
mod write;

use guest_proto::{FileReply, FileRequest};

use fault::Fault;
use feed::Feed;
use say::Say;

/// Whether the errand is fed.
pub fn is_fed(request: &FileRequest<'_>) -> bool {
    matches!(request, FileRequest::Write { .. } | FileRequest::Unpack { .. })
}

/// Does what is asked. False if it was not done, or not to its end; why has been said, if anybody listens.
pub fn run(request: &FileRequest<'_>) -> bool {
    let mut say = Say::new();
    let done = act(request, &mut say).and_then(|()| say.flush());
    match done {
        Ok(()) => true,
        Err(Fault::Told { kind, message }) => {
            say.fault(kind, &message);
            false
        }
        Err(Fault::Gone) => false,
    }
}

fn act(request: &FileRequest<'_>, say: &mut Say) -> Result<(), Fault> {
    match *request {
        FileRequest::Read { path, offset, from_end, length } => {
            read::read(path, read::Range { offset, from_end, length }, say)
        }
        FileRequest::Stat { path, follow } => stat::tell(path, follow, say),
        FileRequest::List { path, offset, limit } => list::list(path, offset, limit, say),
        FileRequest::Write { path, mode, parents } => {
            write::write(path, mode, parents, &mut Feed::new())?;
            stat::tell(path, true, say)
        }
        FileRequest::MakeDir { path, mode, recursive } => {
            dirs::make(path, mode, recursive)?;
            stat::tell(path, true, say)
        }
        FileRequest::Delete { path, recursive } => {
            let tally = delete::delete(path, recursive, say)?;
            say.reply(&FileReply::Done(tally))
        }
        FileRequest::Move { from, to, overwrite } => {
            relocate::relocate(from, to, overwrite, say)?;
            stat::tell(to, false, say)
        }
        FileRequest::Pack { path } => pack::pack(path, say),
        FileRequest::Unpack { path } => {
            let tally = unpack::unpack(path, &mut Feed::new())?;
            say.reply(&FileReply::Done(tally))
        }
    }
}
