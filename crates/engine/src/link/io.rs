//! The I/O task of a link. It ends with the stream, at a protocol violation, or when the last handle is dropped, and with it the link;
//! or when the link is suspended.

use std::io::IoSlice;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Buf, BytesMut};
use driver::ByteStream;
use guest_proto::{PREFIX, ProtoError, ToHost};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::watch;

use super::op::{FirstReply, Op};
use super::{FrameQueue, Inner, LinkError, OutgoingFrame};

const SMALL_BUFFER: usize = 4 * 1024;
const LARGE_BUFFER: usize = 256 * 1024;
/// Queued frames are joined into writes of up to this size.
const JOIN_WRITES: usize = 64 * 1024;

/// Starts the task. Its end ends all operations on the link.
pub fn spawn(
    stream: Box<dyn ByteStream>,
    inner: Arc<Inner>,
    to_write: FrameQueue,
    stopped: watch::Receiver<bool>,
) {
    let (reader, writer) = split(stream);
    let ended = inner.ended.subscribe();
    tokio::spawn(async move {
        let both = async { tokio::try_join!(read(reader, &inner), write(writer, &inner, to_write)) };
        let why = tokio::select! {
            result = both => result.map(|((), unwritten)| Some(unwritten)),
            () = until_true(stopped) => Ok(None),
            () = until_true(ended) => Ok(None),
        };
        match why {
            Ok(Some(unwritten)) => return inner.suspended(unwritten),
            Ok(None) | Err(LinkError::Closed) => {}
            Err(error) => tracing::warn!(%error, "the link to an agent ended"),
        }
        inner.end();
    });
}

async fn until_true(mut flag: watch::Receiver<bool>) {
    // A dropped sender has the same meaning.
    let _ = flag.wait_for(|set| *set).await;
}

/// Returns the frames behind the last one of the stream.
async fn write(
    mut stream: WriteHalf<Box<dyn ByteStream>>,
    inner: &Inner,
    mut frames: FrameQueue,
) -> Result<FrameQueue, LinkError> {
    while let Some(OutgoingFrame { mut head, mut payload, mut is_last }) = frames.recv().await {
        while payload.is_empty() && !is_last && head.len() < JOIN_WRITES {
            let Ok(next) = frames.try_recv() else { break };
            head.extend_from_slice(&next.head);
            (payload, is_last) = (next.payload, next.is_last);
        }
        let mut parts: Vec<IoSlice<'_>> =
            iter::once(&head[..]).chain(payload.iter().map(|part| &part[..])).map(IoSlice::new).collect();
        let length = parts.iter().map(|part| part.len()).sum();
        let mut parts = &mut parts[..];
        while !parts.is_empty() {
            let written = stream.write_vectored(parts).await?;
            if written == 0 {
                return Err(LinkError::Closed);
            }
            IoSlice::advance_slices(&mut parts, written);
        }
        inner.unsent.fetch_sub(length, Ordering::Relaxed);
        inner.drained.notify_waiters();
        if is_last {
            return Ok(frames);
        }
    }
    Err(LinkError::Closed)
}

/// Reads to the last frame of the stream.
async fn read(mut stream: ReadHalf<Box<dyn ByteStream>>, inner: &Inner) -> Result<(), LinkError> {
    let mut buffer = BytesMut::with_capacity(SMALL_BUFFER);
    loop {
        let room = buffer.capacity() - buffer.len();
        let read = stream.read_buf(&mut buffer).await?;
        if read == 0 {
            return Err(LinkError::Closed);
        }
        while let Some(end) = guest_proto::split(&buffer)? {
            match guest_proto::decode_to_host(&buffer[PREFIX..end])? {
                ToHost::Suspended if inner.is_suspending() => return Ok(()),
                frame => dispatch(inner, &frame)?,
            }
            buffer.advance(end);
        }
        if read == room {
            // The buffer was filled completely: a bulk transfer.
            buffer.reserve(LARGE_BUFFER);
        } else if buffer.is_empty() && buffer.capacity() > LARGE_BUFFER / 2 && read < SMALL_BUFFER {
            buffer = BytesMut::with_capacity(SMALL_BUFFER);
        } else {
            buffer.reserve(SMALL_BUFFER);
        }
    }
}

/// Hands a frame to its operation.
fn dispatch(inner: &Inner, frame: &ToHost<'_>) -> Result<(), LinkError> {
    match *frame {
        ToHost::Data { op, channel, bytes } => on(inner, op, |op| op.data(channel, bytes))?,
        ToHost::Credit { op, bytes } => on(inner, op, |op| op.credit(bytes))?,
        ToHost::Started { op, pid, window } => on(inner, op, |op| {
            op.set_pid(pid);
            op.answer(FirstReply::Started, window)
        })?,
        ToHost::Running { op, pid } => on(inner, op, |op| {
            op.set_pid(pid);
            Ok(())
        })?,
        ToHost::Opened { op, window } => on(inner, op, |op| op.answer(FirstReply::Opened, window))?,
        ToHost::Attached { op, stdin, window } => {
            on(inner, op, |op| op.answer(FirstReply::Attached { stdin }, window))?;
        }
        ToHost::Done { op } => on(inner, op, |op| op.answer(FirstReply::Done, 0))?,
        ToHost::Refused { op, kind, message } => {
            on(inner, op, |op| op.answer(FirstReply::Refused { kind, message: message.to_owned() }, 0))?;
        }
        ToHost::Eof { op, .. } => on(inner, op, |op| {
            op.eof();
            Ok(())
        })?,
        ToHost::Exited { op: number, exit, duration_us } => {
            on(inner, number, |op| {
                op.exited(exit, duration_us);
                Ok(())
            })?;
            inner.forget(number);
        }
        ToHost::Pong { .. } => {}
        ToHost::Welcome { .. } | ToHost::Suspended => {
            return Err(LinkError::Unexpected { wanted: "another frame", got: "welcome or suspended" });
        }
        ToHost::Bye { reason } => {
            tracing::warn!(reason, "an agent closed its link");
            return Err(LinkError::Closed);
        }
    }
    Ok(())
}

/// Calls `then` with the operation. Frames for unknown operations are ignored: they crossed with our close of the operation.
fn on(inner: &Inner, op: u64, then: impl FnOnce(&Op) -> Result<(), ProtoError>) -> Result<(), LinkError> {
    if let Some(op) = inner.find(op) {
        then(&op)?;
    }
    Ok(())
}
