//! The latency from a key to its echo: on a sandbox's terminal over a websocket, compared with a local PTY.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use sandboxd_client::{Terminal, TerminalEvent};

use crate::report::{OURS, Row};
use crate::service::with_service;
use crate::subject::{Measured, Subject, interleave};

const BENCH: &str = "terminal-echo";
const ROUNDS: usize = 500;
const KEY: &[u8] = b"x";
/// Time for the terminal's initial output before the first key.
const STARTUP_DELAY: Duration = Duration::from_millis(500);

pub async fn run() -> Result<Vec<Row>> {
    with_service(async |service| {
        let mut connection = service.target().connect().await?;
        let id = service.create(&mut connection).await?;
        // The command does not read its input: the echo is that of the terminal.
        let terminal = service.client()?.sandbox(&id)?.terminal().command("sleep 3600").await?;
        tokio::time::sleep(STARTUP_DELAY).await;
        let mut subjects: Vec<Box<dyn Subject + '_>> =
            vec![Box::new(Sandbox { terminal }), Box::new(Local::open()?)];
        interleave(ROUNDS, &mut subjects).await
    })
    .await
}

struct Sandbox {
    terminal: Terminal,
}

#[async_trait]
impl Subject for Sandbox {
    fn name(&self) -> &'static str {
        OURS
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let begin = Instant::now();
        self.terminal.write(KEY).await?;
        loop {
            match self.terminal.next().await? {
                Some(TerminalEvent::Bytes(bytes)) if bytes.ends_with(KEY) => {
                    return Ok(vec![(BENCH, begin.elapsed())]);
                }
                Some(TerminalEvent::Bytes(_)) => {}
                other => bail!("expected an echo, received {other:?}"),
            }
        }
    }
}

struct Local {
    master: File,
    /// Keeps the PTY open.
    _slave: OwnedFd,
}

impl Local {
    fn open() -> Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).context("no PTY")?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let slave = rustix::fs::open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty())?;
        Ok(Self { master: File::from(master), _slave: slave })
    }
}

#[async_trait]
impl Subject for Local {
    fn name(&self) -> &'static str {
        "pty"
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let begin = Instant::now();
        self.master.write_all(KEY)?;
        let mut echo = [0];
        self.master.read_exact(&mut echo)?;
        Ok(vec![(BENCH, begin.elapsed())])
    }
}
