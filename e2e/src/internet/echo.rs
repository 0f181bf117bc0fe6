//! Servers that are neither HTTP nor TLS: UDP and TCP echo, and one that sends first.

use std::io::Result;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// The greeting of the server that sends first.
pub const GREETING: &str = "220 here is a server that speaks first\r\n";
/// The interval between the lines of an endless stream.
const SEND_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamMode {
    /// Sends a greeting and then echoes.
    Greeting,
    /// Echoes.
    Echo,
    /// Answers an HTTP request with an endless stream.
    Endless,
}

pub(super) async fn datagrams(socket: UdpSocket) -> Result<()> {
    let mut buffer = vec![0; 65_536];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await?;
        // The client may be gone.
        let _ = socket.send_to(&buffer[..length], from).await;
    }
}

pub(super) async fn streams(listener: TcpListener, mode: StreamMode) -> Result<()> {
    let listener = Arc::new(listener);
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(serve(stream, mode));
    }
}

async fn serve(mut stream: TcpStream, mode: StreamMode) -> Result<()> {
    if mode == StreamMode::Greeting {
        stream.write_all(GREETING.as_bytes()).await?;
    }
    let mut buffer = vec![0; 16_384];
    loop {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        if mode == StreamMode::Endless {
            return send_endlessly(stream).await;
        }
        stream.write_all(&buffer[..length]).await?;
    }
}

async fn send_endlessly(mut stream: TcpStream) -> Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n").await?;
    loop {
        stream.write_all(b"drop\n").await?;
        tokio::time::sleep(SEND_INTERVAL).await;
    }
}
