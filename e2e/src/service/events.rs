//! A strict parser for streams of Server-Sent Events: accepts only what the service should send.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::Incoming;
use serde_json::Value;

use super::answer::{check_common, header};
use super::sender::Sender;

/// Longer than any interval between events or comments.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longer than any interval between events.
const EVENT_TIMEOUT: Duration = Duration::from_secs(600);

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub name: String,
    pub data: String,
    /// `None` on streams whose messages have no id.
    pub id: Option<String>,
}

/// An open stream. Dropping it closes the connection.
pub struct Events {
    pub headers: HeaderMap,
    pub comments: u64,
    /// The value of `Last-Event-ID` for a reconnect.
    pub last_id: Option<String>,
    body: Incoming,
    buffer: Vec<u8>,
    _sender: Sender,
}

impl Events {
    pub(super) fn new(sender: Sender, headers: HeaderMap, body: Incoming) -> Result<Self> {
        check_common(&headers, Duration::ZERO)?;
        let content_type = header(&headers, "content-type").unwrap_or_default();
        ensure!(content_type.starts_with("text/event-stream"), "content type {content_type:?}");
        Ok(Self { headers, comments: 0, last_id: None, body, buffer: Vec::new(), _sender: sender })
    }

    /// The next event, or `None` if the stream has ended properly.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        tokio::time::timeout(EVENT_TIMEOUT, self.read()).await.context("the stream sent no event in time")?
    }

    async fn read(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                if let Some(event) = self.parse(std::str::from_utf8(&block[..end])?)? {
                    return Ok(Some(event));
                }
                continue;
            }
            let frame = tokio::time::timeout(TIMEOUT, self.body.frame());
            match frame.await.context("the stream sent nothing in time")? {
                Some(frame) => {
                    let data = frame?.into_data().map_err(|_| anyhow::anyhow!("trailers"))?;
                    self.buffer.extend_from_slice(&data);
                }
                None if self.buffer.is_empty() => return Ok(None),
                None => bail!("the stream ended in the middle of an event: {:?}", self.buffer),
            }
        }
    }

    fn parse(&mut self, block: &str) -> Result<Option<Event>> {
        let (mut name, mut data, mut id) = (None, None::<String>, None);
        for line in block.split('\n') {
            if line.starts_with(':') {
                self.comments += 1;
            } else if let Some(value) = line.strip_prefix("event: ") {
                ensure!(name.replace(value.to_owned()).is_none(), "two names in {block:?}");
            } else if let Some(value) = line.strip_prefix("id: ") {
                ensure!(id.replace(value.to_owned()).is_none(), "two ids in {block:?}");
                self.last_id = Some(value.to_owned());
            } else if let Some(value) = line.strip_prefix("retry: ") {
                value.parse::<u32>().with_context(|| format!("{line:?} is not a time"))?;
            } else if let Some(value) = line.strip_prefix("data:") {
                let value = value.strip_prefix(' ').unwrap_or(value);
                match &mut data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    None => data = Some(value.to_owned()),
                }
            } else {
                bail!("{line:?} is not a valid line of an event");
            }
        }
        match (name, data) {
            (Some(name), Some(data)) => Ok(Some(Event { name, data, id })),
            (None, None) => Ok(None),
            _ => bail!("an event without name or data: {block:?}"),
        }
    }

    /// All remaining events.
    pub async fn rest(mut self) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await? {
            events.push(event);
        }
        Ok(events)
    }
}

impl Event {
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.data).with_context(|| format!("not JSON: {}", self.data))
    }
}
