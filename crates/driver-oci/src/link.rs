//! The daemon's end of the stream to an agent.
//!
//! Under a native runtime the agent holds a listening socket that nothing else inside can reach, so we connect to it. Under
//! gVisor it connects to us; others inside could too, so it shows a secret first.

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

/// gVisor takes a while to boot, and its agent retries once a second at the slowest.
const PATIENCE: Duration = Duration::from_secs(15);
const TOKEN_PATIENCE: Duration = Duration::from_secs(2);
/// Strangers that are heard at once. More of them wait, and keep the agent waiting: the sandbox harms itself.
const MOST_STRANGERS: usize = 64;
/// How often to look whether anybody is left inside: the kernel gives no sign of it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A connection to the agent. `is_deserted` says that no process is left inside that could make one.
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
    // gVisor's file server connects as the sandbox's root, who is nobody here.
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666))?;
    // Each is heard on its own: one who says nothing must not keep the agent out. Dropped, the set ends them all.
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

/// The stream, if who is at its other end knows the secret.
async fn prove(mut stream: UnixStream, expected: Arc<[u8]>) -> Option<UnixStream> {
    let mut shown = [0; TOKEN_BYTES];
    let read = tokio::time::timeout(TOKEN_PATIENCE, stream.read_exact(&mut shown)).await;
    (matches!(read, Ok(Ok(_))) && same(&shown, &expected)).then_some(stream)
}

/// Compares in the same time whatever differs.
fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}
