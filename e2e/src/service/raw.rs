//! A raw connection on which any bytes can be sent, and a reader for the response.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::{HttpResponse, Service};

const TIMEOUT: Duration = Duration::from_secs(90);
const MAX_BYTES: usize = 1 << 20;

/// A TLS connection without HTTP, and when it was opened.
pub struct Raw(pub TlsStream<TcpStream>, Instant);

impl Service {
    pub async fn raw(&self) -> Result<Raw> {
        Ok(Raw(self.tls("localhost", &["http/1.1"]).await?, Instant::now()))
    }
}

impl Raw {
    /// Sends the bytes. Returns false if the server closed the connection before it read everything.
    pub async fn write(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).await.is_ok() && self.0.flush().await.is_ok()
    }

    /// Reads the response and checks its form.
    pub async fn answer(&mut self) -> Result<HttpResponse> {
        let mut answer = read_answer(&mut self.0).await?;
        // The start of the request is not known; a long upload may have begun long ago.
        answer.took = self.1.elapsed();
        answer.check()?;
        Ok(answer)
    }

    /// Reads the head of a response and nothing of its body.
    pub async fn head(&mut self) -> Result<String> {
        tokio::time::timeout(TIMEOUT, read_head(&mut self.0))
            .await
            .context("there was no response in time")?
    }

    pub async fn exchange(&mut self, bytes: &[u8]) -> Result<HttpResponse> {
        let (mut reader, mut writer) = tokio::io::split(&mut self.0);
        let send = async {
            // The server may respond before it has read everything.
            let _ = writer.write_all(bytes).await;
            let _ = writer.flush().await;
            std::future::pending::<()>().await;
        };
        let answer = tokio::select! {
            answer = read_answer(&mut reader) => answer?,
            () = send => unreachable!("never completes"),
        };
        answer.check()?;
        Ok(answer)
    }

    /// Waits until the server closes the connection; returns the bytes received before.
    pub async fn closed(&mut self, within: Duration) -> Result<Vec<u8>> {
        let mut received = Vec::new();
        let read = tokio::time::timeout(within, self.0.read_to_end(&mut received)).await;
        // A reset counts as closed.
        drop(read.context("the connection stays open")?);
        Ok(received)
    }
}

/// Reads one response that has a length. Later bytes stay unread.
pub async fn read_answer(from: &mut (impl AsyncRead + Unpin)) -> Result<HttpResponse> {
    tokio::time::timeout(TIMEOUT, read(from)).await.context("there was no response in time")?
}

/// Reads the head of a response.
pub async fn read_head(from: &mut (impl AsyncRead + Unpin)) -> Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < MAX_BYTES, "the head is too long");
        let byte = from.read_u8().await;
        head.push(
            byte.with_context(|| format!("the connection ended after {:?}", String::from_utf8_lossy(&head)))?,
        );
    }
    Ok(String::from_utf8(head)?)
}

async fn read(from: &mut (impl AsyncRead + Unpin)) -> Result<HttpResponse> {
    let head = read_head(from).await?;
    let mut lines = head.trim_end().split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.with_context(|| format!("no status line: {first:?}"))?;
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(':').with_context(|| format!("not a header: {line:?}"))?;
        headers.append(name.parse::<HeaderName>()?, value.trim().parse::<HeaderValue>()?);
    }
    let length = super::answer::number(&headers, "content-length")?;
    ensure!(length <= MAX_BYTES as u64, "the body has {length} bytes");
    let mut body = vec![0; usize::try_from(length)?];
    from.read_exact(&mut body).await?;
    Ok(HttpResponse { status, headers, body: Bytes::from(body), took: Duration::ZERO })
}
