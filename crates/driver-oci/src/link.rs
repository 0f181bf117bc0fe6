//! The daemon's end of the stream to an agent.
//!
//! Under a native runtime the agent holds a listening socket that nothing else inside can reach, so we connect to it. Under
//! gVisor it connects to us; others inside could too, so it shows a secret first.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};

use crate::launch::{TOKEN_BYTES, remove_if_there};
use crate::paths::Paths;
use crate::settings::Flavour;

/// gVisor takes a while to boot, and its agent retries once a second at the slowest.
const PATIENCE: Duration = Duration::from_secs(15);
const TOKEN_PATIENCE: Duration = Duration::from_secs(2);

pub async fn connect(flavour: Flavour, paths: &Paths) -> io::Result<UnixStream> {
    match flavour {
        Flavour::Native => UnixStream::connect(paths.socket()).await,
        Flavour::Gvisor => match tokio::time::timeout(PATIENCE, accept(paths)).await {
            Ok(accepted) => accepted,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the agent did not connect")),
        },
    }
}

async fn accept(paths: &Paths) -> io::Result<UnixStream> {
    let expected = fs::read(paths.token())?;
    let socket = paths.link_dir().join("agent.sock");
    remove_if_there(&socket)?;
    let listener = UnixListener::bind(&socket)?;
    // gVisor's file server connects as the sandbox's root, who is nobody here.
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666))?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        let mut shown = [0; TOKEN_BYTES];
        let read = tokio::time::timeout(TOKEN_PATIENCE, stream.read_exact(&mut shown)).await;
        if matches!(read, Ok(Ok(_))) && same(&shown, &expected) {
            return Ok(stream);
        }
        tracing::warn!(socket = %socket.display(), "a stranger inside a sandbox tried to be its agent");
    }
}

/// Compares in the same time whatever differs.
fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}
