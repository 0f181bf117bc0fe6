//! Asking for operations on files, for the tests of them.

use std::io::Write;
use std::path::Path;

use guest_proto::{
    Channel, Exit, FileErrorKind, FileKind, FileReply, FileRequest, LAST_PIECE, PREFIX, Tally, ToGuest,
    decode_reply, encode_to_guest, piece_header, split_reply,
};

use crate::host::{Host, PLENTY, Said};

/// A reply that owns what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Stat { kind: FileKind, mode: u32, size: u64, target: Option<Vec<u8>> },
    Entry { name: Vec<u8>, kind: FileKind, size: u64 },
    Listed(u64),
    Content { offset: u64, length: Option<u64>, size: u64 },
    Packing,
    Done(Tally),
    Working,
    Failed(FileErrorKind, String),
}

/// How a file operation went.
#[derive(Debug)]
pub struct Outcome {
    pub told: Vec<Told>,
    pub bytes: Vec<u8>,
    pub exit: Exit,
}

impl Outcome {
    /// The last reply of a successful file operation.
    pub fn done(self) -> Told {
        assert_eq!(self.exit, Exit::Code(0), "{:?}", self.told);
        self.told.last().expect("nothing was said").clone()
    }

    /// Why it was not done.
    pub fn failed(self) -> (FileErrorKind, String) {
        assert_eq!(self.exit, Exit::Code(1), "{:?}", self.told);
        match self.told.into_iter().next_back() {
            Some(Told::Failed(kind, message)) => (kind, message),
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

/// What is fed: pieces, and whether they are all.
pub fn pieces(content: &[u8]) -> Vec<u8> {
    let mut fed = Vec::new();
    for piece in content.chunks(100_000) {
        fed.extend_from_slice(&piece_header(piece.len()));
        fed.extend_from_slice(piece);
    }
    fed.extend_from_slice(&LAST_PIECE);
    fed
}

impl Host {
    pub fn begin_file(&mut self, request: FileRequest<'_>, window: u32) -> u64 {
        let op = self.op();
        self.say(&ToGuest::File { op, request, window });
        op
    }

    /// Does one that is not fed.
    pub fn file(&mut self, request: FileRequest<'_>) -> Outcome {
        let op = self.begin_file(request, PLENTY);
        self.finish_file(op, &[])
    }

    /// Does one that is fed.
    pub fn fed(&mut self, request: FileRequest<'_>, content: &[u8]) -> Outcome {
        let op = self.begin_file(request, PLENTY);
        self.finish_file(op, &pieces(content))
    }

    /// Feeds as credit comes, and hears all to the end.
    pub fn finish_file(&mut self, op: u64, mut feed: &[u8]) -> Outcome {
        let mut output = Vec::new();
        loop {
            let credit = match self.hear() {
                Said::Started { op: of, window, .. } if of == op => window,
                Said::Credit { op: of, bytes } if of == op => bytes,
                Said::Data { op: of, channel: Channel::Stdout, bytes } if of == op => {
                    output.extend_from_slice(&bytes);
                    self.say(&ToGuest::Credit { op, channel: Channel::Stdout, bytes: bytes.len() as u32 });
                    0
                }
                Said::Eof { op: of, .. } if of == op => 0,
                Said::Exited { op: of, exit, .. } if of == op => {
                    let (told, bytes) = taken_apart(&output);
                    return Outcome { told, bytes, exit };
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

fn taken_apart(mut output: &[u8]) -> (Vec<Told>, Vec<u8>) {
    let mut told = Vec::new();
    while let Some(end) = split_reply(output).unwrap() {
        let reply = decode_reply(&output[PREFIX..end]).unwrap();
        output = &output[end..];
        told.push(own(&reply));
        if matches!(reply, FileReply::Content { .. } | FileReply::Packing) {
            return (told, output.to_vec());
        }
    }
    assert!(output.is_empty(), "half a reply");
    (told, Vec::new())
}

fn own(reply: &FileReply<'_>) -> Told {
    match *reply {
        FileReply::Stat(stat) => Told::Stat {
            kind: stat.kind,
            mode: stat.mode,
            size: stat.size,
            target: stat.target.map(<[u8]>::to_vec),
        },
        FileReply::Entry { name, stat } => {
            Told::Entry { name: name.to_vec(), kind: stat.kind, size: stat.size }
        }
        FileReply::Listed { total } => Told::Listed(total),
        FileReply::Content { stat, offset, length } => Told::Content { offset, length, size: stat.size },
        FileReply::Packing => Told::Packing,
        FileReply::Done(tally) => Told::Done(tally),
        FileReply::Working => Told::Working,
        FileReply::Failed { kind, message } => Told::Failed(kind, message.to_owned()),
    }
}
