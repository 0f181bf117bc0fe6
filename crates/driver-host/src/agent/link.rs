//! The daemon's end of the stream to an agent.
//!
//! If the host's kernel serves the sandbox, the agent has a listening socket that nothing else inside can reach, and the daemon
//! connects to it. Under gVisor the agent connects to the daemon, over the sandbox's [`crate::agent::control_link`]; other processes inside could
//! too, so it first sends a token.

use std::fs;
use std::io::{self, IoSlice, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use driver::ByteStream;
use rustix::net::sockopt::{set_socket_linger, set_socket_send_buffer_size_force};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::paths::Paths;
use crate::removal::remove_if_exists;

/// gVisor takes a while to boot, and its agent tries again after at most two seconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const TOKEN_TIMEOUT: Duration = Duration::from_secs(2);
/// Limit of unauthenticated connections. Further ones wait and may delay the agent: the sandbox harms only itself.
const MAX_UNAUTHENTICATED: usize = 64;
/// Interval of checks whether a process is left in the sandbox, for which there is no event.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// What the kernel holds for an agent that has not read it yet: a few pieces of an upload, so that the daemon wakes seldom.
const SEND_BYTES: usize = 1024 * 1024;

/// Length of the token of an agent that connects.
pub const TOKEN_BYTES: usize = 32;

/// The listening socket that an agent inherits.
pub fn listen(paths: &Paths) -> io::Result<OwnedFd> {
    let socket = paths.socket();
    remove_if_exists(&socket)?;
    let listener = std::os::unix::net::UnixListener::bind(&socket)?;
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600))?;
    Ok(listener.into())
}

/// Makes a new token for an agent that connects. Returns a pipe from which the agent reads it.
pub fn prepare_token(paths: &Paths) -> io::Result<OwnedFd> {
    let mut token = [0; TOKEN_BYTES];
    rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())?;
    fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(paths.token())?
        .write_all(&token)?;
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    // The token fits into the pipe at once; the writer is closed before the agent reads.
    fs::File::from(writer).write_all(&token)?;
    Ok(reader)
}

/// Connects to the agent of a container.
pub async fn connect(paths: &Paths) -> io::Result<Box<dyn ByteStream>> {
    let stream = UnixStream::connect(paths.socket()).await?;
    set_socket_send_buffer_size_force(&stream, SEND_BYTES)?;
    Ok(Box::new(stream))
}

/// A connection to a network stack that is a process, which ends with the process.
struct StackStream {
    stream: TcpStream,
    process: AsyncFd<OwnedFd>,
}

impl AsyncRead for StackStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(cx, buf) {
            return Poll::Ready(read);
        }
        // It has ended, and everything it sent was read.
        self.process.poll_read_ready(cx).map_ok(drop)
    }
}

impl AsyncWrite for StackStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Where an agent that connects is waited for.
pub enum Listener {
    /// With the process that has the other end.
    Tcp(TcpListener, OwnedFd),
    /// Of a sandbox that an earlier version has started.
    Unix(UnixListener),
}

impl Listener {
    /// The socket of a sandbox that an earlier version has started, whose directory exists.
    pub fn of_earlier_version(paths: &Paths) -> io::Result<Self> {
        let socket = paths.link_dir().join("agent.sock");
        remove_if_exists(&socket)?;
        let listener = UnixListener::bind(&socket)?;
        // gVisor's file server connects as the sandbox's root, an unprivileged user here.
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666))?;
        Ok(Self::Unix(listener))
    }

    async fn accept(&self) -> io::Result<Box<dyn ByteStream>> {
        match self {
            Self::Tcp(listener, process) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                // Otherwise the kernel keeps what was not sent to a process that was killed, and with it the network namespace.
                set_socket_linger(&stream, Some(Duration::ZERO))?;
                set_socket_send_buffer_size_force(&stream, SEND_BYTES)?;
                // SAFETY: an `OwnedFd` stays open until it is dropped, which is after the `AsyncFd` has deregistered it.
                let process =
                    unsafe { AsyncFd::register_with_interest(process.try_clone()?, Interest::READABLE) }?;
                Ok(Box::new(StackStream { stream, process }))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                set_socket_send_buffer_size_force(&stream, SEND_BYTES)?;
                Ok(Box::new(stream))
            }
        }
    }
}

/// Waits until the agent connects. `is_empty` returns whether no process is left in the sandbox that could.
pub async fn accept(
    listener: Listener,
    paths: &Paths,
    is_empty: impl Fn() -> bool + Send,
) -> io::Result<Box<dyn ByteStream>> {
    tokio::select! {
        accepted = accept_authenticated(&listener, paths) => accepted,
        () = until(is_empty) => {
            Err(io::Error::new(io::ErrorKind::ConnectionRefused, "no process is left in the sandbox"))
        }
        () = tokio::time::sleep(CONNECT_TIMEOUT) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the agent did not connect"))
        }
    }
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

async fn accept_authenticated(listener: &Listener, paths: &Paths) -> io::Result<Box<dyn ByteStream>> {
    let expected: Arc<[u8]> = fs::read(paths.token())?.into();
    // Each connection has its own task: a silent one must not block the agent. Dropping the set ends them all.
    let mut unauthenticated = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if unauthenticated.len() < MAX_UNAUTHENTICATED => {
                unauthenticated.spawn(authenticate(accepted?, Arc::clone(&expected)));
            }
            Some(proved) = unauthenticated.join_next() => match proved {
                Ok(Some(stream)) => return Ok(stream),
                _ => tracing::warn!(sandbox = %paths.run.display(), "a process in a sandbox connected as its agent without the token"),
            },
        }
    }
}

/// The stream, if its peer sends the token.
async fn authenticate(mut stream: Box<dyn ByteStream>, expected: Arc<[u8]>) -> Option<Box<dyn ByteStream>> {
    let mut received = [0; TOKEN_BYTES];
    let read = tokio::time::timeout(TOKEN_TIMEOUT, stream.read_exact(&mut received)).await;
    (matches!(read, Ok(Ok(_))) && constant_time_eq(&received, &expected)).then_some(stream)
}

/// Compares in constant time.
fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}
