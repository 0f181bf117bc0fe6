//! What was refused, told once a burst.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::SandboxId;
use tokio::sync::mpsc;

/// The same refusal again within this is counted and not told.
const BURST: Duration = Duration::from_secs(10);
/// Different refusals of all sandboxes that are kept apart at a time; what is past it is told by number alone.
const KEPT: usize = 16_384;
/// Different ones of one sandbox: a scan must not push out what others did.
const KEPT_OF_ONE: usize = 64;
/// Waiting to be told.
const WAITING: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    Tcp,
    Udp,
    Icmp,
    /// Of another kind, by its number.
    Other(u8),
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp => f.write_str("tcp"),
            Self::Udp => f.write_str("udp"),
            Self::Icmp => f.write_str("icmp"),
            Self::Other(number) => write!(f, "protocol {number}"),
        }
    }
}

/// Why something was refused. [`Reason::code`] is for programs, its text for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The policy lists no such name.
    NotAllowed,
    /// The address is closed to every sandbox.
    ClosedAddress,
    /// The name points to a closed address.
    ClosedAnswer,
    /// The client named nobody: no SNI, no Host.
    NoName,
    /// The client named somebody whose address this is not.
    WrongAddress,
    /// A request on a connection named somebody else than the first.
    NameChanged,
    /// Neither TLS nor HTTP, and no allowed name is known to have this address.
    UnknownAddress,
    /// A port that would go around the sandbox's resolver or hide its names (DNS, DoT, QUIC).
    Port,
    /// What was sent is broken, or came too slowly.
    Malformed,
    /// What a server answered is no HTTP that can be led on.
    BadAnswer,
    /// The name could not be resolved.
    Unresolved,
    /// More at once than one sandbox may.
    TooMany,
}

impl Reason {
    pub fn code(self) -> &'static str {
        match self {
            Self::NotAllowed => "not-allowed",
            Self::ClosedAddress => "closed-address",
            Self::ClosedAnswer => "closed-answer",
            Self::NoName => "no-name",
            Self::WrongAddress => "wrong-address",
            Self::NameChanged => "name-changed",
            Self::UnknownAddress => "unknown-address",
            Self::Port => "port",
            Self::Malformed => "malformed",
            Self::BadAnswer => "bad-answer",
            Self::Unresolved => "unresolved",
            Self::TooMany => "too-many",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAllowed => "the policy does not list the name",
            Self::ClosedAddress => "the address is closed to every sandbox",
            Self::ClosedAnswer => "the name points to an address that is closed to every sandbox",
            Self::NoName => "the client named no host",
            Self::WrongAddress => "the address is not one of the host that the client named",
            Self::NameChanged => "a request named another host than the first on its connection",
            Self::UnknownAddress => "no allowed name is known to have this address",
            Self::Port => "the port is closed under this policy",
            Self::Malformed => "what was sent is not understood",
            Self::BadAnswer => "what the host answered is not understood",
            Self::Unresolved => "the name could not be resolved",
            Self::TooMany => "too many at once",
        })
    }
}

/// Where it was to go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    pub name: Option<String>,
    pub address: Option<Ipv4Addr>,
    /// 0 where there are no ports.
    pub port: u16,
    pub transport: Transport,
}

impl Target {
    /// Stands for any that were not kept apart.
    fn rest(transport: Transport) -> Self {
        Self { name: None, address: None, port: 0, transport }
    }
}

/// Something that was refused to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub sandbox: SandboxId,
    pub target: Target,
    pub reason: Reason,
    /// So often since it was last told, this time included.
    pub count: u64,
}

/// Tells each refusal once a burst, to whoever holds the receiver.
///
/// The first is told at once, as one. What follows within the burst is counted and told when it ends ([`Refusals::settle`]);
/// a burst in which nothing followed is told no more of.
pub struct Refusals {
    bursts: Mutex<Bursts>,
    out: mpsc::Sender<Refusal>,
}

#[derive(Default)]
struct Bursts {
    of: HashMap<SandboxId, HashMap<(Target, Reason), Burst>>,
    /// In all of them.
    kept: usize,
}

struct Burst {
    since: Instant,
    untold: u64,
}

impl Refusals {
    pub fn new() -> (Self, mpsc::Receiver<Refusal>) {
        let (out, told) = mpsc::channel(WAITING);
        (Self { bursts: Mutex::default(), out }, told)
    }

    #[expect(clippy::needless_pass_by_value, reason = "whoever tells has no more use for it")]
    pub fn tell(&self, sandbox: &SandboxId, target: Target, reason: Reason) {
        tracing::debug!(id = %sandbox, ?target, reason = reason.code(), "refused");
        self.tell_at(sandbox, &target, reason, Instant::now());
    }

    fn tell_at(&self, sandbox: &SandboxId, target: &Target, reason: Reason, now: Instant) {
        let mut bursts = self.lock();
        let Some((burst, is_first)) = bursts.find(sandbox, target, reason, now) else { return };
        burst.untold += 1;
        if is_first {
            self.send(sandbox, target, reason, burst, now);
        }
    }

    /// Tells what the bursts that have ended by now held back. To be called now and then.
    pub fn settle(&self, now: Instant) {
        let mut bursts = self.lock();
        let mut kept = 0;
        bursts.of.retain(|sandbox, of_one| {
            of_one.retain(|(target, reason), burst| {
                if now.duration_since(burst.since) < BURST {
                    return true;
                }
                let is_over = burst.untold == 0;
                if !is_over {
                    self.send(sandbox, target, *reason, burst, now);
                }
                !is_over
            });
            kept += of_one.len();
            !of_one.is_empty()
        });
        bursts.kept = kept;
    }

    /// Begins the burst anew. What cannot be told now, because too much waits to be told, stays counted.
    fn send(&self, sandbox: &SandboxId, target: &Target, reason: Reason, burst: &mut Burst, now: Instant) {
        burst.since = now;
        let refusal =
            Refusal { sandbox: sandbox.clone(), target: target.clone(), reason, count: burst.untold };
        if self.out.try_send(refusal).is_ok() {
            burst.untold = 0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Bursts> {
        self.bursts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bursts {
    /// The burst that a refusal belongs to, and whether it is to be told at once. One of a sandbox that has too many different ones already belongs to its rest, of
    /// which only the number and the reason are told.
    fn find(
        &mut self,
        sandbox: &SandboxId,
        target: &Target,
        reason: Reason,
        now: Instant,
    ) -> Option<(&mut Burst, bool)> {
        if !self.of.contains_key(sandbox) {
            self.of.insert(sandbox.clone(), HashMap::new());
        }
        let of_one = self.of.get_mut(sandbox)?;
        let own = (target.clone(), reason);
        let is_kept = of_one.contains_key(&own) || of_one.len() < KEPT_OF_ONE && self.kept < KEPT;
        let key = if is_kept { own } else { (Target::rest(target.transport), reason) };
        match of_one.entry(key) {
            Entry::Occupied(entry) => Some((entry.into_mut(), false)),
            Entry::Vacant(entry) => {
                self.kept += 1;
                // A rest is told when its burst is over: by then it is a number worth telling.
                Some((entry.insert(Burst { since: now, untold: 0 }), is_kept))
            }
        }
    }
}

#[cfg(test)]
mod tests;
