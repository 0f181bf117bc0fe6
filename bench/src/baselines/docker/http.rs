//! Minimal HTTP/1.1 over a Unix socket: one connection per request, read to its end.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

const MAX_RESPONSE_BYTES: u64 = 16 << 20;
const UPLOAD_BYTES: usize = 64 * 1024;

pub struct Client {
    socket: PathBuf,
}

/// A response with its complete body.
#[derive(Debug)]
pub struct DockerResponse {
    status: u16,
    body: Vec<u8>,
}

impl Client {
    pub fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    pub async fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<DockerResponse> {
        let body = body.map_or_else(String::new, Value::to_string);
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: docker\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = self.connect().await?;
        stream.write_all((head + &body).as_bytes()).await?;
        read_response(stream).await.with_context(|| format!("{method} {path}"))
    }

    /// A request with a body of unknown length.
    pub async fn upload(&self, path: &str, mut body: impl AsyncRead + Unpin) -> Result<DockerResponse> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: docker\r\nConnection: close\r\nContent-Type: application/x-tar\r\n\
             Transfer-Encoding: chunked\r\n\r\n"
        );
        let mut stream = self.connect().await?;
        stream.write_all(head.as_bytes()).await?;
        let mut buffer = vec![0; UPLOAD_BYTES];
        loop {
            let read = body.read(&mut buffer).await?;
            stream.write_all(format!("{read:x}\r\n").as_bytes()).await?;
            stream.write_all(&buffer[..read]).await?;
            stream.write_all(b"\r\n").await?;
            if read == 0 {
                return read_response(stream).await.with_context(|| format!("POST {path}"));
            }
        }
    }

    async fn connect(&self) -> Result<UnixStream> {
        UnixStream::connect(&self.socket)
            .await
            .with_context(|| format!("connecting to {}", self.socket.display()))
    }
}

async fn read_response(stream: UnixStream) -> Result<DockerResponse> {
    let mut bytes = Vec::new();
    stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut bytes).await?;
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Result<DockerResponse> {
    let end = bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .context("the response has an incomplete head")?;
    let head =
        std::str::from_utf8(&bytes[..end]).context("the response's head is not UTF-8")?.to_ascii_lowercase();
    let status = head
        .split_whitespace()
        .nth(1)
        .and_then(|word| word.parse().ok())
        .context("the response has no status")?;
    let body = &bytes[end + 4..];
    let chunked = head.lines().any(|line| line.starts_with("transfer-encoding:") && line.contains("chunked"));
    let body = if chunked { join_chunks(body)? } else { body.to_vec() };
    Ok(DockerResponse { status, body })
}

fn join_chunks(mut bytes: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = bytes.windows(2).position(|window| window == b"\r\n").context("a chunk has no length")?;
        let length = std::str::from_utf8(&bytes[..end])?.split(';').next().unwrap_or_default().trim();
        let length =
            usize::from_str_radix(length, 16).with_context(|| format!("invalid chunk length {length:?}"))?;
        if length == 0 {
            return Ok(body);
        }
        let start = end + 2;
        ensure!(bytes.len() >= start + length + 2, "a chunk is truncated");
        body.extend_from_slice(&bytes[start..start + length]);
        bytes = &bytes[start + length + 2..];
    }
}

impl DockerResponse {
    pub fn expect_status(self, statuses: &[u16]) -> Result<Self> {
        let Self { status, body } = &self;
        ensure!(
            statuses.contains(status),
            "Docker answered {status}: {}",
            String::from_utf8_lossy(body).trim()
        );
        Ok(self)
    }

    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }

    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).context("the response is not JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_with_a_length_or_in_chunks_are_parsed() {
        let whole = parse(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        assert_eq!((whole.status, whole.body), (200, b"{}".to_vec()));
        let chunks = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"a\r\n4;x=y\r\n\":1}\r\n0\r\n\r\n";
        assert_eq!(
            parse(chunks).unwrap().expect_status(&[201]).unwrap().json().unwrap(),
            serde_json::json!({ "a": 1 })
        );
    }

    #[test]
    fn truncated_responses_are_errors() {
        assert!(parse(b"HTTP/1.1 200 OK\r\n").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc").is_err());
        assert!(
            parse(b"HTTP/1.1 500 Oh\r\n\r\nwhy")
                .unwrap()
                .expect_status(&[200])
                .unwrap_err()
                .to_string()
                .contains("why")
        );
    }
}
