//! Bytes of a hostile peer of a websocket, for both ends of a terminal.

use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::Result;

/// In addition to three times the longest message: the buffers of the connection.
const BUFFERS_BYTES: u64 = 256 << 10;

/// Reads bombs at the end with this role. Fails if one is accepted, or takes more than a few times the longest message. `measure` runs
/// its argument, and returns the most bytes that it held: the allocator that counts them is a choice of the test program.
pub fn check_bombs(
    role: Role,
    config: WebSocketConfig,
    measure: impl Fn(&mut dyn FnMut()) -> u64,
) -> Result<()> {
    let longest = config.max_message_size.ok_or("messages without a limit")?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    for Bomb { name, bytes, is_valid } in bombs(role, longest) {
        let mut refused = None;
        let peak = measure(&mut || refused = Some(runtime.block_on(read(&bytes, role, config))));
        let refused = refused.ok_or("not measured")?;
        // A peer that disconnects without a close frame is an error, too.
        if is_valid && !refused.contains("closing handshake") {
            return Err(format!("{name}: {refused:?}").into());
        }
        if peak > 3 * longest as u64 + BUFFERS_BYTES {
            return Err(format!("{name}: {peak} bytes").into());
        }
        if refused.is_empty() {
            return Err(format!("{name} was accepted").into());
        }
    }
    Ok(())
}

/// The error that ends a connection whose peer sends these bytes and disconnects. Empty if it ends without one.
async fn read(bytes: &[u8], role: Role, config: WebSocketConfig) -> String {
    let (mut peer, own) = tokio::io::duplex(64 << 10);
    let mut socket = WebSocketStream::from_raw_socket(own, role, Some(config)).await;
    let send = async {
        let _ = peer.write_all(bytes).await;
        drop(peer);
    };
    let receive = async {
        while let Some(message) = socket.next().await {
            if let Err(error) = message {
                return error.to_string();
            }
        }
        String::new()
    };
    tokio::pin!(receive);
    tokio::select! {
        refused = &mut receive => refused,
        () = send => receive.await,
    }
}

struct Bomb {
    name: &'static str,
    bytes: Vec<u8>,
    /// Only the end of the connection is an error.
    is_valid: bool,
}

/// Frames for an end with this role: those to a service have a mask, which is 0 here.
struct Frames(Role);

impl Frames {
    /// A frame that announces a length and has this content.
    fn long(&self, first: u8, announced: u64, content: &[u8]) -> Vec<u8> {
        self.frame(first, 127, &announced.to_be_bytes(), content)
    }

    fn short(&self, first: u8, content: &[u8]) -> Vec<u8> {
        assert!(content.len() < 126, "a short frame of {} bytes", content.len());
        self.frame(first, content.len() as u8, &[], content)
    }

    fn frame(&self, first: u8, length: u8, extended: &[u8], content: &[u8]) -> Vec<u8> {
        let (masked, mask) = match self.0 {
            Role::Server => (0x80, &[0; 4][..]),
            Role::Client => (0, &[][..]),
        };
        [&[first, masked | length], extended, mask, content].concat()
    }
}

fn bombs(role: Role, longest: usize) -> Vec<Bomb> {
    let (frames, length) = (Frames(role), longest as u64);
    let refused = |name, bytes| Bomb { name, bytes, is_valid: false };
    let valid = |name, bytes| Bomb { name, bytes, is_valid: true };
    let fragment = |first| frames.short(first, &[b'x'; 100]);
    vec![
        refused("2^63 bytes announced", frames.long(0x82, 1 << 63, b"")),
        refused("2^63 - 1 bytes announced", frames.long(0x82, u64::MAX >> 1, b"")),
        refused("one byte too many", frames.long(0x82, length + 1, b"")),
        refused("the longest message announced and not sent", frames.long(0x82, length, b"x")),
        valid("the longest message", frames.long(0x82, length, &vec![b'x'; longest])),
        refused("fragments without an end", [fragment(0x02), fragment(0x00).repeat(100_000)].concat()),
        refused("a long ping", frames.long(0x89, 1 << 20, b"")),
        valid("empty messages", frames.short(0x82, b"").repeat(100_000)),
        refused("pings", frames.short(0x89, b"ping").repeat(1000)),
        refused("an unknown operation", frames.short(0x83, b"x")),
    ]
}
