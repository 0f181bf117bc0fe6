//! A raw connection on which any bytes can be sent, and a reader for the response.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::{Answer, Service};

const PATIENCE: Duration = Duration::from_secs(20);
const LONGEST: usize = 1 << 20;

/// A TLS connection without HTTP, and since when it is open.
pub struct Raw(pub TlsStream<TcpStream>, Instant);

impl Service {
    pub async fn raw(&self) -> Result<Raw> {
        Ok(Raw(self.tls("localhost", &["http/1.1"]).await?, Instant::now()))
    }
}

impl Raw {
    /// Sends as much as is taken: a server may refuse before it has read everything.
    pub async fn write(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).await.is_ok() && self.0.flush().await.is_ok()
    }

    /// The answer to what was sent, in the form that every answer has.
    pub async fn answer(&mut self) -> Result<Answer> {
        let mut answer = read_answer(&mut self.0).await?;
        // When its request began is not known; a long upload began long ago.
        answer.took = self.1.elapsed();
        answer.check()?;
        Ok(answer)
    }

    /// The head of an answer up to its end, whatever follows.
    pub async fn head(&mut self) -> Result<String> {
        tokio::time::timeout(PATIENCE, read_head(&mut self.0)).await.context("there is no answer")?
    }

    pub async fn exchange(&mut self, bytes: &[u8]) -> Result<Answer> {
        let (mut reader, mut writer) = tokio::io::split(&mut self.0);
        let send = async {
            // Refused half-way is as good as sent; the answer tells.
            let _ = writer.write_all(bytes).await;
            let _ = writer.flush().await;
            std::future::pending::<()>().await;
        };
        let answer = tokio::select! {
            answer = read_answer(&mut reader) => answer?,
            () = send => unreachable!("it waits for ever"),
        };
        answer.check()?;
        Ok(answer)
    }

    /// Waits for the server to close the connection; what it said before that.
    pub async fn closed(&mut self, within: Duration) -> Result<Vec<u8>> {
        let mut said = Vec::new();
        let read = tokio::time::timeout(within, self.0.read_to_end(&mut said)).await;
        // A connection that is cut off is closed too.
        drop(read.context("the connection stays open")?);
        Ok(said)
    }
}

/// One answer with a length. What follows it stays unread.
pub async fn read_answer(from: &mut (impl AsyncRead + Unpin)) -> Result<Answer> {
    tokio::time::timeout(PATIENCE, read(from)).await.context("there is no answer")?
}

async fn read_head(from: &mut (impl AsyncRead + Unpin)) -> Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < LONGEST, "an endless head");
        let byte = from.read_u8().await;
        head.push(byte.with_context(|| format!("cut off after {:?}", String::from_utf8_lossy(&head)))?);
    }
    Ok(String::from_utf8(head)?)
}

async fn read(from: &mut (impl AsyncRead + Unpin)) -> Result<Answer> {
    let head = read_head(from).await?;
    let mut lines = head.trim_end().split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.with_context(|| format!("no status line: {first:?}"))?;
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(':').with_context(|| format!("no header: {line:?}"))?;
        headers.append(name.parse::<HeaderName>()?, value.trim().parse::<HeaderValue>()?);
    }
    let length = super::answer::number(&headers, "content-length")?;
    ensure!(length <= LONGEST as u64, "an answer of {length} bytes");
    let mut body = vec![0; usize::try_from(length)?];
    from.read_exact(&mut body).await?;
    Ok(Answer { status, headers, body: Bytes::from(body), took: Duration::ZERO })
}
