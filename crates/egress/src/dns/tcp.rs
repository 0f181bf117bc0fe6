//! Questions over connections: each with its length before it, several on their way at once, answered as they are ready. What is
//! too much waits, and holds up whoever sent it.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout};

use super::share::{CONNECTIONS_MAX_OF_ALL, Place, Share};
use super::{QUESTION_BYTES_MAX, Server, now};
use crate::guests::Guest;
use crate::refusals::Transport;

/// Questions of one connection that are being answered, or whose answers wait to be read.
const PIPELINED_MAX: usize = 8;
/// So long may a connection be quiet, and so long may one message take to come.
const IDLE: Duration = Duration::from_secs(10);
/// So long may a connection be used at all: who asks now and then must not hold a place for ever.
const LIFE: Duration = Duration::from_secs(120);
/// So often a quiet connection looks whether it may stay.
const STAYING: Duration = Duration::from_secs(1);
/// So long may a client leave an answer unread.
const UNREAD: Duration = Duration::from_secs(5);
/// When there is no place for a question, so long until the next look, and so many looks.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: usize = 150;
/// After an error of the listener itself.
const REST: Duration = Duration::from_millis(50);

pub async fn serve(server: &Arc<Server>, listener: TcpListener) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX_OF_ALL));
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
        let Some(seat) = share.seat(&connections) else {
            server.too_many(&guest, Transport::Tcp);
            continue;
        };
        let pipelined = Arc::new(Semaphore::new(PIPELINED_MAX));
        let all = Arc::clone(&connections);
        let connection = Connection { server: Arc::clone(server), guest, share, all, pipelined };
        server.spawn(async move {
            let _seat = seat;
            connection.run(stream).await;
        });
    }
}

struct Connection {
    server: Arc<Server>,
    guest: Arc<Guest>,
    share: Arc<Share>,
    /// What is left for the connections of all.
    all: Arc<Semaphore>,
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
        let begin = Instant::now();
        loop {
            // A policy for the next question may be that there is no sandbox any more.
            let there = self.server.parts.guests.find(self.guest.address);
            if !there.is_some_and(|there| Arc::ptr_eq(&there, &self.guest)) {
                return io::Error::other("the sandbox is gone");
            }
            match self.next(&mut reading, begin).await {
                Ok(Some(bytes)) => {
                    if !self.share.takes(now()) {
                        self.server.too_many(&self.guest, Transport::Tcp);
                        return io::Error::other("too many questions");
                    }
                    if let Err(error) = self.ask(bytes, &answers).await {
                        return error;
                    }
                }
                Ok(None) => break,
                Err(error) => return error,
            }
        }
        drop(answers);
        std::future::pending().await
    }

    /// The next message; none after the last, and none when the connection may stay no longer.
    async fn next(&self, reading: &mut OwnedReadHalf, begin: Instant) -> io::Result<Option<Vec<u8>>> {
        let quiet_since = Instant::now();
        let mut coming = pin!(message(reading));
        // Asked before each message as well: who asks all the time is never quiet.
        while may_stay(begin.elapsed(), quiet_since.elapsed(), self.share.gives_way(&self.all)) {
            if let Ok(came) = timeout(STAYING, &mut coming).await {
                return came;
            }
        }
        Ok(None)
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

/// Whether a connection that waits for a message is kept.
fn may_stay(age: Duration, quiet: Duration, gives_way: bool) -> bool {
    age < LIFE && quiet < IDLE && !gives_way
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_now_and_then_has_no_place_for_ever() {
        let [short, nearly, over] = [Duration::from_secs(1), IDLE - STAYING, IDLE];
        assert!(may_stay(short, short, false) && may_stay(LIFE - short, nearly, false));
        assert!(!may_stay(short, over, false), "quiet");
        assert!(!may_stay(LIFE, short, false), "old");
        assert!(!may_stay(short, short, true), "one of too many");
    }
}
