//! The commands that a fake sandbox supports. Each has the same meaning as in bash, so that one suite runs on all backends.
//!
//! `true` · `exit N` · `echo TEXT` · `echo TEXT >&2` · `echo $NAME` · `echo TEXT > FILE` · `cat` · `cat FILE` · `pwd` · `sleep SECONDS`
//! · `sleep 1000 >/dev/null 2>&1 &` · `pgrep -c sleep` · `head -c BYTES /dev/zero` · `kill -9 $$`, and several separated by `; `

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use guest_proto::{Channel, ExecSpec, Exit, ToHost};

use super::detached_op::DetachedOp;
use super::guest::{Inbox, Inner, Out, index, lock};

const PIECE: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    Exit(i32),
    Print(Channel, String),
    Write {
        path: String,
        text: String,
    },
    CopyInput,
    Read {
        path: String,
        shown: String,
    },
    Sleep(Duration),
    Background,
    CountBackground,
    Zeroes(usize),
    Die,
    /// A sequence, up to the first command that ends the shell.
    Sequence(Vec<Command>),
    /// Echoes input until a line `exit N`.
    Terminal,
    Unknown,
}

pub fn parse(spec: &ExecSpec<'_>) -> Command {
    let text = spec.argv.last().copied().unwrap_or_default();
    let mut steps: Vec<Command> = text.split("; ").map(|step| parse_step(step.trim(), spec)).collect();
    if steps.len() == 1 { steps.remove(0) } else { Command::Sequence(steps) }
}

fn parse_step(text: &str, spec: &ExecSpec<'_>) -> Command {
    let line = |text: &str| format!("{}\n", expanded(text, spec));
    let absolute =
        |path: &str| if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", spec.cwd) };
    match text {
        "true" => return Command::Print(Channel::Stdout, String::new()),
        "cat" => return Command::CopyInput,
        "pwd" => return Command::Print(Channel::Stdout, format!("{}\n", spec.cwd)),
        "kill -9 $$" => return Command::Die,
        "sleep 1000 >/dev/null 2>&1 &" => return Command::Background,
        "pgrep -c sleep" => return Command::CountBackground,
        _ => {}
    }
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    match verb {
        "exit" => rest.parse().map_or(Command::Unknown, Command::Exit),
        "cat" => Command::Read { path: absolute(rest), shown: rest.to_owned() },
        "sleep" => {
            rest.parse().map_or(Command::Unknown, |seconds| Command::Sleep(Duration::from_secs_f64(seconds)))
        }
        "head" => {
            let bytes = rest.strip_prefix("-c ").and_then(|rest| rest.strip_suffix(" /dev/zero"));
            bytes.and_then(|bytes| bytes.parse().ok()).map_or(Command::Unknown, Command::Zeroes)
        }
        "echo" => match (rest.split_once(" > "), rest.strip_suffix(" >&2")) {
            (Some((text, path)), _) => Command::Write { path: absolute(path), text: line(text) },
            (None, Some(text)) => Command::Print(Channel::Stderr, line(text)),
            (None, None) => Command::Print(Channel::Stdout, line(rest)),
        },
        _ => Command::Unknown,
    }
}

/// The text with the values of its variables.
fn expanded(text: &str, spec: &ExecSpec<'_>) -> String {
    let value = |name: &str| spec.env.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value);
    let mut parts = text.split('$');
    let mut expanded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len());
        expanded.push_str(value(&part[..end]));
        expanded.push_str(&part[end..]);
    }
    expanded
}

/// The output of a command.
pub struct Stream {
    pub op: u64,
    destination: Destination,
    pub inner: Arc<Inner>,
    sent: [u64; 2],
}

/// The destination of the output.
enum Destination {
    Link(Out),
    /// Stored for the link that reads it. Keeps no link open.
    Detached(Arc<DetachedOp>),
}

impl Stream {
    pub fn new(op: u64, out: Out, inner: Arc<Inner>) -> Self {
        Self { op, destination: Destination::Link(out), inner, sent: [0; 2] }
    }

    /// The output of a detached command.
    pub fn detached(op: u64, inner: Arc<Inner>, detached: Arc<DetachedOp>) -> Self {
        Self { op, destination: Destination::Detached(detached), inner, sent: [0; 2] }
    }

    /// Reports the end. A link of a detached command reports it after all output.
    async fn end(&self, exit: Exit, duration_us: u64) -> io::Result<()> {
        match &self.destination {
            Destination::Detached(detached) => {
                detached.printed.send_modify(|printed| printed.exit = Some((exit, duration_us)));
                Ok(())
            }
            Destination::Link(out) => out.send(&ToHost::Exited { op: self.op, exit, duration_us }).await,
        }
    }

    pub async fn send(&self, frame: &ToHost<'_>) -> io::Result<()> {
        match &self.destination {
            Destination::Link(out) => out.send(frame).await,
            Destination::Detached(_) => Ok(()),
        }
    }

    /// Sends output within the credit of the host.
    pub async fn print(&mut self, inbox: &mut Inbox, channel: Channel, mut bytes: &[u8]) -> io::Result<()> {
        if let Destination::Detached(detached) = &self.destination {
            detached.printed.send_modify(|printed| printed.bytes[index(channel)].extend_from_slice(bytes));
            return Ok(());
        }
        while !bytes.is_empty() {
            let sent = self.sent[index(channel)];
            let granted = {
                let granted = inbox.credit.wait_for(|credit| credit[index(channel)] > sent).await;
                granted.map_err(io::Error::other)?[index(channel)]
            };
            let room = usize::try_from(granted - sent).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(bytes.len().min(room).min(PIECE));
            self.send(&ToHost::Data { op: self.op, channel, bytes: now }).await?;
            self.sent[index(channel)] += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }
}

/// Runs a command until it ends or is killed.
pub async fn run(mut stream: Stream, command: Command, mut inbox: Inbox) -> io::Result<()> {
    let begin = tokio::time::Instant::now();
    let mut killed = inbox.killed.clone();
    let exit = tokio::select! {
        // A dropped sender is a closed link, which does not kill the command.
        Ok(signal) = killed.wait_for(Option::is_some) => Exit::Signal(signal.unwrap_or(9)),
        exit = perform(&mut stream, command, &mut inbox) => exit?,
    };
    let duration_us = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
    stream.end(exit, duration_us).await
}

async fn perform(stream: &mut Stream, command: Command, inbox: &mut Inbox) -> io::Result<Exit> {
    match command {
        Command::Exit(code) => return Ok(Exit::Code(code)),
        Command::Die => return Ok(Exit::Signal(9)),
        Command::Print(channel, text) => stream.print(inbox, channel, text.as_bytes()).await?,
        Command::Write { path, text } => {
            let written = lock(&stream.inner.disk).write(&path, None, false, text.into_bytes());
            if let Err((_, message)) = written {
                stream.print(inbox, Channel::Stderr, format!("bash: {message}\n").as_bytes()).await?;
                return Ok(Exit::Code(1));
            }
        }
        Command::CopyInput => {
            while let Some(Some(bytes)) = inbox.stdin.recv().await {
                stream.print(inbox, Channel::Stdout, &bytes).await?;
            }
        }
        Command::Read { path, shown } => {
            let content = lock(&stream.inner.disk).read(&path).map(<[u8]>::to_vec);
            let Ok(content) = content else {
                let missing = format!("cat: {shown}: No such file or directory\n");
                stream.print(inbox, Channel::Stderr, missing.as_bytes()).await?;
                return Ok(Exit::Code(1));
            };
            stream.print(inbox, Channel::Stdout, &content).await?;
        }
        Command::Sleep(duration) => stream.inner.sleep(duration).await,
        Command::Background => drop(stream.inner.background.fetch_add(1, Ordering::Relaxed)),
        Command::CountBackground => {
            let count = stream.inner.background.load(Ordering::Relaxed);
            stream.print(inbox, Channel::Stdout, format!("{count}\n").as_bytes()).await?;
            return Ok(Exit::Code(i32::from(count == 0)));
        }
        Command::Zeroes(mut left) => {
            while left > 0 {
                let piece = left.min(PIECE);
                stream.print(inbox, Channel::Stdout, &vec![0; piece]).await?;
                left -= piece;
            }
        }
        Command::Sequence(steps) => {
            let mut exit = Exit::Code(0);
            for step in steps {
                let is_last = matches!(step, Command::Exit(_) | Command::Die);
                exit = Box::pin(perform(stream, step, inbox)).await?;
                if is_last {
                    break;
                }
            }
            return Ok(exit);
        }
        Command::Terminal => return terminal(stream, inbox).await,
        Command::Unknown => {
            stream.print(inbox, Channel::Stderr, b"bash: command not found\n").await?;
            return Ok(Exit::Code(127));
        }
    }
    Ok(Exit::Code(0))
}

async fn terminal(stream: &mut Stream, inbox: &mut Inbox) -> io::Result<Exit> {
    let mut typed = String::new();
    while let Some(Some(bytes)) = inbox.stdin.recv().await {
        stream.print(inbox, Channel::Stdout, &bytes).await?;
        typed.push_str(&String::from_utf8_lossy(&bytes));
        while let Some((line, rest)) = typed.split_once(['\r', '\n']) {
            if let Some(code) = line.strip_prefix("exit ").and_then(|code| code.trim().parse().ok()) {
                return Ok(Exit::Code(code));
            }
            typed = rest.to_owned();
        }
    }
    Ok(Exit::Code(0))
}
