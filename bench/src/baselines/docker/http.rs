//! As much of HTTP/1.1 over a Unix socket as a comparison with Docker takes: one connection a request, read to its end.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

const MAX_ANSWER_BYTES: u64 = 16 << 20;
const UPLOAD_BYTES: usize = 64 * 1024;

pub struct Client {
    socket: PathBuf,
}

/// A response with its complete body.
#[derive(Debug)]
pub struct Answer {
    status: u16,
    body: Vec<u8>,
}

impl Client {
    pub fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    pub async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer> {
        let body = body.map_or_else(String::new, Value::to_string);
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: docker\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = self.connect().await?;
        stream.write_all((head + &body).as_bytes()).await?;
        answer(stream).await.with_context(|| format!("{method} {path}"))
    }

    /// A request with a body of unknown length.
    pub async fn upload(&self, path: &str, mut body: impl AsyncRead + Unpin) -> Result<Answer> {
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
                return answer(stream).await.with_context(|| format!("POST {path}"));
            }
        }
    }

    async fn connect(&self) -> Result<UnixStream> {
        UnixStream::connect(&self.socket)
            .await
            .with_context(|| format!("connecting to {}", self.socket.display()))
    }
}

async fn answer(stream: UnixStream) -> Result<Answer> {
    let mut bytes = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut bytes).await?;
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Result<Answer> {
    let end = bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .context("an answer without an end of its head")?;
    let head =
        std::str::from_utf8(&bytes[..end]).context("an answer whose head is no text")?.to_ascii_lowercase();
    let status = head
        .split_whitespace()
        .nth(1)
        .and_then(|word| word.parse().ok())
        .context("an answer without a status")?;
    let body = &bytes[end + 4..];
    let chunked = head.lines().any(|line| line.starts_with("transfer-encoding:") && line.contains("chunked"));
    let body = if chunked { join_chunks(body)? } else { body.to_vec() };
    Ok(Answer { status, body })
}

fn join_chunks(mut bytes: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end =
            bytes.windows(2).position(|window| window == b"\r\n").context("a chunk without a length")?;
        let length = std::str::from_utf8(&bytes[..end])?.split(';').next().unwrap_or_default().trim();
        let length =
            usize::from_str_radix(length, 16).with_context(|| format!("a chunk of length {length:?}"))?;
        if length == 0 {
            return Ok(body);
        }
        let start = end + 2;
        ensure!(bytes.len() >= start + length + 2, "a chunk is cut short");
        body.extend_from_slice(&bytes[start..start + length]);
        bytes = &bytes[start + length + 2..];
    }
}

impl Answer {
    pub fn want(self, statuses: &[u16]) -> Result<Self> {
        let Self { status, body } = &self;
        ensure!(
            statuses.contains(status),
            "Docker answered {status}: {}",
            String::from_utf8_lossy(body).trim()
        );
        Ok(self)
    }

    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).context("an answer that is no JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_come_whole_or_in_chunks() {
        let whole = parse(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        assert_eq!((whole.status, whole.body), (200, b"{}".to_vec()));
        let chunks = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"a\r\n4;x=y\r\n\":1}\r\n0\r\n\r\n";
        assert_eq!(
            parse(chunks).unwrap().want(&[201]).unwrap().json().unwrap(),
            serde_json::json!({ "a": 1 })
        );
    }

    #[test]
    fn what_is_cut_short_is_an_error() {
        assert!(parse(b"HTTP/1.1 200 OK\r\n").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc").is_err());
        assert!(
            parse(b"HTTP/1.1 500 Oh\r\n\r\nwhy")
                .unwrap()
                .want(&[200])
                .unwrap_err()
                .to_string()
                .contains("why")
        );
    }
}
