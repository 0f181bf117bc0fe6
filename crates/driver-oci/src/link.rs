//! The daemon's end of the stream to an agent.
//!
//! Under a native runtime the agent has a listening socket that nothing else inside can reach, and the daemon connects to it. Under
//! gVisor the agent connects to the daemon; other processes inside could too, so it first sends a token.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::launch::{TOKEN_BYTES, remove_if_exists};
use crate::paths::Paths;
use crate::settings::Flavour;

/// gVisor takes a while to boot, and its agent retries at least once a second.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const TOKEN_TIMEOUT: Duration = Duration::from_secs(2);
/// Limit of unauthenticated connections. Further ones wait and may delay the agent: the sandbox harms only itself.
const MAX_UNAUTHENTICATED: usize = 64;
/// Interval of checks whether a process is left in the sandbox, for which there is no event.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Connects to the agent. `is_empty` returns whether no process is left in the sandbox that could connect.
pub async fn connect(
    flavour: Flavour,
    paths: &Paths,
    is_empty: impl Fn() -> bool + Send,
) -> io::Result<UnixStream> {
    match flavour {
        Flavour::Native => UnixStream::connect(paths.socket()).await,
        Flavour::Gvisor => tokio::select! {
            accepted = accept(paths) => accepted,
            () = until(is_empty) => {
                Err(io::Error::new(io::ErrorKind::ConnectionRefused, "no process is left in the sandbox"))
            }
            () = tokio::time::sleep(CONNECT_TIMEOUT) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the agent did not connect"))
            }
        },
    }
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
