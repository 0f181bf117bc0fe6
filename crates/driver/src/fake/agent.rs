//! The agent of a fake sandbox. Speaks the protocol over an in-memory stream, correctly or not, depending on its mode.

mod detached;
mod detached_op;
mod file_op;
mod guest;
mod script;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use guest_proto::{
    Channel, ExecSpec, Exit, FileRequest, PREFIX, RefusalKind, StdinMode, ToGuest, ToHost, VERSION,
};
use tokio::io::{AsyncReadExt, DuplexStream, ReadHalf, duplex, split};
use tokio::sync::{OwnedMutexGuard, mpsc, watch};
use tokio::task::JoinSet;

use super::files::Disk;
use crate::ByteStream;
use detached_op::{DetachedOp, Printed};
pub use guest::AgentMode;
use guest::{GuestState, Inbox, Inner, Out, Output, index, lock};
use script::{Command, Stream};

const STREAM_BYTES: usize = 64 * 1024;
const SIGKILL: i32 = 9;
const FOREVER: Duration = Duration::from_secs(100_000_000);
/// The receive window of a command's stdin.
const STDIN_WINDOW: u32 = 64 * 1024;
const USERS: [&str; 2] = ["root", "user"];
/// The home of all users, which exists.
const HOME: &str = "/workspace";

/// A pid for each operation.
fn pid(op: u64) -> u32 {
    (op % 30_000) as u32 + 2
}

/// The processes of a sandbox. Dropping them kills them and ends all links.
pub struct Guest {
    inner: Arc<Inner>,
    suspended: Arc<Mutex<Option<SuspendedLink>>>,
    is_stored: bool,
}

/// What a copy of processes keeps: its commands have printed as much, and never end by themselves.
#[derive(Clone)]
pub struct GuestCopy {
    mode: AgentMode,
    background: usize,
    detached_ops: Vec<(u64, Printed)>,
}

impl GuestCopy {
    pub fn continued(&self, disk: Arc<Mutex<Disk>>) -> Guest {
        let guest = Guest::new(self.mode, disk);
        guest.inner.background.store(self.background, Ordering::Relaxed);
        for (op, printed) in &self.detached_ops {
            detached::start(*op, Command::Sleep(FOREVER), &guest.inner).printed.send_replace(printed.clone());
        }
        guest
    }
}

/// A link that waits for another stream. Its output waits for the lock.
struct SuspendedLink {
    link: Link,
    output: OwnedMutexGuard<Output>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        if !self.is_stored {
            self.inner.life.send_replace(GuestState::Dead);
        }
    }
}

impl Guest {
    pub fn new(mode: AgentMode, disk: Arc<Mutex<Disk>>) -> Self {
        Self {
            is_stored: false,
            suspended: Arc::default(),
            inner: Arc::new(Inner {
                life: watch::Sender::new(GuestState::Runs),
                newest: watch::Sender::new(0),
                mode: Mutex::new(mode),
                leftover: Mutex::default(),
                detached_ops: Mutex::default(),
                background: AtomicUsize::new(0),
                disk,
            }),
        }
    }

    /// Ends all links and keeps the processes as they are.
    pub fn store(mut self) -> Self {
        self.freeze();
        self.hang_up();
        self.is_stored = true;
        self
    }

    /// Continues stored processes.
    pub fn continued(&self) -> Self {
        self.thaw();
        Self { inner: Arc::clone(&self.inner), suspended: Arc::default(), is_stored: false }
    }

    pub fn copy(&self) -> GuestCopy {
        let ops = lock(&self.inner.detached_ops);
        let detached_ops =
            ops.iter().map(|(op, detached)| (*op, detached.printed.borrow().clone())).collect();
        let background = self.inner.background.load(Ordering::Relaxed);
        GuestCopy { mode: *lock(&self.inner.mode), background, detached_ops }
    }

    pub fn is_frozen(&self) -> bool {
        *self.inner.life.borrow() == GuestState::Frozen
    }

    pub fn freeze(&self) {
        self.inner.life.send_replace(GuestState::Frozen);
    }

    pub fn thaw(&self) {
        self.inner.life.send_replace(GuestState::Runs);
    }

    /// Whether its processes use this disk.
    pub fn is_on(&self, disk: &Arc<Mutex<Disk>>) -> bool {
        Arc::ptr_eq(&self.inner.disk, disk)
    }

    pub fn set_agent_mode(&self, mode: AgentMode) {
        *lock(&self.inner.mode) = mode;
    }

    pub fn hang_up(&self) {
        self.inner.newest.send_modify(|newest| *newest += 1);
    }

    /// Opens a link. Its task ends with the link or with the processes.
    pub fn connect(&self) -> Box<dyn ByteStream> {
        let (ours, theirs) = duplex(STREAM_BYTES);
        let mut number = 0;
        self.inner.newest.send_modify(|newest| {
            *newest += 1;
            number = *newest;
        });
        let (inner, suspended) = (Arc::clone(&self.inner), Arc::clone(&self.suspended));
        tokio::spawn(async move {
            let (mut life, mut newest) = (inner.life.subscribe(), inner.newest.subscribe());
            let mut link = Link::new(&inner, theirs);
            let mut before = lock(&suspended).take();
            let output = tokio::select! {
                // An error means that the sender was dropped with the processes.
                _ = life.wait_for(|life| *life == GuestState::Dead) => None,
                _ = newest.wait_for(|newest| *newest != number) => None,
                served = link.serve(&mut before) => served.unwrap_or_default(),
            };
            match output {
                Some(output) => *lock(&suspended) = Some(SuspendedLink { link, output }),
                None => {
                    [Some(link), before.map(|before| before.link)].into_iter().flatten().for_each(Link::lose);
                }
            }
        });
        Box::new(ours)
    }
}

struct Op {
    stdin: mpsc::UnboundedSender<Option<Vec<u8>>>,
    /// The total of granted bytes.
    credit: watch::Sender<[u64; 2]>,
    killed: watch::Sender<Option<i32>>,
}

struct Link {
    inner: Arc<Inner>,
    mode: AgentMode,
    reader: ReadHalf<DuplexStream>,
    out: Out,
    ops: HashMap<u64, Op>,
    commands: JoinSet<u64>,
}

impl Link {
    fn new(inner: &Arc<Inner>, stream: DuplexStream) -> Self {
        let mode = *lock(&inner.mode);
        let (reader, writer) = split(stream);
        let stream = Arc::new(tokio::sync::Mutex::new((writer, 0)));
        let out = Out { inner: Arc::clone(inner), mode, stream };
        Self { inner: Arc::clone(inner), mode, reader, out, ops: HashMap::new(), commands: JoinSet::new() }
    }

    /// Serves requests until the link ends, or is suspended: then it returns its output. `before` is a suspended link, which this one
    /// may continue.
    async fn serve(
        &mut self,
        before: &mut Option<SuspendedLink>,
    ) -> io::Result<Option<OwnedMutexGuard<Output>>> {
        let mut buffer = Vec::new();
        loop {
            while let Some(end) = guest_proto::split(&buffer).map_err(io::Error::other)? {
                let _ = self.inner.life.subscribe().wait_for(|life| *life != GuestState::Frozen).await;
                match guest_proto::decode_to_guest(&buffer[PREFIX..end]).map_err(io::Error::other)? {
                    ToGuest::Suspend => {
                        self.out.send(&ToHost::Suspended).await?;
                        return Ok(Some(Arc::clone(&self.out.stream).lock_owned().await));
                    }
                    ToGuest::Continue => self.take_over(before.take()).await?,
                    frame => self.handle(frame).await?,
                }
                buffer.drain(..end);
            }
            tokio::select! {
                read = self.reader.read_buf(&mut buffer) => if read? == 0 { return Ok(None) },
                Some(ended) = self.commands.join_next() => if let Ok(op) = ended { self.ops.remove(&op); },
            }
        }
    }

    /// Continues a suspended link on the stream of this one.
    async fn take_over(&mut self, before: Option<SuspendedLink>) -> io::Result<()> {
        let Some(SuspendedLink { link, mut output }) = before else {
            return Err(io::Error::other("no link is suspended"));
        };
        let own = Arc::clone(&self.out.stream);
        std::mem::swap(&mut *own.lock().await, &mut *output);
        (self.out, self.ops, self.commands) = (link.out, link.ops, link.commands);
        Ok(())
    }

    fn lose(self) {
        let detached: Vec<u64> = lock(&self.inner.detached_ops).keys().copied().collect();
        lock(&self.inner.leftover).extend(self.ops.keys().filter(|op| !detached.contains(op)));
    }

    async fn handle(&mut self, frame: ToGuest<'_>) -> io::Result<()> {
        match (self.mode, &frame) {
            (AgentMode::Silent, _) => return Ok(()),
            (AgentMode::Deaf, frame) if !matches!(frame, ToGuest::Hello { .. }) => return Ok(()),
            (
                AgentMode::Stranger,
                ToGuest::Exec { op, .. }
                | ToGuest::Setup { op, .. }
                | ToGuest::Dial { op, .. }
                | ToGuest::File { op, .. }
                | ToGuest::ExecAs { op, .. }
                | ToGuest::FileAs { op, .. },
            ) => {
                let stranger = op + 1_000_000;
                self.out.send(&ToHost::Started { op: stranger, pid: 1, window: 0 }).await?;
                self.out.send(&ToHost::Exited { op: stranger, exit: Exit::Code(0), duration_us: 1 }).await?;
            }
            (
                AgentMode::Wrong,
                ToGuest::Exec { op, .. } | ToGuest::File { op, .. } | ToGuest::FileAs { op, .. },
            ) => {
                return self.out.send(&ToHost::Opened { op: *op, window: 9 }).await;
            }
            (AgentMode::Wrong, ToGuest::Setup { op, .. }) => {
                return self.out.send(&ToHost::Started { op: *op, pid: 1, window: 0 }).await;
            }
            (AgentMode::Wrong, ToGuest::Dial { op, .. }) => {
                return self.out.send(&ToHost::Done { op: *op }).await;
            }
            _ => {}
        }
        self.handle_correctly(frame).await
    }

    async fn handle_correctly(&mut self, frame: ToGuest<'_>) -> io::Result<()> {
        match frame {
            ToGuest::Hello { .. } => {
                let mut ops: Vec<u64> = lock(&self.inner.leftover).iter().copied().collect();
                ops.extend(lock(&self.inner.detached_ops).keys());
                let version = if self.mode == AgentMode::BadVersion { 999 } else { VERSION };
                self.out.send(&ToHost::Welcome { version, agent_version: "fake", ops }).await
            }
            ToGuest::Setup { op, dirs } => {
                dirs.iter().for_each(|dir| lock(&self.inner.disk).make_all(dir));
                self.out.send(&ToHost::Done { op }).await
            }
            ToGuest::Exec { op, spec, window } => self.exec(op, spec, window).await,
            ToGuest::ExecAs { op, spec, run_as, window } => match self.has_user(op, run_as.user).await? {
                true => self.exec(op, at_home(spec), window).await,
                false => Ok(()),
            },
            ToGuest::FileAs { op, user, request, window } => match self.has_user(op, user).await? {
                true => self.file_op(op, &request, window).await,
                false => Ok(()),
            },
            ToGuest::StartDetachedAs { op, spec, run_as, terminal } => {
                match self.has_user(op, run_as.user).await? {
                    true => self.start_detached(op, &at_home(spec), terminal.is_some()).await,
                    false => Ok(()),
                }
            }
            ToGuest::File { op, request, window } => self.file_op(op, &request, window).await,
            ToGuest::Dial { op, port, .. } => {
                let message = format!("nothing listens on port {port}");
                self.out.send(&ToHost::Refused { op, kind: RefusalKind::Connect, message: &message }).await
            }
            ToGuest::Data { op, bytes } => self.on_data(op, bytes).await,
            ToGuest::Eof { op } => {
                self.on_eof(op);
                Ok(())
            }
            ToGuest::Credit { op, channel, bytes } => {
                if let Some(running) = self.ops.get(&op) {
                    running.credit.send_modify(|credit| credit[index(channel)] += u64::from(bytes));
                }
                Ok(())
            }
            ToGuest::Kill { op } => self.kill(op).await,
            ToGuest::Close { op } => {
                // The host discards further output, so it needs no credit.
                if let Some(running) = self.ops.get(&op) {
                    running.credit.send_replace([u64::MAX / 2; 2]);
                }
                Ok(())
            }
            ToGuest::Adopt { op, .. } => self.out.send(&ToHost::Done { op }).await,
            // Handled by `serve`.
            ToGuest::Suspend | ToGuest::Continue => Ok(()),
            ToGuest::Ping { nonce } => self.out.send(&ToHost::Pong { nonce }).await,
            ToGuest::StartDetached { op, spec, terminal } => {
                self.start_detached(op, &spec, terminal.is_some()).await
            }
            ToGuest::Attach { op, stdout, stderr } => self.attach(op, [stdout, stderr]).await,
            ToGuest::Release { op } => {
                lock(&self.inner.detached_ops).remove(&op);
                Ok(())
            }
            ToGuest::Signal { op, signal } => {
                self.signal(op, signal);
                Ok(())
            }
            ToGuest::Resize { .. } => Ok(()),
        }
    }

    async fn exec(&mut self, op: u64, spec: ExecSpec<'_>, window: u32) -> io::Result<()> {
        if !self.has_dir(op, spec.cwd).await? {
            return Ok(());
        }
        let stdin = if spec.stdin == StdinMode::Pipe { STDIN_WINDOW } else { 0 };
        let command = script::parse(&spec);
        self.out.send(&ToHost::Started { op, pid: pid(op), window: stdin }).await?;
        if self.mode == AgentMode::OverCredit {
            return self.flood(op, window).await;
        }
        self.run(op, command, window);
        Ok(())
    }

    /// Whether there is such a user. If not, the operation is refused.
    async fn has_user(&self, op: u64, user: &str) -> io::Result<bool> {
        let is_there = USERS.contains(&user);
        if !is_there {
            let message = "the sandbox has no such user";
            self.out.send(&ToHost::Refused { op, kind: RefusalKind::UserMissing, message }).await?;
        }
        Ok(is_there)
    }

    async fn on_data(&self, op: u64, bytes: &[u8]) -> io::Result<()> {
        let detached_op = lock(&self.inner.detached_ops).get(&op).cloned();
        match (detached_op, self.ops.get(&op)) {
            (Some(detached_op), _) => detached_op.write_stdin(Some(bytes)),
            (None, Some(running)) => drop(running.stdin.send(Some(bytes.to_vec()))),
            (None, None) => return Ok(()),
        }
        let bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.out.send(&ToHost::Credit { op, bytes }).await
    }

    fn on_eof(&self, op: u64) {
        if let Some(detached_op) = lock(&self.inner.detached_ops).get(&op) {
            detached_op.write_stdin(None);
        }
        // Fails if the command has ended.
        let _ = self.ops.get(&op).map(|running| running.stdin.send(None));
    }

    /// Whether the directory exists. If not, the command is refused.
    async fn has_dir(&self, op: u64, cwd: &str) -> io::Result<bool> {
        let is_there = lock(&self.inner.disk).is_directory(cwd);
        if !is_there {
            let message = "the working directory does not exist";
            self.out.send(&ToHost::Refused { op, kind: RefusalKind::CwdMissing, message }).await?;
        }
        Ok(is_there)
    }

    async fn start_detached(&mut self, op: u64, spec: &ExecSpec<'_>, is_terminal: bool) -> io::Result<()> {
        if self.has_dir(op, spec.cwd).await? {
            self.out.send(&ToHost::Started { op, pid: pid(op), window: STDIN_WINDOW }).await?;
            let command = if is_terminal { Command::Terminal } else { script::parse(spec) };
            let detached_op = detached::start(op, command, &self.inner);
            self.forward_output(op, detached_op, [0; 2]);
        }
        Ok(())
    }

    async fn attach(&mut self, op: u64, positions: [u64; 2]) -> io::Result<()> {
        let detached_op = lock(&self.inner.detached_ops).get(&op).cloned();
        let Some(detached_op) = detached_op else {
            let message = "there is no such command";
            return self.out.send(&ToHost::Refused { op, kind: RefusalKind::UnknownOp, message }).await;
        };
        if !detached_op.has(positions) {
            let message = "the position is beyond the output";
            return self.out.send(&ToHost::Refused { op, kind: RefusalKind::Failed, message }).await;
        }
        self.out.send(&ToHost::Running { op, pid: pid(op) }).await?;
        self.out.send(&ToHost::Attached { op, stdin: detached_op.received(), window: STDIN_WINDOW }).await?;
        self.forward_output(op, detached_op, positions);
        Ok(())
    }

    fn forward_output(&mut self, op: u64, detached_op: Arc<DetachedOp>, positions: [u64; 2]) {
        let (stdin, _) = mpsc::unbounded_channel();
        let (credit, granted) = watch::channel(detached::first_grant(positions));
        self.ops.insert(op, Op { stdin, credit, killed: watch::Sender::new(None) });
        let out = self.out.clone();
        self.commands.spawn(async move {
            // If the link broke, the next link continues.
            let _ = detached::forward_output(op, detached_op, out, positions, granted).await;
            op
        });
    }

    async fn kill(&mut self, op: u64) -> io::Result<()> {
        if let Some(detached_op) = lock(&self.inner.detached_ops).get(&op) {
            detached_op.kill(SIGKILL);
            return Ok(());
        }
        if let Some(running) = self.ops.get(&op) {
            running.killed.send_replace(Some(SIGKILL));
            return Ok(());
        }
        if lock(&self.inner.leftover).remove(&op) {
            return self.out.send(&ToHost::Exited { op, exit: Exit::Signal(9), duration_us: 1 }).await;
        }
        let message = "there is no such operation";
        self.out.send(&ToHost::Refused { op, kind: RefusalKind::UnknownOp, message }).await
    }

    /// A signal that programs survive, such as SIGWINCH, has no effect.
    fn signal(&self, op: u64, signal: i32) {
        const DEADLY: [i32; 8] = [1, 2, 3, 6, SIGKILL, 13, 14, 15];
        if !DEADLY.contains(&signal) {
            return;
        }
        if let Some(detached_op) = lock(&self.inner.detached_ops).get(&op) {
            detached_op.kill(signal);
        } else if let Some(running) = self.ops.get(&op) {
            running.killed.send_replace(Some(signal));
        }
    }

    fn run(&mut self, op: u64, command: Command, window: u32) {
        let (stream, inbox) = self.begin(op, window);
        self.commands.spawn(async move {
            // If the link broke, nothing can be reported.
            let _ = script::run(stream, command, inbox).await;
            op
        });
    }

    async fn file_op(&mut self, op: u64, request: &FileRequest<'_>, window: u32) -> io::Result<()> {
        let file_op = file_op::parse(request);
        self.out.send(&ToHost::Started { op, pid: 2, window: STDIN_WINDOW }).await?;
        if self.mode == AgentMode::OverCredit {
            return self.flood(op, window).await;
        }
        let (stream, inbox) = self.begin(op, window);
        self.commands.spawn(async move {
            // If the link broke, nothing can be reported.
            let _ = file_op::run(stream, file_op, inbox).await;
            op
        });
        Ok(())
    }

    fn begin(&mut self, op: u64, window: u32) -> (Stream, Inbox) {
        let (stdin, from_host) = mpsc::unbounded_channel();
        let (credit, granted) = watch::channel([u64::from(window); 2]);
        let (kill, killed) = watch::channel(None);
        self.ops.insert(op, Op { stdin, credit, killed: kill });
        let inbox = Inbox { stdin: from_host, credit: granted, killed };
        (Stream::new(op, self.out.clone(), Arc::clone(&self.inner)), inbox)
    }

    async fn flood(&mut self, op: u64, window: u32) -> io::Result<()> {
        let bytes = vec![b'x'; 16 * 1024];
        for _ in 0..=window as usize / bytes.len() {
            self.out.send(&ToHost::Data { op, channel: Channel::Stdout, bytes: &bytes }).await?;
        }
        Ok(())
    }
}

/// The command of a user: in [`HOME`] unless it names a directory.
fn at_home(spec: ExecSpec<'_>) -> ExecSpec<'_> {
    let cwd = if matches!(spec.cwd, "" | "~") { HOME } else { spec.cwd };
    ExecSpec { cwd, ..spec }
}
