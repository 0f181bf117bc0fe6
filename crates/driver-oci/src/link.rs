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

use crate::launch::{TOKEN_BYTES, remove_if_there};
use crate::paths::Paths;
use crate::settings::Flavour;

/// gVisor takes a while to boot, and its agent retries at least once a second.
const PATIENCE: Duration = Duration::from_secs(15);
const TOKEN_PATIENCE: Duration = Duration::from_secs(2);
/// Unauthenticated connections at once. More of them wait and delay the agent: the sandbox harms only itself.
const MOST_STRANGERS: usize = 64;
/// How often to check whether a process is left inside, for which there is no event.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Connects to the agent. `is_deserted` tells that no process is left inside that could connect.
pub async fn connect(
    flavour: Flavour,
    paths: &Paths,
    is_deserted: impl Fn() -> bool + Send,
) -> io::Result<UnixStream> {
    match flavour {
        Flavour::Native => UnixStream::connect(paths.socket()).await,
        Flavour::Gvisor => tokio::select! {
            accepted = accept(paths) => accepted,
            () = until(is_deserted) => {
                Err(io::Error::new(io::ErrorKind::ConnectionRefused, "no process is left inside to connect"))
            }
            () = tokio::time::sleep(PATIENCE) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the agent did not connect"))
            }
        },
    }
}

async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn accept(paths: &Paths) -> io::Result<UnixStream> {
    let expected: Arc<[u8]> = fs::read(paths.token())?.into();
    let socket = paths.link_dir().join("agent.sock");
    remove_if_there(&socket)?;
    let listener = UnixListener::bind(&socket)?;
    // gVisor's file server connects as the sandbox's root, an unprivileged user here.
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666))?;
    // Each connection has its own task: a silent one must not block the agent. Dropping the set ends them all.
    let mut callers = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if callers.len() < MOST_STRANGERS => {
                callers.spawn(prove(accepted?.0, Arc::clone(&expected)));
            }
            Some(proved) = callers.join_next() => match proved {
                Ok(Some(stream)) => return Ok(stream),
                _ => tracing::warn!(socket = %socket.display(), "a stranger inside a sandbox tried to be its agent"),
            },
        }
    }
}

/// The stream, if its peer sends the token.
async fn prove(mut stream: UnixStream, expected: Arc<[u8]>) -> Option<UnixStream> {
    let mut shown = [0; TOKEN_BYTES];
    let read = tokio::time::timeout(TOKEN_PATIENCE, stream.read_exact(&mut shown)).await;
    (matches!(read, Ok(Ok(_))) && same(&shown, &expected)).then_some(stream)
}

/// Compares in constant time.
fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}
