//! DNS over TCP: messages with a length prefix, several in progress, answered as they are ready. A client that exceeds a
//! limit waits.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout};

use super::limits::{CONNECTIONS_MAX_OF_ALL, QuestionPermit, SandboxLimits};
use super::{QUESTION_BYTES_MAX, Server, now};
use crate::registry::Guest;
use crate::transport::Transport;

/// Questions of one connection in progress, including answers that wait to be written.
const PIPELINED_MAX: usize = 8;
/// Time limit without data, and for one message to arrive.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum lifetime of a connection: occasional questions must not hold a permit forever.
const LIFETIME: Duration = Duration::from_secs(120);
/// How often a quiet connection checks whether it may stay.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit for the client to read an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before another try to get a permit for a question, and the number of tries.
const PERMIT_RETRY_DELAY: Duration = Duration::from_millis(20);
const PERMIT_ATTEMPTS: usize = 150;
/// Pause after an error of the listener.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

/// Answers questions over TCP until the server stops. A failed connection ends only itself.
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
                tracing::warn!(%error, "cannot accept DNS connections; trying again");
                tokio::time::sleep(ERROR_PAUSE).await;
                continue;
            }
        };
        let Some((guest, limits)) = server.sandbox_at(source) else { continue };
        let Some(connection_permit) = limits.connection_permit(&connections) else {
            server.too_many(&guest, Transport::Tcp);
            continue;
        };
        let pipelined = Arc::new(Semaphore::new(PIPELINED_MAX));
        let all = Arc::clone(&connections);
        let connection = Connection { server: Arc::clone(server), guest, limits, all, pipelined };
        server.spawn(async move {
            let _connection_permit = connection_permit;
            connection.run(stream).await;
        });
    }
}

struct Connection {
    server: Arc<Server>,
    guest: Arc<Guest>,
    limits: Arc<SandboxLimits>,
    /// Permits for connections of all sandboxes.
    all: Arc<Semaphore>,
    pipelined: Arc<Semaphore>,
}

impl Connection {
    /// Serves until the client is done, exceeds a time limit or violates the protocol.
    async fn run(self, stream: TcpStream) {
        let (reading, writing) = stream.into_split();
        let (answers, ready) = mpsc::channel(1);
        let ended = tokio::select! {
            // The writer ends after the last answer, when the reader has dropped its sender.
            written = write(writing, ready) => written,
            error = self.read(reading, answers) => Err(error),
        };
        if let Err(error) = ended {
            tracing::trace!(id = %self.guest.id, %error, "a connection for DNS ended");
        }
    }

    /// Returns when writing has failed.
    async fn read(&self, mut reading: OwnedReadHalf, answers: mpsc::Sender<Vec<u8>>) -> io::Error {
        let begin = Instant::now();
        loop {
            // The sandbox may be removed before the next question.
            let current = self.server.parts.registry.find(self.guest.address);
            if !current.is_some_and(|current| Arc::ptr_eq(&current, &self.guest)) {
                return io::Error::other("the sandbox was removed");
            }
            match self.next(&mut reading, begin).await {
                Ok(Some(bytes)) => {
                    if !self.limits.is_within_rate(now()) {
                        self.server.too_many(&self.guest, Transport::Tcp);
                        return io::Error::other("too many questions");
                    }
                    if let Err(error) = self.query(bytes, &answers).await {
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

    /// The next message; `None` after the last, or when the connection must end.
    async fn next(&self, reading: &mut OwnedReadHalf, begin: Instant) -> io::Result<Option<Vec<u8>>> {
        let quiet_since = Instant::now();
        let mut coming = pin!(message(reading));
        // Checked before each message too: a client that asks all the time is never quiet.
        while may_stay_open(begin.elapsed(), quiet_since.elapsed(), self.limits.must_close_idle(&self.all)) {
            if let Ok(received) = timeout(IDLE_CHECK_INTERVAL, &mut coming).await {
                return received;
            }
        }
        Ok(None)
    }

    async fn query(&self, bytes: Vec<u8>, answers: &mpsc::Sender<Vec<u8>>) -> io::Result<()> {
        let pipelined = Arc::clone(&self.pipelined).acquire_owned().await.map_err(io::Error::other)?;
        let question_permit = self.question_permit().await?;
        let (server, guest, answers) = (Arc::clone(&self.server), Arc::clone(&self.guest), answers.clone());
        self.server.spawn(async move {
            let _pipelined = pipelined;
            let answer = server.answer(&guest, &bytes, Transport::Tcp).await;
            // A client that reads slowly delays only itself.
            drop(question_permit);
            if let Some(answer) = answer {
                // The connection may have ended.
                let _ = answers.send(answer).await;
            }
        });
        Ok(())
    }

    async fn question_permit(&self) -> io::Result<QuestionPermit> {
        for _ in 0..PERMIT_ATTEMPTS {
            if let Some(question_permit) = self.limits.question_permit(&self.server.all) {
                return Ok(question_permit);
            }
            tokio::time::sleep(PERMIT_RETRY_DELAY).await;
        }
        self.server.too_many(&self.guest, Transport::Tcp);
        Err(io::Error::other("too many questions at once"))
    }
}

/// Whether to keep a connection that waits for a message.
fn may_stay_open(age: Duration, quiet: Duration, must_close_idle: bool) -> bool {
    age < LIFETIME && quiet < IDLE_TIMEOUT && !must_close_idle
}

/// The next message; `None` after the last.
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
        // In one write: some clients expect a message in one segment.
        let framed = [&length.to_be_bytes(), &answer[..]].concat();
        timeout(WRITE_TIMEOUT, writing.write_all(&framed)).await??;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_with_few_questions_is_closed_eventually() {
        let [short, nearly, over] =
            [Duration::from_secs(1), IDLE_TIMEOUT - IDLE_CHECK_INTERVAL, IDLE_TIMEOUT];
        assert!(may_stay_open(short, short, false) && may_stay_open(LIFETIME - short, nearly, false));
        assert!(!may_stay_open(short, over, false), "quiet");
        assert!(!may_stay_open(LIFETIME, short, false), "old");
        assert!(!may_stay_open(short, short, true), "one of too many");
    }
}
