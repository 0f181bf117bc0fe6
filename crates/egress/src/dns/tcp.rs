//! Questions over connections: each with its length before it, several on their way at once, answered as they are ready. What is
//! too much waits, and holds up whoever sent it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::share::{Place, Share};
use super::{QUESTION_BYTES_MAX, Server, now};
use crate::guests::Guest;
use crate::refusals::Transport;

/// Connections of all sandboxes.
const CONNECTIONS_MAX: usize = 512;
/// Questions of one connection that are being answered, or whose answers wait to be read.
const PIPELINED_MAX: usize = 8;
/// So long may a connection be quiet, and so long may one message take to come.
const IDLE: Duration = Duration::from_secs(10);
/// So long may a client leave an answer unread.
const UNREAD: Duration = Duration::from_secs(5);
/// When there is no place for a question, so long until the next look, and so many looks.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: usize = 150;
/// After an error of the listener itself.
const REST: Duration = Duration::from_millis(50);

pub async fn serve(server: &Arc<Server>, listener: TcpListener) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            () = server.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, source) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        let Some((guest, share)) = server.known(source) else { continue };
        let own = Arc::clone(&share.connections).try_acquire_owned();
        let (Ok(own), Ok(any)) = (own, Arc::clone(&connections).try_acquire_owned()) else {
            server.too_many(&guest, Transport::Tcp);
            continue;
        };
        let pipelined = Arc::new(Semaphore::new(PIPELINED_MAX));
        let connection = Connection { server: Arc::clone(server), guest, share, pipelined };
        server.spawn(async move {
            let _places = (own, any);
            connection.run(stream).await;
        });
    }
}

struct Connection {
    server: Arc<Server>,
    guest: Arc<Guest>,
    share: Arc<Share>,
    pipelined: Arc<Semaphore>,
}

impl Connection {
    /// Until the client is done, or too slow, or breaks the rules.
    async fn run(self, stream: TcpStream) {
        let (reading, writing) = stream.into_split();
        let (answers, ready) = mpsc::channel(1);
        let ended = tokio::select! {
            // It ends after the last answer, once reading has let go of its sender.
            written = write(writing, ready) => written,
            error = self.read(reading, answers) => Err(error),
        };
        if let Err(error) = ended {
            tracing::trace!(id = %self.guest.id, %error, "a connection for DNS ended");
        }
    }

    /// Comes back only when it is of no use to go on writing.
    async fn read(&self, mut reading: OwnedReadHalf, answers: mpsc::Sender<Vec<u8>>) -> io::Error {
        loop {
            // A policy for the next question may be that there is no sandbox any more.
            let there = self.server.parts.guests.find(self.guest.address);
            if !there.is_some_and(|there| Arc::ptr_eq(&there, &self.guest)) {
                return io::Error::other("the sandbox is gone");
            }
            match timeout(IDLE, message(&mut reading)).await {
                Ok(Ok(Some(bytes))) => {
                    if !self.share.takes(now()) {
                        self.server.too_many(&self.guest, Transport::Tcp);
                        return io::Error::other("too many questions");
                    }
                    if let Err(error) = self.ask(bytes, &answers).await {
                        return error;
                    }
                }
                Ok(Ok(None)) => break,
                Ok(Err(error)) => return error,
                Err(_) => break,
            }
        }
        drop(answers);
        std::future::pending().await
    }

    async fn ask(&self, bytes: Vec<u8>, answers: &mpsc::Sender<Vec<u8>>) -> io::Result<()> {
        let pipelined = Arc::clone(&self.pipelined).acquire_owned().await.map_err(io::Error::other)?;
        let place = self.place().await?;
        let (server, guest, answers) = (Arc::clone(&self.server), Arc::clone(&self.guest), answers.clone());
        self.server.spawn(async move {
            let _pipelined = pipelined;
            let answer = server.answer(&guest, &bytes, Transport::Tcp).await;
            // A client that reads slowly holds up itself only.
            drop(place);
            if let Some(answer) = answer {
                // The connection may have ended meanwhile.
                let _ = answers.send(answer).await;
            }
        });
        Ok(())
    }

    async fn place(&self) -> io::Result<Place> {
        for _ in 0..LOOKS {
            if let Some(place) = self.share.place(&self.server.all) {
                return Ok(place);
            }
            tokio::time::sleep(LOOK).await;
        }
        self.server.too_many(&self.guest, Transport::Tcp);
        Err(io::Error::other("too many questions at once"))
    }
}

/// The next message; none after the last.
async fn message(reading: &mut OwnedReadHalf) -> io::Result<Option<Vec<u8>>> {
    let length = match reading.read_u16().await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        length => usize::from(length?),
    };
    if length > QUESTION_BYTES_MAX {
        return Err(io::Error::other("a message is too long"));
    }
    let mut bytes = vec![0; length];
    reading.read_exact(&mut bytes).await?;
    Ok(Some(bytes))
}

async fn write(mut writing: OwnedWriteHalf, mut ready: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    while let Some(answer) = ready.recv().await {
        let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
        // In one piece: clients exist that expect a message to come in one.
        let framed = [&length.to_be_bytes(), &answer[..]].concat();
        timeout(UNREAD, writing.write_all(&framed)).await??;
    }
    Ok(())
}
