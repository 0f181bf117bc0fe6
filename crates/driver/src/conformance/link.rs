//! The host side of the agent protocol, reduced to what the suite needs. Anything unexpected panics.

use std::collections::VecDeque;
use std::time::Duration;

use guest_proto::{ExecSpec, Exit, MIN_VERSION, PREFIX, StdinMode, ToGuest, ToHost, VERSION};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::ByteStream;

/// Timeout for each frame of the agent; long enough for a loaded host with a slow backend.
const TIMEOUT: Duration = Duration::from_secs(30);
const WINDOW: u32 = 64 * 1024;

pub struct Link {
    stream: Box<dyn ByteStream>,
    buffer: Vec<u8>,
    next: u64,
    started: VecDeque<u64>,
    /// Frames that arrived before a case waits for them.
    early: VecDeque<Frame>,
    /// Commands of earlier links that still ran when this link was opened.
    pub leftover: Vec<u64>,
}

/// An owned frame, reduced to what the suite checks.
#[derive(Debug)]
enum Frame {
    Welcome(Vec<u64>),
    Started(u64),
    Data(u64, Vec<u8>),
    Exited(u64, Exit),
    Other,
}

impl Link {
    pub async fn open(stream: Box<dyn ByteStream>) -> Self {
        let mut link = Self {
            stream,
            buffer: Vec::new(),
            next: 1,
            started: VecDeque::new(),
            early: VecDeque::new(),
            leftover: Vec::new(),
        };
        link.send(&ToGuest::Hello { version: VERSION, min_version: MIN_VERSION }).await;
        match link.receive().await {
            Some(Frame::Welcome(ops)) => link.leftover = ops,
            other => panic!("expected a welcome and got {other:?}"),
        }
        link.next = link.leftover.iter().max().map_or(1, |op| op + 1);
        link
    }

    pub async fn run(&mut self, text: &str) -> (String, Exit) {
        self.start(text).await;
        self.finish().await
    }

    /// Starts a command. [`Link::finish`] returns the ends of commands in the order of their starts.
    pub async fn start(&mut self, text: &str) -> u64 {
        let op = self.next;
        self.next += 1;
        let spec = ExecSpec {
            argv: vec!["bash", "-c", text],
            env: vec![("PATH", "/usr/bin:/bin")],
            cwd: "/workspace",
            stdin: StdinMode::Null,
        };
        self.send(&ToGuest::Exec { op, spec, window: WINDOW }).await;
        self.started.push_back(op);
        op
    }

    /// Waits until the last started command runs.
    pub async fn is_started(&mut self) {
        let wanted = self.next - 1;
        loop {
            match self.receive().await {
                Some(Frame::Started(op)) if op == wanted => return,
                Some(frame) => self.early.push_back(frame),
                None => panic!("the link ended before operation {wanted} ran"),
            }
        }
    }

    pub async fn finish(&mut self) -> (String, Exit) {
        let Some(wanted) = self.started.pop_front() else { panic!("no command was started") };
        let mut output = Vec::new();
        let early = std::mem::take(&mut self.early);
        for frame in early {
            match frame {
                Frame::Data(op, bytes) if op == wanted => output.extend(bytes),
                other => self.early.push_back(other),
            }
        }
        if let Some(index) =
            self.early.iter().position(|frame| matches!(frame, Frame::Exited(op, _) if *op == wanted))
            && let Some(Frame::Exited(_, exit)) = self.early.remove(index)
        {
            return (String::from_utf8_lossy(&output).into_owned(), exit);
        }
        loop {
            match self.receive().await {
                Some(Frame::Data(op, bytes)) if op == wanted => output.extend(bytes),
                Some(Frame::Exited(op, exit)) if op == wanted => {
                    return (String::from_utf8_lossy(&output).into_owned(), exit);
                }
                Some(other) => self.early.push_back(other),
                None => panic!("the link ended before operation {wanted} did"),
            }
        }
    }

    pub async fn kill(&mut self, op: u64) -> Exit {
        self.send(&ToGuest::Kill { op }).await;
        self.started.push_front(op);
        self.finish().await.1
    }

    /// Waits until the agent has closed the link.
    pub async fn ended(&mut self) {
        while self.receive().await.is_some() {}
    }

    async fn send(&mut self, frame: &ToGuest<'_>) {
        let mut bytes = Vec::new();
        if let Err(error) = guest_proto::encode_to_guest(frame, &mut bytes) {
            panic!("{frame:?} cannot be sent: {error}");
        }
        // If the link has ended, the next read reports it.
        let _ = self.stream.write_all(&bytes).await;
    }

    async fn receive(&mut self) -> Option<Frame> {
        match tokio::time::timeout(TIMEOUT, self.read()).await {
            Ok(frame) => frame,
            Err(_) => panic!("the agent sent nothing for {} s", TIMEOUT.as_secs()),
        }
    }

    async fn read(&mut self) -> Option<Frame> {
        loop {
            match guest_proto::split(&self.buffer) {
                Ok(Some(end)) => {
                    let frame = decode(&self.buffer[PREFIX..end]);
                    self.buffer.drain(..end);
                    return Some(frame);
                }
                Ok(None) => {}
                Err(error) => panic!("the agent broke the protocol: {error}"),
            }
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }
}

fn decode(body: &[u8]) -> Frame {
    match guest_proto::decode_to_host(body) {
        Ok(ToHost::Welcome { ops, .. }) => Frame::Welcome(ops),
        Ok(ToHost::Started { op, .. }) => Frame::Started(op),
        Ok(ToHost::Data { op, bytes, .. }) => Frame::Data(op, bytes.to_vec()),
        Ok(ToHost::Exited { op, exit, .. }) => Frame::Exited(op, exit),
        Ok(ToHost::Refused { op, message, .. }) => panic!("operation {op} was refused: {message}"),
        Ok(ToHost::Bye { reason }) => panic!("the agent closed the link: {reason}"),
        Ok(_) => Frame::Other,
        Err(error) => panic!("the agent broke the protocol: {error}"),
    }
}
