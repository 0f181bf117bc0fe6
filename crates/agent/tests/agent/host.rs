//! The host's side for tests: starts an agent and exchanges frames with it, with a timeout for each answer.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use guest_proto::{
    Channel, ExecSpec, Exit, PREFIX, RefusalKind, StdinMode, TOKEN_LEN, ToGuest, ToHost, encode_to_guest,
    split,
};
use tempfile::TempDir;

pub const AGENT: &str = env!("CARGO_BIN_EXE_sandbox-agent");
pub const TIMEOUT: Duration = Duration::from_secs(20);
pub const LARGE_WINDOW: u32 = 64 * 1024 * 1024;

/// A running agent. Dropping it ends it and, with its namespace, all its processes.
pub struct Agent {
    child: Child,
    dir: TempDir,
    listener: Option<UnixListener>,
    pub token: [u8; TOKEN_LEN],
}

impl Agent {
    /// Starts the agent as process 1 of a pid namespace, accepting connections.
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// Like [`Agent::start`], after a shell script that runs outside the namespace.
    pub fn start_with(prelude: &str) -> Self {
        let unshare = "exec unshare --pid --fork --kill-child --mount-proc";
        Self::listen(&format!("{prelude}{unshare} \"$0\" --listen-fd 3 3<&0 </dev/null"))
    }

    /// Starts the agent as an ordinary process.
    pub fn start_plain() -> Self {
        Self::listen("exec \"$0\" --listen-fd 3 3<&0 </dev/null")
    }

    fn listen(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("agent")).unwrap();
        // starts: sandbox-agent
        let child = Command::new("bash")
            .args(["-c", script, AGENT])
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .spawn()
            .unwrap();
        Self { child, dir, listener: None, token: [0; TOKEN_LEN] }
    }

    /// Starts an agent that connects to the host.
    pub fn start_connecting() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("host");
        let mut child = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", AGENT, "--connect"])
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let token: [u8; TOKEN_LEN] = std::array::from_fn(|n| n as u8 + 1);
        child.stdin.take().unwrap().write_all(&token).unwrap();
        // The host listens only now, so the agent usually has to retry.
        let listener = UnixListener::bind(&path).unwrap();
        Self { child, dir, listener: Some(listener), token }
    }

    /// A link before its handshake.
    pub fn connect(&self) -> Host {
        let stream = match &self.listener {
            None => UnixStream::connect(self.dir.path().join("agent")).unwrap(),
            Some(listener) => {
                let (mut stream, _) = listener.accept().unwrap();
                let mut token = [0; TOKEN_LEN];
                stream.read_exact(&mut token).unwrap();
                assert_eq!(token, self.token);
                stream
            }
        };
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Host { stream, buf: Vec::new(), next_op: 1, deferred: VecDeque::new() }
    }

    /// A link after its handshake, and the operations of the `Welcome`.
    pub fn link(&self) -> (Host, Vec<u64>) {
        let mut host = self.connect();
        host.send(&ToGuest::Hello { version: guest_proto::VERSION, min_version: guest_proto::MIN_VERSION });
        match host.receive() {
            HostMessage::Welcome { version, ops } => {
                assert_eq!(version, guest_proto::VERSION);
                (host, ops)
            }
            other => panic!("no welcome: {other:?}"),
        }
    }

    /// Continues the suspended link of a host on another stream.
    pub fn continue_link(&self, before: Host) -> Host {
        let Host { stream, buf, next_op, deferred } = before;
        assert_eq!((buf.len(), deferred.len()), (0, 0), "the link was not suspended");
        drop(stream);
        let mut host = Host { next_op, ..self.connect() };
        host.send(&ToGuest::Continue);
        host
    }

    /// A link of a fresh agent.
    pub fn host(&self) -> Host {
        let (host, ops) = self.link();
        assert_eq!(ops, []);
        host
    }

    /// The agent's pid on the host.
    pub fn pid(&self) -> u32 {
        let pid = self.child.id();
        let agent = Path::new(AGENT);
        until("the agent runs", || {
            [pid]
                .into_iter()
                .chain(children(pid))
                .find(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == agent))
        })
    }

    /// Resident memory in KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Whether the agent has no children, not even uncollected ones.
    pub fn is_childless(&self) -> bool {
        children(self.pid()).is_empty()
    }

    /// A path in the test's temporary directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Polls a condition, up to a time limit.
pub fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(answer) = condition() {
            return answer;
        }
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// An owned [`ToHost`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostMessage {
    Welcome { version: u16, ops: Vec<u64> },
    Started { op: u64, pid: u32, window: u32 },
    Data { op: u64, channel: Channel, bytes: Vec<u8> },
    Eof { op: u64, channel: Channel },
    Credit { op: u64, bytes: u32 },
    Exited { op: u64, exit: Exit, duration_us: u64 },
    Refused { op: u64, kind: RefusalKind, message: String },
    Opened { op: u64, window: u32 },
    Done { op: u64 },
    Pong { nonce: u64 },
    Bye { reason: String },
    Attached { op: u64, stdin: u64, window: u32 },
    Running { op: u64, pid: u32 },
    Suspended,
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit: Exit,
    pub duration_us: u64,
}

/// The host's end of a link.
pub struct Host {
    pub stream: UnixStream,
    buf: Vec<u8>,
    next_op: u64,
    /// Messages of other operations that arrived while one was waited for.
    pub deferred: VecDeque<HostMessage>,
}

impl Host {
    pub fn op(&mut self) -> u64 {
        self.next_op += 1;
        self.next_op
    }

    pub fn send(&mut self, message: &ToGuest<'_>) {
        let mut frame = Vec::new();
        encode_to_guest(message, &mut frame).unwrap();
        self.stream.write_all(&frame).unwrap();
    }

    /// The next frame. Panics if none arrives in time or the link ends.
    pub fn receive(&mut self) -> HostMessage {
        self.deferred.pop_front().unwrap_or_else(|| self.try_receive().expect("the link has ended"))
    }

    /// The next frame, or `None` at the end of the link.
    pub fn try_receive(&mut self) -> Option<HostMessage> {
        loop {
            if let Some(end) = split(&self.buf).unwrap() {
                let message = to_owned_message(guest_proto::decode_to_host(&self.buf[PREFIX..end]).unwrap());
                self.buf.drain(..end);
                return Some(message);
            }
            let mut piece = [0; 64 * 1024];
            match self.stream.read(&mut piece) {
                Ok(0) => return None,
                Ok(n) => self.buf.extend_from_slice(&piece[..n]),
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return None,
                // Timed reads end with this error after the machine was suspended.
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => panic!("no frame arrived in time: {e}"),
            }
        }
    }

    /// True if no frame arrives for this time.
    pub fn is_quiet(&mut self, time: Duration) -> bool {
        assert_eq!(split(&self.buf).unwrap(), None);
        self.stream.set_read_timeout(Some(time)).unwrap();
        let mut piece = [0; 1024];
        let read = self.stream.read(&mut piece);
        self.stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        match read {
            Ok(n) => {
                println!("heard {:?}", &piece[..n]);
                self.buf.extend_from_slice(&piece[..n]);
                false
            }
            // After the process or the machine was suspended, the timed read ends early: repeat it.
            Err(e) if e.kind() == ErrorKind::Interrupted => self.is_quiet(time),
            Err(e) => matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    /// Sends the request for a command without waiting for the answer.
    pub fn begin(&mut self, script: &str, stdin: StdinMode, window: u32) -> u64 {
        let env = [("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")];
        self.begin_as(&["bash", "-c", script], &env, "/", stdin, window)
    }

    pub fn begin_as(
        &mut self,
        argv: &[&str],
        env: &[(&str, &str)],
        cwd: &str,
        stdin: StdinMode,
        window: u32,
    ) -> u64 {
        let op = self.op();
        let spec = ExecSpec { argv: argv.to_vec(), env: env.to_vec(), cwd, stdin };
        self.send(&ToGuest::Exec { op, spec, window });
        op
    }

    /// Starts a command and waits until it runs.
    pub fn start(&mut self, script: &str, stdin: StdinMode, window: u32) -> u64 {
        let op = self.begin(script, stdin, window);
        match self.receive() {
            HostMessage::Started { op: started, .. } if started == op => op,
            other => panic!("not started: {other:?}"),
        }
    }

    /// Runs a command to its end.
    pub fn run(&mut self, script: &str) -> Outcome {
        let op = self.start(script, StdinMode::Null, LARGE_WINDOW);
        self.finish(op)
    }

    /// Collects a command's output to its end and returns its credit. Frames of other operations are an error.
    pub fn finish(&mut self, op: u64) -> Outcome {
        let mut outs = [Vec::new(), Vec::new()];
        loop {
            match self.receive() {
                HostMessage::Data { op: of, channel, bytes } if of == op => {
                    outs[channel as usize].extend_from_slice(&bytes);
                    self.send(&ToGuest::Credit { op, channel, bytes: bytes.len() as u32 });
                }
                HostMessage::Eof { op: of, .. } | HostMessage::Credit { op: of, .. } if of == op => {}
                HostMessage::Exited { op: of, exit, duration_us } if of == op => {
                    let [stdout, stderr] = outs;
                    return Outcome { stdout, stderr, exit, duration_us };
                }
                other => panic!("unexpected: {other:?}"),
            }
        }
    }

    /// Waits for output, which shows how far a command is.
    pub fn receive_output(&mut self, op: u64) -> Vec<u8> {
        match self.receive() {
            HostMessage::Data { op: of, bytes, .. } if of == op => bytes,
            other => panic!("unexpected: {other:?}"),
        }
    }

    pub fn ping(&mut self) {
        let nonce = self.op();
        self.send(&ToGuest::Ping { nonce });
        assert_eq!(self.receive(), HostMessage::Pong { nonce });
    }
}

fn to_owned_message(message: ToHost<'_>) -> HostMessage {
    match message {
        ToHost::Welcome { version, ops, .. } => HostMessage::Welcome { version, ops },
        ToHost::Started { op, pid, window } => HostMessage::Started { op, pid, window },
        ToHost::Data { op, channel, bytes } => HostMessage::Data { op, channel, bytes: bytes.to_vec() },
        ToHost::Eof { op, channel } => HostMessage::Eof { op, channel },
        ToHost::Credit { op, bytes } => HostMessage::Credit { op, bytes },
        ToHost::Exited { op, exit, duration_us } => HostMessage::Exited { op, exit, duration_us },
        ToHost::Refused { op, kind, message } => {
            HostMessage::Refused { op, kind, message: message.to_owned() }
        }
        ToHost::Opened { op, window } => HostMessage::Opened { op, window },
        ToHost::Done { op } => HostMessage::Done { op },
        ToHost::Pong { nonce } => HostMessage::Pong { nonce },
        ToHost::Bye { reason } => HostMessage::Bye { reason: reason.to_owned() },
        ToHost::Attached { op, stdin, window } => HostMessage::Attached { op, stdin, window },
        ToHost::Running { op, pid } => HostMessage::Running { op, pid },
        ToHost::Suspended => HostMessage::Suspended,
    }
}
