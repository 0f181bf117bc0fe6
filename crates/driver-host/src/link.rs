//! The daemon's end of the stream to an agent.
//!
//! If the host's kernel serves the sandbox, the agent has a listening socket that nothing else inside can reach, and the daemon
//! connects to it. Under gVisor the agent connects to the daemon; other processes inside could too, so it first sends a token.

use std::fs;
use std::io;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::sync::Arc;
use std::time::Duration;

use api::Isolation;
use rustix::net::sockopt::set_socket_send_buffer_size_force;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::paths::Paths;

/// gVisor takes a while to boot, and its agent retries at least once a second.
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
    let dir = paths.link_dir();
    fs::create_dir_all(&dir)?;
    // The container's root traverses it.
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o711))?;
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

fn remove_if_exists(path: &std::path::Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Connects to the agent. `is_empty` returns whether no process is left in the sandbox that could connect.
pub async fn connect(
    isolation: Isolation,
    paths: &Paths,
    is_empty: impl Fn() -> bool + Send,
) -> io::Result<UnixStream> {
    let stream = match isolation {
        Isolation::Container => UnixStream::connect(paths.socket()).await?,
        Isolation::Gvisor => tokio::select! {
            accepted = accept(paths) => accepted?,
            () = until(is_empty) => {
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "no process is left in the sandbox"));
            }
            () = tokio::time::sleep(CONNECT_TIMEOUT) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the agent did not connect"));
            }
        },
    };
    set_socket_send_buffer_size_force(&stream, SEND_BYTES)?;
    Ok(stream)
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

async fn accept(paths: &Paths) -> io::Result<UnixStream> {
    let expected: Arc<[u8]> = fs::read(paths.token())?.into();
    let socket = paths.link_dir().join("agent.sock");
    remove_if_exists(&socket)?;
    let listener = UnixListener::bind(&socket)?;
    // gVisor's file server connects as the sandbox's root, an unprivileged user here.
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666))?;
    // Each connection has its own task: a silent one must not block the agent. Dropping the set ends them all.
    let mut unauthenticated = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if unauthenticated.len() < MAX_UNAUTHENTICATED => {
                unauthenticated.spawn(authenticate(accepted?.0, Arc::clone(&expected)));
            }
            Some(proved) = unauthenticated.join_next() => match proved {
                Ok(Some(stream)) => return Ok(stream),
                _ => tracing::warn!(socket = %socket.display(), "a process in a sandbox connected to the agent's socket without the token"),
            },
        }
    }
}

/// The stream, if its peer sends the token.
async fn authenticate(mut stream: UnixStream, expected: Arc<[u8]>) -> Option<UnixStream> {
    let mut received = [0; TOKEN_BYTES];
    let read = tokio::time::timeout(TOKEN_TIMEOUT, stream.read_exact(&mut received)).await;
    (matches!(read, Ok(Ok(_))) && constant_time_eq(&received, &expected)).then_some(stream)
}

/// Compares in constant time.
fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}
