//! Servers that are neither HTTP nor TLS: echoes by datagram and by stream, and one that speaks first.

use std::io::Result;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// What the server that speaks first says.
pub const GREETING: &str = "220 here is a server that speaks first\r\n";
/// Between two signs of life of a stream that never ends.
const BEAT: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Says something and then everything that it hears.
    Greets,
    /// Says everything that it hears.
    Repeats,
    /// Answers a request of HTTP with a stream that never ends.
    Drips,
}

pub(super) async fn datagrams(socket: UdpSocket) -> Result<()> {
    let mut buffer = vec![0; 65_536];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await?;
        // Whoever asked may have gone.
        let _ = socket.send_to(&buffer[..length], from).await;
    }
}

pub(super) async fn streams(listener: TcpListener, manner: Manner) -> Result<()> {
    let listener = Arc::new(listener);
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(serve(stream, manner));
    }
}

async fn serve(mut stream: TcpStream, manner: Manner) -> Result<()> {
    if manner == Manner::Greets {
        stream.write_all(GREETING.as_bytes()).await?;
    }
    let mut buffer = vec![0; 16_384];
    loop {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        if manner == Manner::Drips {
            return drip(stream).await;
        }
        stream.write_all(&buffer[..length]).await?;
    }
}

async fn drip(mut stream: TcpStream) -> Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n").await?;
    loop {
        stream.write_all(b"drop\n").await?;
        tokio::time::sleep(BEAT).await;
    }
}
