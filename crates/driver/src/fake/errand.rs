//! Errands among the files of a fake sandbox: reading, writing, listing and looking, of text in memory. The rest it does not know.

use std::io;

use guest_proto::{
    Channel, Exit, FileErrorKind, FileKind, FileReply, FileRequest, FileStat, LAST_PIECE, PREFIX, ToHost,
};

use super::guest::{Inbox, Inner, lock};
use super::script::Stream;

/// What is asked, with paths of its own.
pub enum Errand {
    Read(String),
    Write(String),
    Stat(String),
    List(String),
    Unknown,
}

pub fn parse(request: &FileRequest<'_>) -> Errand {
    let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    match request {
        FileRequest::Read { path, .. } => Errand::Read(text(path)),
        FileRequest::Write { path, .. } => Errand::Write(text(path)),
        FileRequest::Stat { path, .. } => Errand::Stat(text(path)),
        FileRequest::List { path, .. } => Errand::List(text(path)),
        _ => Errand::Unknown,
    }
}

fn stat(text: &str) -> FileStat<'static> {
    FileStat {
        kind: FileKind::File,
        mode: 0o644,
        size: text.len() as u64,
        modified_ns: 1_000_000_000,
        inode: 1,
        target: None,
    }
}

/// Runs an errand to its end, or to its caller's.
pub async fn run(mut stream: Stream, errand: Errand, mut inbox: Inbox) -> io::Result<()> {
    // Not dropped in the middle: half a frame would be the end of the link. Who closes it grants all that is left to say.
    let exit = act(&mut stream, errand, &mut inbox).await?;
    stream.send(&ToHost::Exited { op: stream.op, exit, duration_us: 1 }).await
}

async fn act(stream: &mut Stream, errand: Errand, inbox: &mut Inbox) -> io::Result<Exit> {
    let mut said = Vec::new();
    let mut exit = Exit::Code(0);
    let done = match errand {
        Errand::Read(path) => find(&stream.inner, &path).map(|text| {
            let length = Some(text.len() as u64);
            say(&FileReply::Content { stat: stat(&text), offset: 0, length }, &mut said);
            said.extend_from_slice(text.as_bytes());
        }),
        Errand::Stat(path) => {
            find(&stream.inner, &path).map(|text| say(&FileReply::Stat(stat(&text)), &mut said))
        }
        Errand::Write(path) => match fed(inbox).await {
            Some(text) => {
                say(&FileReply::Stat(stat(&text)), &mut said);
                lock(&stream.inner.files).insert(path, text);
                Ok(())
            }
            None => Err((FileErrorKind::Interrupted, "the upload ended before it was complete".to_owned())),
        },
        Errand::List(dir) => {
            let files = lock(&stream.inner.files);
            let below = files.iter().filter_map(|(path, text)| Some((path.strip_prefix(&dir)?, text)));
            let mut total = 0;
            for (name, text) in below {
                total += 1;
                let name = name.trim_start_matches('/').as_bytes();
                say(&FileReply::Entry { name, stat: stat(text) }, &mut said);
            }
            say(&FileReply::Listed { total }, &mut said);
            Ok(())
        }
        Errand::Unknown => Err((FileErrorKind::Failed, "a fake sandbox does not know this".to_owned())),
    };
    if let Err((kind, message)) = done {
        said.clear();
        say(&FileReply::Failed { kind, message: &message }, &mut said);
        exit = Exit::Code(1);
    }
    stream.print(inbox, Channel::Stdout, &said).await?;
    Ok(exit)
}

fn find(inner: &Inner, path: &str) -> Result<String, (FileErrorKind, String)> {
    let found = lock(&inner.files).get(path).cloned();
    found.ok_or_else(|| (FileErrorKind::NotFound, format!("there is no '{path}'")))
}

/// All that is fed, up to its last piece; nothing where its caller goes away before.
async fn fed(inbox: &mut Inbox) -> Option<String> {
    let mut killed = inbox.killed.clone();
    let mut raw = Vec::new();
    let mut text = Vec::new();
    loop {
        let bytes = tokio::select! {
            Ok(_) = killed.wait_for(|killed| *killed) => return None,
            bytes = inbox.stdin.recv() => bytes??,
        };
        raw.extend_from_slice(&bytes);
        while let Some(header) = raw.first_chunk::<PREFIX>() {
            let end = PREFIX + u32::from_le_bytes(*header) as usize;
            if *header == LAST_PIECE {
                return String::from_utf8(text).ok();
            }
            let Some(piece) = raw.get(PREFIX..end) else { break };
            text.extend_from_slice(piece);
            raw.drain(..end);
        }
    }
}

fn say(reply: &FileReply<'_>, to: &mut Vec<u8>) {
    // A fake says nothing that its own protocol forbids.
    let _ = guest_proto::encode_reply(reply, to);
}
