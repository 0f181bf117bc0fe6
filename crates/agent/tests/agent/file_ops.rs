//! Requests of file operations and their outcomes, for tests.

use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;

use guest_proto::{
    Channel, Exit, FileErrorKind, FileKind, FileReply, FileRequest, LAST_PIECE, PREFIX, Tally, ToGuest,
    WatchEventKind, decode_reply, encode_to_guest, piece_header, split_reply,
};

use crate::host::{Host, HostMessage, LARGE_WINDOW};

/// An owned [`FileReply`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Stat { kind: FileKind, mode: u32, size: u64, target: Option<Vec<u8>> },
    Entry { name: Vec<u8>, kind: FileKind, size: u64 },
    Listed(u64),
    Content { offset: u64, length: Option<u64>, size: u64 },
    Packing,
    Done(Tally),
    Working,
    Details { path: Vec<u8>, owner: String, group: String, mode: u32, attributes: Vec<(String, String)> },
    Link { path: Vec<u8>, target: Option<Vec<u8>>, resolved: Option<(Vec<u8>, FileKind)> },
    Watching,
    Changed(WatchEventKind, String),
    Overflow,
    Synced,
    Failed(FileErrorKind, String),
}

/// The result of a file operation.
#[derive(Debug)]
pub struct Outcome {
    pub replies: Vec<Reply>,
    pub bytes: Vec<u8>,
    pub exit: Exit,
}

impl Outcome {
    /// The last reply of a successful file operation.
    pub fn done(self) -> Reply {
        assert_eq!(self.exit, Exit::Code(0), "{:?}", self.replies);
        self.replies.last().expect("there is no reply").clone()
    }

    /// The error of a failed operation.
    pub fn failed(self) -> (FileErrorKind, String) {
        assert_eq!(self.exit, Exit::Code(1), "{:?}", self.replies);
        match self.replies.into_iter().next_back() {
            Some(Reply::Failed(kind, message)) => (kind, message),
            other => panic!("no failure: {other:?}"),
        }
    }

    pub fn kind(self) -> FileErrorKind {
        self.failed().0
    }
}

pub fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

/// An upload in the pieces of the protocol, with the last piece.
pub fn pieces(content: &[u8]) -> Vec<u8> {
    let mut upload = Vec::new();
    for piece in content.chunks(100_000) {
        upload.extend_from_slice(&piece_header(piece.len()));
        upload.extend_from_slice(piece);
    }
    upload.extend_from_slice(&LAST_PIECE);
    upload
}

impl Host {
    pub fn begin_file(&mut self, request: FileRequest<'_>, window: u32) -> u64 {
        let op = self.op();
        self.send(&ToGuest::File { op, request, window });
        op
    }

    /// Runs an operation without an upload.
    pub fn file(&mut self, request: FileRequest<'_>) -> Outcome {
        let op = self.begin_file(request, LARGE_WINDOW);
        self.finish_file(op, &[])
    }

    /// Runs an operation with an upload.
    pub fn upload(&mut self, request: FileRequest<'_>, content: &[u8]) -> Outcome {
        let op = self.begin_file(request, LARGE_WINDOW);
        self.finish_file(op, &pieces(content))
    }

    /// Sends the upload as credit permits, and receives all replies.
    pub fn finish_file(&mut self, op: u64, mut feed: &[u8]) -> Outcome {
        let mut output = Vec::new();
        let mut others = VecDeque::new();
        loop {
            let credit = match self.receive() {
                HostMessage::Started { op: of, window, .. } if of == op => window,
                HostMessage::Credit { op: of, bytes } if of == op => bytes,
                HostMessage::Data { op: of, channel: Channel::Stdout, bytes } if of == op => {
                    output.extend_from_slice(&bytes);
                    self.send(&ToGuest::Credit { op, channel: Channel::Stdout, bytes: bytes.len() as u32 });
                    0
                }
                HostMessage::Eof { op: of, .. } if of == op => 0,
                HostMessage::Exited { op: of, exit, .. } if of == op => {
                    let (replies, bytes) = split_output(&output);
                    self.deferred.append(&mut others);
                    return Outcome { replies, bytes, exit };
                }
                // A watch reports what this operation changes.
                other @ HostMessage::Data { .. } => {
                    others.push_back(other);
                    0
                }
                other => panic!("unexpected: {other:?}"),
            };
            let (now, later) = feed.split_at((credit as usize).min(feed.len()));
            for bytes in now.chunks(guest_proto::MAX_DATA) {
                let mut frame = Vec::new();
                encode_to_guest(&ToGuest::Data { op, bytes }, &mut frame).unwrap();
                self.stream.write_all(&frame).unwrap();
            }
            feed = later;
        }
    }
}

/// The complete replies in an output.
pub fn split(mut output: &[u8]) -> Vec<Reply> {
    let mut replies = Vec::new();
    while let Some(end) = split_reply(output).unwrap() {
        replies.push(to_owned_reply(&decode_reply(&output[PREFIX..end]).unwrap()));
        output = &output[end..];
    }
    replies
}

fn split_output(mut output: &[u8]) -> (Vec<Reply>, Vec<u8>) {
    let mut replies = Vec::new();
    while let Some(end) = split_reply(output).unwrap() {
        let reply = decode_reply(&output[PREFIX..end]).unwrap();
        output = &output[end..];
        replies.push(to_owned_reply(&reply));
        if matches!(reply, FileReply::Content { .. } | FileReply::Packing) {
            return (replies, output.to_vec());
        }
    }
    assert!(output.is_empty(), "an incomplete reply");
    (replies, Vec::new())
}

fn to_owned_reply(reply: &FileReply<'_>) -> Reply {
    match *reply {
        FileReply::Stat(stat) => Reply::Stat {
            kind: stat.kind,
            mode: stat.mode,
            size: stat.size,
            target: stat.target.map(<[u8]>::to_vec),
        },
        FileReply::Entry { name, stat } => {
            Reply::Entry { name: name.to_vec(), kind: stat.kind, size: stat.size }
        }
        FileReply::Listed { total } => Reply::Listed(total),
        FileReply::Content { stat, offset, length } => Reply::Content { offset, length, size: stat.size },
        FileReply::Packing => Reply::Packing,
        FileReply::Done(tally) => Reply::Done(tally),
        FileReply::Working => Reply::Working,
        FileReply::Details(ref details) if details.stat.kind == FileKind::Link => Reply::Link {
            path: details.path.to_vec(),
            target: details.stat.target.map(<[u8]>::to_vec),
            resolved: details.link.map(|link| (link.path.to_vec(), link.kind)),
        },
        FileReply::Details(ref details) => Reply::Details {
            path: details.path.to_vec(),
            owner: details.owner.to_owned(),
            group: details.group.to_owned(),
            mode: details.stat.mode,
            attributes: details.attributes.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
        },
        FileReply::Watching => Reply::Watching,
        FileReply::Changed { kind, name } => Reply::Changed(kind, String::from_utf8_lossy(name).into_owned()),
        FileReply::Overflow => Reply::Overflow,
        FileReply::Synced => Reply::Synced,
        FileReply::Failed { kind, message } => Reply::Failed(kind, message.to_owned()),
    }
}
