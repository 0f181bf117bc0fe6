//! The event loop: waits, collects ended children, reads requests, transfers output, sends. `serve` handles the
//! requests.
//!
//! One turn never blocks and is bounded, so that no command, connection or request starves another:
//! ready sources are in a queue, and each gets one read per turn.
//!
//! Only a failing `epoll` ends it. Other failures end one operation or one link.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use guest_proto::{Channel, ToHost};

use crate::boot::Booted;
use crate::connector::Connector;
use crate::dial::Next;
use crate::error::{BootError, Never};
use crate::exec::Exec;
use crate::link::{Link, LinkPhase};
use crate::ops::Ops;
use crate::poll::{BATCH, Interest, Poll, PollToken, Ready, Role};
use crate::reaper;
use crate::spawn::Spawner;
use crate::stdio::Drains;
use crate::tree::{Proc, Round};

/// How long the agent is idle before it returns memory to the kernel.
const IDLE: Duration = Duration::from_millis(500);
/// The descriptor that reports ended children.
const SIGNALS: PollToken = PollToken { serial: 0, role: Role::Signals };
/// Most reads of the link in one turn.
const LINK_READS: usize = 4;

/// The state of the agent.
pub struct Agent {
    pub(crate) poll: Poll,
    pub(crate) connector: Connector,
    pub(crate) link: Link,
    pub(crate) ops: Ops,
    pub(crate) drains: Drains,
    pub(crate) spawner: Spawner,
    pub(crate) proc: Proc,
    signals: OwnedFd,
    /// Sources with something to read and credit to send it.
    queue: VecDeque<PollToken>,
    /// Reported ends in the send buffer: stream position, serial.
    reported_ends: VecDeque<(u64, u64)>,
    serials: u64,
    to_reap: bool,
    connector_ready: bool,
    busy_at: Instant,
}

impl Agent {
    pub fn new(booted: Booted) -> Result<Self, BootError> {
        let poll = Poll::new().map_err(BootError::step("open an epoll descriptor"))?;
        let Booted { connector, signals } = booted;
        poll.add(&signals, SIGNALS, Interest::LevelRead)
            .and_then(|()| connector.register(&poll))
            .map_err(BootError::step("watch a descriptor"))?;
        Ok(Self {
            poll,
            connector,
            link: Link::new(),
            ops: Ops::default(),
            drains: Drains::default(),
            spawner: Spawner::new()?,
            proc: Proc::new(),
            signals,
            queue: VecDeque::new(),
            reported_ends: VecDeque::new(),
            serials: 0,
            to_reap: true,
            connector_ready: false,
            busy_at: Instant::now(),
        })
    }

    /// Runs the loop until it fails.
    pub fn run(mut self) -> Result<Never, BootError> {
        let mut events = [Poll::no_event(); BATCH];
        loop {
            let timeout = self.timeout();
            let n = self.poll.wait(&mut events, timeout).map_err(BootError::step("wait for events"))?;
            for event in &events[..n] {
                self.on_event(*event);
            }
            if n > 0 {
                self.busy_at = Instant::now();
            }
            self.take_link();
            self.reap();
            self.continue_tree_kills();
            self.end_file_ops();
            self.read_link();
            self.move_output();
            self.drains.run();
            self.flush();
            self.shrink();
        }
    }

    /// A new serial.
    pub(crate) fn serial(&mut self) -> u64 {
        next_serial(&mut self.serials)
    }

    /// Puts a source in the queue, if it is not there yet.
    pub(crate) fn enqueue(&mut self, token: PollToken) {
        let source = match token.role {
            Role::Stdout => self.ops.exec(token.serial).and_then(|exec| exec.source(Channel::Stdout)),
            Role::Stderr => self.ops.exec(token.serial).and_then(|exec| exec.source(Channel::Stderr)),
            Role::Socket => self.ops.dial(token.serial).and_then(|dial| dial.streams()?.0),
            _ => None,
        };
        if let Some(source) = source.filter(|source| !source.queued && source.runnable()) {
            source.queued = true;
            self.queue.push_back(token);
        }
    }

    /// Handles the result of a step of a dialled connection.
    pub(crate) fn follow(&mut self, serial: u64, next: Next) {
        match next {
            Next::Wait => {}
            Next::Run => self.enqueue(PollToken { serial, role: Role::Socket }),
            Next::Remove => self.ops.remove(serial),
        }
    }

    /// Reports a command's end to the host if nothing is pending.
    pub(crate) fn settle(&mut self, serial: u64) {
        if self.link.phase != LinkPhase::Open {
            return;
        }
        let Some(exec) = self.ops.exec(serial) else { return };
        let reported = exec.report_end(&mut self.link.out);
        if let Some(at) = reported.filter(|_| !exec.is_detached()) {
            self.reported_ends.push_back((at, serial));
        }
    }

    /// Closes the stream. Drops the link and its buffers, unless it is suspended. Commands keep running.
    pub(crate) fn link_down(&mut self) {
        if self.link.is_detached() {
            return;
        }
        if self.link.is_suspended() {
            self.link.detach();
        } else {
            self.link.down();
            self.forget_link();
        }
        self.connector.lost(Instant::now());
    }

    /// Drops what belongs to a link that does not continue.
    pub(crate) fn forget_link(&mut self) {
        self.ops.remove_dials();
        self.ops.execs().for_each(Exec::link_lost);
        self.queue.clear();
        self.reported_ends.clear();
    }

    /// Collects ended children.
    pub(crate) fn reap(&mut self) {
        if !self.to_reap {
            return;
        }
        let now = Instant::now();
        let mut ended = Vec::new();
        self.to_reap = reaper::reap(|pid, exit| {
            if let Some(exec) = self.ops.exec_of_pid(pid) {
                exec.ended(exit, now);
                ended.push(exec.serial);
            }
        });
        for serial in ended {
            self.enqueue(PollToken { serial, role: Role::Stdout });
            self.enqueue(PollToken { serial, role: Role::Stderr });
            self.settle(serial);
        }
    }

    /// Watches for ended children again. gVisor forgets that it has to report signals when it continues a stored sandbox, which has
    /// a new link then.
    pub(crate) fn renew_signals(&mut self) {
        // If this fails, the next link tries again.
        let _ = self.poll.renew(&self.signals, SIGNALS, Interest::LevelRead);
        self.to_reap = true;
    }

    /// Collects ended children in the next turn, without waiting for the signal.
    pub(crate) fn schedule_reap(&mut self) {
        self.to_reap = true;
    }

    fn on_event(&mut self, event: Ready) {
        let token = event.token;
        match token.role {
            Role::Connector => self.connector_ready = true,
            Role::Link if token.serial == self.link.serial => self.link.on_event(event),
            Role::Link => {}
            Role::Signals => {
                reaper::drain_signals(&self.signals);
                self.to_reap = true;
            }
            Role::Stdin => {
                if let Some(exec) = self.ops.exec(token.serial) {
                    exec.on_stdin_event();
                    if self.link.phase == LinkPhase::Open {
                        exec.grant_stdin(&mut self.link.out);
                    }
                }
            }
            Role::Stdout | Role::Stderr => {
                let channel = channel(token.role);
                if let Some(source) = self.ops.exec(token.serial).and_then(|exec| exec.source(channel)) {
                    source.on_event(event);
                    self.enqueue(token);
                }
            }
            Role::Socket => {
                let Some(dial) = self.ops.dial(token.serial) else { return };
                let next = dial.on_event(event, &mut self.link.out, &self.poll);
                self.follow(token.serial, next);
            }
            Role::Drain => self.drains.on_event(token.serial),
        }
    }

    /// A newer connection replaces the former.
    fn take_link(&mut self) {
        if self.connector.establish_deadline().is_some_and(|at| at <= Instant::now()) {
            // It may be established, and only not be served yet.
            self.flush();
            if self.connector.establish_deadline().is_some() {
                self.link_down();
            }
        }
        if !self.connector_ready && (!self.link.is_detached() || self.connector.next().is_none()) {
            return;
        }
        self.connector_ready = false;
        while let Some((stream, first)) = self.connector.take(Instant::now()) {
            self.link_down();
            let serial = self.serial();
            if self.poll.add(&stream, PollToken { serial, role: Role::Link }, Interest::Both).is_ok() {
                self.link.up(stream, serial, first);
            } else {
                self.connector.lost(Instant::now());
            }
        }
    }

    fn continue_tree_kills(&mut self) {
        let now = Instant::now();
        let due: Vec<u64> = self
            .ops
            .execs()
            .filter(|exec| exec.tree_kill.as_ref().is_some_and(|tree_kill| tree_kill.next <= now))
            .map(|exec| exec.serial)
            .collect();
        if due.is_empty() {
            return;
        }
        let roots = self.ops.roots();
        for serial in due {
            let Some(exec) = self.ops.exec(serial) else { continue };
            let own = exec.pid.as_raw_nonzero().get();
            let others = |pid: i32| pid != own && roots.contains(&pid);
            if let Some(tree_kill) = &mut exec.tree_kill
                && tree_kill.round(&self.proc, others, Instant::now()) == Round::Done
            {
                exec.tree_kill = None;
                self.settle(serial);
            }
            // Collects the killed processes without waiting for the signal.
            self.to_reap = true;
            self.reap();
        }
    }

    fn read_link(&mut self) {
        for _ in 0..LINK_READS {
            if !self.serve_waiting() || !self.link.can_read() {
                return;
            }
            match self.link.read() {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => return self.link_down(),
            }
        }
        self.serve_waiting();
    }

    /// Handles the frames that have arrived. False if the link is lost, or its answers have to be sent first.
    fn serve_waiting(&mut self) -> bool {
        let mut input = std::mem::take(&mut self.link.input);
        let served = loop {
            if !self.link.out.takes_answers() {
                break Ok(false);
            }
            match input.next() {
                Ok(Some(body)) => {
                    if let Err(error) = self.frame(input.body(body)) {
                        break Err(error);
                    }
                }
                Ok(None) => break Ok(true),
                Err(error) => break Err(error),
            }
        };
        match served {
            Ok(more) => {
                self.link.input = input;
                more
            }
            Err(error) => {
                let reason: String = error.to_string().chars().take(1000).collect();
                // A suspended link ends, too.
                self.link.out.release();
                self.link.out.message(&ToHost::Bye { reason: &reason });
                // Best effort; the link ends in any case.
                let _ = self.link.flush();
                self.link_down();
                false
            }
        }
    }

    fn move_output(&mut self) {
        for _ in 0..self.queue.len() {
            if self.link.out.is_full() {
                return;
            }
            let Some(token) = self.queue.pop_front() else { return };
            let again = match token.role {
                Role::Socket => {
                    let Some(dial) = self.ops.dial(token.serial) else { continue };
                    if let Some((Some(source), _)) = dial.streams() {
                        source.queued = false;
                    }
                    let next = dial.step(&mut self.link.out);
                    self.follow(token.serial, next);
                    false
                }
                role => {
                    let Some(exec) = self.ops.exec(token.serial) else { continue };
                    let channel = channel(role);
                    if let Some(source) = exec.source(channel) {
                        source.queued = false;
                    }
                    let serials = &mut self.serials;
                    let serial = || next_serial(serials);
                    exec.step(channel, &mut self.link.out, &mut self.drains, &self.poll, serial)
                }
            };
            if again {
                self.enqueue(token);
            } else {
                self.settle(token.serial);
            }
        }
    }

    fn flush(&mut self) {
        if self.link.flush().is_err() {
            return self.link_down();
        }
        if self.link.is_preface_sent() {
            self.connector.established();
        }
        let sent = self.link.out.sent();
        while let Some((at, serial)) = self.reported_ends.front().copied()
            && at <= sent
        {
            self.reported_ends.pop_front();
            self.ops.remove(serial);
        }
    }

    /// The time until something is due; `None`: until an event.
    fn timeout(&mut self) -> Option<Duration> {
        let room = !self.link.out.is_full();
        let waiting = self.to_reap || self.drains.is_ready() || (room && !self.queue.is_empty());
        if waiting || self.link.can_read() || (self.link.out.takes_answers() && self.link.input.has_frame()) {
            return Some(Duration::ZERO);
        }
        let now = Instant::now();
        let ends = |exec: &mut Exec| [exec.tree_kill.as_ref().map(|tree_kill| tree_kill.next), exec.deadline];
        let tree_kills = self.ops.execs().flat_map(ends).flatten().min();
        let connector = if self.link.is_detached() { self.connector.next() } else { None };
        let idle = self.holds_memory().then(|| self.busy_at + IDLE);
        let next =
            [tree_kills, connector, self.connector.establish_deadline(), idle].into_iter().flatten().min()?;
        Some(next.saturating_duration_since(now))
    }

    fn holds_memory(&self) -> bool {
        self.link.out.is_empty() && (self.link.out.is_large() || self.link.input.is_large())
    }

    fn shrink(&mut self) {
        if self.holds_memory() && self.busy_at.elapsed() >= IDLE {
            self.link.out.shrink();
            self.link.input.shrink();
        }
    }
}

fn next_serial(serials: &mut u64) -> u64 {
    *serials += 1;
    *serials
}

fn channel(role: Role) -> Channel {
    if role == Role::Stderr { Channel::Stderr } else { Channel::Stdout }
}
