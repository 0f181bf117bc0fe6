//! Bridges between blocking readers and writers in threads and async streams, through bounded channels of chunks.

use std::io::{self, Read, Write};

use bytes::{Buf, Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, unfold};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

use crate::transport::payload::Pieces;

/// Large enough to make the cost per chunk negligible.
pub const PIECE: usize = 256 << 10;
/// Capacity of the channel, in addition to the chunk at either end.
const WAITING: usize = 4;

/// The chunks of a reader.
pub fn read_by(reader: impl AsyncRead + Send + 'static) -> Pieces {
    let begin = Some(Box::pin(reader));
    unfold(begin, |reader| async move {
        let mut reader = reader?;
        let mut piece = BytesMut::with_capacity(PIECE);
        // Fills the chunk, because small reads would become small frames.
        while piece.len() < PIECE {
            match reader.read_buf(&mut piece).await {
                Ok(0) if piece.is_empty() => return None,
                // A short read is sent at once; the next call finds the end.
                Ok(got) if got == 0 || got < PIECE / 4 => break,
                Ok(_) => {}
                Err(error) => return Some((Err(error), None)),
            }
        }
        Some((Ok(piece.freeze()), Some(reader)))
    })
    .boxed()
}

/// The chunks that `write` writes in a thread. After the stream is dropped, the next write fails.
pub fn written_by(write: impl FnOnce(&mut Writer) -> io::Result<()> + Send + 'static) -> Pieces {
    let (pieces, mut received) = mpsc::channel(WAITING);
    tokio::task::spawn_blocking(move || {
        let mut writer = Writer { piece: BytesMut::with_capacity(PIECE), pieces };
        if let Err(error) = write(&mut writer).and_then(|()| writer.flush()) {
            // The receiver is gone, which is why the write failed.
            let _ = writer.pieces.blocking_send(Err(error));
        }
    });
    futures_util::stream::poll_fn(move |cx| received.poll_recv(cx)).boxed()
}

/// Sends what is written as chunks.
pub struct Writer {
    piece: BytesMut,
    pieces: mpsc::Sender<io::Result<Bytes>>,
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..fits]);
        if self.piece.len() == PIECE {
            self.flush()?;
        }
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, BytesMut::with_capacity(PIECE)).freeze();
        let ended = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the request has ended");
        self.pieces.blocking_send(Ok(piece)).map_err(ended)
    }
}

/// Passes a stream to `read` in a thread. Returns the result of `read`, or the error of the stream.
pub async fn read_in_thread<T: Send + 'static, E: Send + 'static>(
    mut pieces: BoxStream<'static, Result<Bytes, E>>,
    read: impl FnOnce(&mut PieceReader) -> io::Result<T> + Send + 'static,
) -> Result<io::Result<T>, E> {
    let (to, received) = mpsc::channel(WAITING);
    let working =
        tokio::task::spawn_blocking(move || read(&mut PieceReader { piece: Bytes::new(), received }));
    let mut fault = None;
    while let Some(piece) = pieces.next().await {
        let sent = match piece {
            Ok(bytes) => to.send(Some(bytes)).await,
            Err(error) => {
                fault = Some(error);
                // An error, because an end would make a partial archive look complete.
                to.send(None).await
            }
        };
        // The reader may have stopped early.
        if sent.is_err() || fault.is_some() {
            break;
        }
    }
    drop(to);
    let read = working.await.unwrap_or_else(|error| Err(io::Error::other(error)));
    fault.map_or(Ok(read), Err)
}

/// The chunks that `rewrite` writes in a thread, while it reads those of a stream.
pub fn rewritten<E: Send + 'static>(
    pieces: BoxStream<'static, Result<Bytes, E>>,
    rewrite: impl FnOnce(&mut PieceReader, &mut Writer) -> io::Result<()> + Send + 'static,
    fault: fn(io::Error) -> E,
) -> BoxStream<'static, Result<Bytes, E>> {
    let (pieces_to, mut received) = mpsc::channel(WAITING);
    let work = read_in_thread(pieces, move |reader| {
        let mut writer = Writer { piece: BytesMut::with_capacity(PIECE), pieces: pieces_to };
        rewrite(reader, &mut writer)?;
        writer.flush()
    });
    let failure = futures_util::stream::once(work).filter_map(move |ended| {
        let failure: Option<Result<Bytes, E>> = match ended {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(Err(fault(error))),
            Err(error) => Some(Err(error)),
        };
        std::future::ready(failure)
    });
    let written = futures_util::stream::poll_fn(move |cx| received.poll_recv(cx));
    let written = written.map(move |piece: io::Result<Bytes>| piece.map_err(fault));
    futures_util::stream::select(written, failure).boxed()
}

/// Reads the chunks of a channel.
pub struct PieceReader {
    piece: Bytes,
    received: mpsc::Receiver<Option<Bytes>>,
}

impl Read for PieceReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.received.blocking_recv() {
                Some(Some(piece)) => self.piece = piece,
                Some(None) => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the stream ended with an error",
                    ));
                }
                None => return Ok(0),
            }
        }
        let fits = to.len().min(self.piece.len());
        to[..fits].copy_from_slice(&self.piece[..fits]);
        self.piece.advance(fits);
        Ok(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream::{iter, repeat_with};
    use std::io::ErrorKind;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn lengths(pieces: &[io::Result<Bytes>]) -> Vec<Option<usize>> {
        pieces.iter().map(|piece| piece.as_ref().ok().map(Bytes::len)).collect()
    }

    #[tokio::test]
    async fn a_reader_is_cut_into_full_pieces() {
        let content: &'static [u8] = &[7; 2 * PIECE + 5];
        let pieces: Vec<_> = read_by(content).collect().await;
        assert_eq!(lengths(&pieces), [Some(PIECE), Some(PIECE), Some(5)]);
        assert!(read_by(&b""[..]).next().await.is_none(), "no empty piece");
    }

    #[tokio::test]
    async fn an_error_of_a_reader_is_the_last_piece() {
        struct Failing;
        impl AsyncRead for Failing {
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
                _: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<io::Result<()>> {
                std::task::Poll::Ready(Err(io::Error::other("disk error")))
            }
        }
        let pieces: Vec<_> = read_by(AsyncReadExt::chain(&b"ab"[..], Failing)).collect().await;
        assert_eq!(pieces.last().unwrap().as_ref().unwrap_err().to_string(), "disk error");
        assert_eq!(pieces.iter().filter(|piece| piece.is_err()).count(), 1);
    }

    #[tokio::test]
    async fn what_is_written_in_a_thread_arrives_in_pieces_and_its_error_last() {
        let written: Vec<_> = written_by(|to| to.write_all(&vec![1; PIECE + 10])).collect().await;
        assert_eq!(lengths(&written), [Some(PIECE), Some(10)]);
        let failed = written_by(|to| {
            to.write_all(&vec![1; PIECE + 10])?;
            Err(io::Error::other("vanished"))
        });
        let failed: Vec<_> = failed.collect().await;
        // The part before the error is no piece: nobody may take it for the end.
        assert_eq!(lengths(&failed), [Some(PIECE), None]);
    }

    #[tokio::test]
    async fn a_stream_is_read_to_its_end_in_a_thread() {
        let pieces = iter(["ab", "", "c"].map(|text| Ok::<_, ()>(Bytes::from(text)))).boxed();
        let read = read_in_thread(pieces, |from| {
            let mut text = String::new();
            from.read_to_string(&mut text)?;
            Ok(text)
        });
        assert_eq!(read.await.unwrap().unwrap(), "abc");
    }

    #[tokio::test]
    async fn an_interrupted_stream_does_not_look_complete_to_its_reader() {
        let pieces = iter([Ok(Bytes::from("ab")), Err("interrupted"), Ok(Bytes::from("c"))]).boxed();
        let has_seen_error = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&has_seen_error);
        let read = read_in_thread(pieces, move |from| {
            let mut content = Vec::new();
            let end = from.read_to_end(&mut content);
            let is_error = end.is_err_and(|error| error.kind() == ErrorKind::UnexpectedEof);
            seen.store(is_error && content == b"ab", Ordering::Relaxed);
            Ok(())
        });
        assert_eq!(read.await.unwrap_err(), "interrupted");
        assert!(has_seen_error.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn a_reader_that_stops_early_ends_the_transfer() {
        let endless = repeat_with(|| Ok::<_, ()>(Bytes::from_static(b"x"))).boxed();
        let first = read_in_thread(endless, |from| {
            let mut byte = [0];
            from.read_exact(&mut byte)?;
            Ok(byte[0])
        });
        assert_eq!(first.await.unwrap().unwrap(), b'x');
        let refused = read_in_thread(iter([Ok::<_, ()>(Bytes::new())]).boxed(), |_| {
            Err::<(), _>(io::Error::other("no archive"))
        });
        assert_eq!(refused.await.unwrap().unwrap_err().to_string(), "no archive");
    }

    #[tokio::test]
    async fn a_rewritten_stream_ends_with_the_error_of_either_side() {
        let upper = |from: &mut PieceReader, to: &mut Writer| {
            let mut text = String::new();
            from.read_to_string(&mut text)?;
            to.write_all(text.to_uppercase().as_bytes())
        };
        let source = |end: Result<Bytes, String>| iter([Ok(Bytes::from("ab")), end]).boxed();
        let fault = |error: io::Error| format!("rewriting: {error}");
        let whole: Vec<_> = rewritten(source(Ok("c".into())), upper, fault).collect().await;
        assert_eq!(whole, [Ok(Bytes::from("ABC"))]);
        let cut: Vec<_> = rewritten(source(Err("interrupted".to_owned())), upper, fault).collect().await;
        assert_eq!(cut, [Err("interrupted".to_owned())]);
        let refused = rewritten(source(Ok("c".into())), |_, _| Err(io::Error::other("no tar")), fault);
        assert_eq!(refused.collect::<Vec<_>>().await, [Err("rewriting: no tar".to_owned())]);
    }
}
