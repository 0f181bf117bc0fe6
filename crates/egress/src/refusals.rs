//! Reports refusals, each once per burst.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use api::SandboxId;
use base::IgnorePoison;
use tokio::sync::mpsc;

use crate::transport::Transport;

/// Repetitions of a refusal within this time are counted, not reported.
const BURST: Duration = Duration::from_secs(10);
/// Different refusals of all sandboxes that are counted separately; further ones are counted together.
const MAX_BURSTS: usize = 16_384;
/// The same for one sandbox, so that a port scan does not displace refusals of others.
const MAX_BURSTS_OF_ONE: usize = 64;
/// Reports that wait for the receiver.
const QUEUE: usize = 1024;

/// Declares [`Reason`]: each with its name in events and its text for users.
macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident = $code:literal, $text:literal;)*) => {
        /// Why a flow was refused. [`Reason::code`] is for programs, the text for users.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[$doc])* $reason,)*
        }

        impl Reason {
            /// The name of the reason in events.
            pub fn code(self) -> &'static str {
                match self {
                    $(Self::$reason => $code,)*
                }
            }
        }

        impl fmt::Display for Reason {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$reason => $text,)*
                })
            }
        }
    };
}

reasons! {
    /// The policy does not list the name.
    NotAllowed = "not-allowed", "the policy does not list the name";
    /// The address is closed to every sandbox.
    ClosedAddress = "closed-address", "the address is closed to every sandbox";
    /// The policy denies the address.
    DeniedAddress = "denied-address", "the policy denies the address";
    /// The name points to a closed address.
    ClosedAnswer = "closed-answer", "the name points to an address that is closed to every sandbox";
    /// The client named no host: no SNI, no `Host`.
    NoName = "no-name", "the client named no host";
    /// The address does not belong to the host that the client named.
    WrongAddress = "wrong-address", "the address does not belong to the host that the client named";
    /// A later request or ClientHello on the connection named another host.
    NameChanged = "name-changed", "a request named another host than the first on its connection";
    /// The address was not learnt for an allowed name, and no name that the client sends decides.
    UnknownAddress = "unknown-address", "the address is not in a DNS answer for a listed name";
    /// A port that would go around the sandbox's resolver or hide its names (DNS, DoT, QUIC).
    Port = "port", "the port is closed under this policy";
    /// The data is invalid, or arrived too slowly.
    Malformed = "malformed", "the data is invalid or arrived too slowly";
    /// The server's answer cannot be parsed as HTTP.
    BadAnswer = "bad-answer", "the server's response could not be parsed";
    /// The name could not be resolved.
    Unresolved = "unresolved", "the name could not be resolved";
    /// The sandbox exceeded a limit.
    TooMany = "too-many", "the sandbox exceeded a limit";
    /// An IP fragment.
    Fragment = "fragment", "IP fragments are dropped: send datagrams that fit the MTU of eth0";
}

/// The destination.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RefusedTarget {
    pub name: Option<String>,
    pub address: Option<Ipv4Addr>,
    /// 0 for a protocol without ports.
    pub port: u16,
    pub transport: Transport,
}

impl RefusedTarget {
    /// Stands for refusals that are counted together.
    fn rest(transport: Transport) -> Self {
        Self { name: None, address: None, port: 0, transport }
    }
}

/// One report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub sandbox: SandboxId,
    pub target: RefusedTarget,
    pub reason: Reason,
    /// Number of occurrences since the last report, including this one.
    pub count: u64,
}

/// Sends each refusal to the receiver once per burst.
///
/// The first one is sent at once. Repetitions within the burst are counted and sent when it ends ([`Refusals::settle`]);
/// without repetitions nothing more is sent.
pub struct Refusals {
    bursts: Mutex<Bursts>,
    out: mpsc::Sender<Refusal>,
}

#[derive(Default)]
struct Bursts {
    of: HashMap<SandboxId, HashMap<(RefusedTarget, Reason), Burst>>,
    /// The number of bursts of all sandboxes.
    count_of_bursts: usize,
}

struct Burst {
    since: Instant,
    untold: u64,
}

impl Refusals {
    pub fn new() -> (Self, mpsc::Receiver<Refusal>) {
        let (out, receiver) = mpsc::channel(QUEUE);
        (Self { bursts: Mutex::default(), out }, receiver)
    }

    /// Counts a refusal. The first of a kind is sent at once, repetitions together.
    #[expect(clippy::needless_pass_by_value, reason = "callers do not use it afterwards")]
    pub fn report(&self, sandbox: &SandboxId, target: RefusedTarget, reason: Reason) {
        tracing::debug!(id = %sandbox, ?target, reason = reason.code(), "refused");
        self.report_at(sandbox, &target, reason, Instant::now());
    }

    fn report_at(&self, sandbox: &SandboxId, target: &RefusedTarget, reason: Reason, now: Instant) {
        let mut bursts = self.lock();
        let Some((burst, is_first)) = bursts.find(sandbox, target, reason, now) else { return };
        burst.untold += 1;
        if is_first {
            self.send(sandbox, target, reason, burst, now);
        }
    }

    /// Sends the counts of bursts that have ended. Called periodically.
    pub fn settle(&self, now: Instant) {
        let mut bursts = self.lock();
        let mut count_of_bursts = 0;
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
            count_of_bursts += of_one.len();
            !of_one.is_empty()
        });
        bursts.count_of_bursts = count_of_bursts;
    }

    /// Restarts the burst. If the channel is full, the count is sent later.
    fn send(
        &self,
        sandbox: &SandboxId,
        target: &RefusedTarget,
        reason: Reason,
        burst: &mut Burst,
        now: Instant,
    ) {
        burst.since = now;
        let refusal =
            Refusal { sandbox: sandbox.clone(), target: target.clone(), reason, count: burst.untold };
        if self.out.try_send(refusal).is_ok() {
            burst.untold = 0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Bursts> {
        self.bursts.lock().ignore_poison()
    }
}

impl Bursts {
    /// Returns the burst of a refusal and whether to send it at once. A sandbox with too many different refusals has one
    /// burst for each further reason.
    fn find(
        &mut self,
        sandbox: &SandboxId,
        target: &RefusedTarget,
        reason: Reason,
        now: Instant,
    ) -> Option<(&mut Burst, bool)> {
        if !self.of.contains_key(sandbox) {
            self.of.insert(sandbox.clone(), HashMap::new());
        }
        let of_one = self.of.get_mut(sandbox)?;
        let own = (target.clone(), reason);
        let is_kept = of_one.contains_key(&own)
            || of_one.len() < MAX_BURSTS_OF_ONE && self.count_of_bursts < MAX_BURSTS;
        let key = if is_kept { own } else { (RefusedTarget::rest(target.transport), reason) };
        match of_one.entry(key) {
            Entry::Occupied(entry) => Some((entry.into_mut(), false)),
            Entry::Vacant(entry) => {
                self.count_of_bursts += 1;
                // Refusals that are counted together are sent when the burst ends.
                Some((entry.insert(Burst { since: now, untold: 0 }), is_kept))
            }
        }
    }
}

#[cfg(test)]
mod tests;
