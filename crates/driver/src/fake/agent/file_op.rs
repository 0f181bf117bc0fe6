//! File operations of a fake sandbox, on its in-memory files.

use std::io;

use guest_proto::{
    Channel, Exit, FileDetails, FileErrorKind, FileReply, FileRequest, FileStat, LAST_PIECE, PREFIX, Tally,
    ToHost,
};

use super::guest::{Inbox, lock};
use super::script::Stream;
use crate::fake::files::{Disk, Failure};

/// A request with owned paths.
pub enum FileOp {
    Read {
        path: String,
        offset: u64,
        from_end: bool,
        length: Option<u64>,
    },
    Stat(String),
    List {
        path: String,
        offset: u64,
        limit: u32,
    },
    Write {
        path: String,
        mode: Option<u32>,
        parents: bool,
    },
    MakeDir {
        path: String,
        mode: Option<u32>,
        recursive: bool,
    },
    Delete {
        path: String,
        recursive: bool,
    },
    Move {
        from: String,
        to: String,
        overwrite: bool,
    },
    Pack(String),
    Unpack(String),
    Describe(String),
    Tree(String),
    WriteInPlace(String),
    MakeDirs(String),
    Rename(String, String),
    /// Answers requests, and has no events.
    Watch,
    CreateUser,
}

pub fn parse(request: &FileRequest<'_>) -> FileOp {
    let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    match *request {
        FileRequest::Read { path, offset, from_end, length } => {
            FileOp::Read { path: text(path), offset, from_end, length }
        }
        FileRequest::Stat { path, .. } => FileOp::Stat(text(path)),
        FileRequest::List { path, offset, limit } => FileOp::List { path: text(path), offset, limit },
        FileRequest::Write { path, mode, parents } => FileOp::Write { path: text(path), mode, parents },
        FileRequest::MakeDir { path, mode, recursive } => {
            FileOp::MakeDir { path: text(path), mode, recursive }
        }
        FileRequest::Delete { path, recursive } => FileOp::Delete { path: text(path), recursive },
        FileRequest::Move { from, to, overwrite } => {
            FileOp::Move { from: text(from), to: text(to), overwrite }
        }
        FileRequest::Pack { path } => FileOp::Pack(text(path)),
        FileRequest::Unpack { path } => FileOp::Unpack(text(path)),
        FileRequest::Describe { path, .. } | FileRequest::SetAttributes { path, .. } => {
            FileOp::Describe(text(path))
        }
        FileRequest::ListTree { path, .. } => FileOp::Tree(text(path)),
        FileRequest::WriteInPlace { path, .. } => FileOp::WriteInPlace(text(path)),
        FileRequest::MakeDirs { path } => FileOp::MakeDirs(text(path)),
        FileRequest::Rename { from, to } => FileOp::Rename(text(from), text(to)),
        FileRequest::Watch { .. } => FileOp::Watch,
        FileRequest::CreateUser { .. } | FileRequest::Sync => FileOp::CreateUser,
    }
}

/// Runs an operation until it ends or its caller closes it.
pub async fn run(mut stream: Stream, file_op: FileOp, mut inbox: Inbox) -> io::Result<()> {
    // Runs to its end even if the host closes the operation: a partial frame would end the link.
    let exit = perform(&mut stream, file_op, &mut inbox).await?;
    stream.send(&ToHost::Exited { op: stream.op, exit, duration_us: 1 }).await
}

async fn perform(stream: &mut Stream, file_op: FileOp, inbox: &mut Inbox) -> io::Result<Exit> {
    let content = match file_op {
        FileOp::Watch => return watch(stream, inbox).await,
        FileOp::Write { .. } | FileOp::WriteInPlace(_) | FileOp::Unpack(_) => collect_upload(inbox).await,
        _ => Some(Vec::new()),
    };
    let output = match content {
        Some(content) => carry_out(file_op, content, &mut lock(&stream.inner.disk)),
        None => Err((FileErrorKind::Interrupted, "the upload ended before it was complete".to_owned())),
    };
    let (output, exit) = match output {
        Ok(output) => (output, Exit::Code(0)),
        Err((kind, message)) => {
            let mut output = Vec::new();
            append_reply(&FileReply::Failed { kind, message: &message }, &mut output);
            (output, Exit::Code(1))
        }
    };
    stream.print(inbox, Channel::Stdout, &output).await?;
    Ok(exit)
}

/// All that a successful operation sends.
fn carry_out(file_op: FileOp, content: Vec<u8>, disk: &mut Disk) -> Result<Vec<u8>, Failure> {
    let mut output = Vec::new();
    let mut append_stat = |stat: FileStat<'_>| append_reply(&FileReply::Stat(stat), &mut output);
    match file_op {
        FileOp::Stat(path) => append_stat(disk.stat(&path)?),
        FileOp::Write { path, mode, parents } => append_stat(disk.write(&path, mode, parents, content)?),
        FileOp::MakeDir { path, mode, recursive } => append_stat(disk.make_dir(&path, mode, recursive)?),
        FileOp::Move { from, to, overwrite } => append_stat(disk.rename(&from, &to, overwrite)?),
        FileOp::Delete { path, recursive } => {
            append_reply(&FileReply::Done(disk.delete(&path, recursive)?), &mut output);
        }
        FileOp::Unpack(path) => append_reply(&FileReply::Done(disk.unpack(&path, &content)?), &mut output),
        FileOp::Describe(path) => append_details(&path, disk.stat(&path)?, &mut output),
        FileOp::WriteInPlace(path) => {
            let stat = disk.write(&path, None, true, content)?;
            append_details(&path, stat, &mut output);
        }
        FileOp::MakeDirs(path) => append_details(&path, disk.make_dir(&path, None, true)?, &mut output),
        FileOp::Rename(from, to) => append_details(&to, disk.rename(&from, &to, true)?, &mut output),
        FileOp::Tree(path) => {
            let entries = disk.list(&path)?;
            for (name, stat) in &entries {
                append_details(&format!("{path}/{name}"), *stat, &mut output);
            }
            append_reply(&FileReply::Listed { total: entries.len() as u64 }, &mut output);
        }
        FileOp::Watch | FileOp::CreateUser => append_reply(&FileReply::Done(Tally::default()), &mut output),
        FileOp::Pack(path) => {
            let archive = disk.pack(&path)?;
            append_reply(&FileReply::Packing, &mut output);
            output.extend_from_slice(&archive);
        }
        FileOp::List { path, offset, limit } => {
            let entries = disk.list(&path)?;
            let from = usize::try_from(offset).unwrap_or(usize::MAX);
            for (name, stat) in entries.iter().skip(from).take(limit as usize) {
                append_reply(&FileReply::Entry { name: name.as_bytes(), stat: *stat }, &mut output);
            }
            append_reply(&FileReply::Listed { total: entries.len() as u64 }, &mut output);
        }
        FileOp::Read { path, offset, from_end, length } => {
            let bytes = disk.read(&path)?;
            let size = bytes.len() as u64;
            if !from_end && offset > 0 && offset >= size {
                let message = format!("'{path}' has {size} bytes; the range begins behind them");
                return Err((FileErrorKind::Range, message));
            }
            let offset = if from_end { size.saturating_sub(offset) } else { offset };
            let length = length.unwrap_or(u64::MAX).min(size - offset);
            append_reply(
                &FileReply::Content { stat: disk.stat(&path)?, offset, length: Some(length) },
                &mut output,
            );
            let range = offset as usize..(offset + length) as usize;
            output.extend_from_slice(&bytes[range]);
        }
    }
    Ok(output)
}

/// Answers each byte of the upload, up to its end.
async fn watch(stream: &mut Stream, inbox: &mut Inbox) -> io::Result<Exit> {
    let mut output = Vec::new();
    append_reply(&FileReply::Watching, &mut output);
    stream.print(inbox, Channel::Stdout, &output).await?;
    let mut killed = inbox.killed.clone();
    let mut raw = Vec::new();
    loop {
        tokio::select! {
            Ok(_) = killed.wait_for(Option::is_some) => return Ok(Exit::Code(1)),
            bytes = inbox.stdin.recv() => match bytes.flatten() {
                Some(bytes) => raw.extend_from_slice(&bytes),
                None => return Ok(Exit::Code(1)),
            },
        }
        while let Some(header) = raw.first_chunk::<PREFIX>() {
            let length = u32::from_le_bytes(*header) as usize;
            if length == 0 {
                return Ok(Exit::Code(0));
            }
            if raw.len() < PREFIX + length {
                break;
            }
            raw.drain(..PREFIX + length);
            let mut output = Vec::new();
            (0..length).for_each(|_| append_reply(&FileReply::Synced, &mut output));
            stream.print(inbox, Channel::Stdout, &output).await?;
        }
    }
}

fn append_details(path: &str, stat: FileStat<'_>, to: &mut Vec<u8>) {
    let details = FileDetails {
        path: path.as_bytes(),
        stat,
        uid: 0,
        gid: 0,
        owner: "root",
        group: "root",
        link: None,
        attributes: Vec::new(),
    };
    append_reply(&FileReply::Details(details), to);
}

/// Collects the content up to its last piece. `None` if the host aborts the operation.
async fn collect_upload(inbox: &mut Inbox) -> Option<Vec<u8>> {
    let mut killed = inbox.killed.clone();
    let mut raw = Vec::new();
    let mut content = Vec::new();
    loop {
        let bytes = tokio::select! {
            Ok(_) = killed.wait_for(Option::is_some) => return None,
            bytes = inbox.stdin.recv() => bytes??,
        };
        raw.extend_from_slice(&bytes);
        while let Some(header) = raw.first_chunk::<PREFIX>() {
            let end = PREFIX + u32::from_le_bytes(*header) as usize;
            if *header == LAST_PIECE {
                return Some(content);
            }
            let Some(piece) = raw.get(PREFIX..end) else { break };
            content.extend_from_slice(piece);
            raw.drain(..end);
        }
    }
}

fn append_reply(reply: &FileReply<'_>, to: &mut Vec<u8>) {
    // Cannot fail: these replies are valid.
    let _ = guest_proto::encode_reply(reply, to);
}
