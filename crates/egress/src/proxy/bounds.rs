//! Limits of connections: undecided ones of a sandbox, open ones of a sandbox, and all together, so that the API always has
//! file descriptors left. HTTP connections are also limited by the memory that they can hold, per sandbox and in total.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};

use base::IgnorePoison;

/// Undecided connections of one sandbox.
const UNDECIDED_MAX: usize = 512;
/// Open connections of one sandbox.
const OPEN_MAX: usize = 8192;
/// HTTP/1 connections of one sandbox with a request in progress: these hold memory.
const HTTP_MAX: usize = 1024;
/// HTTP/2 connections without TLS of one sandbox: each holds as much as many of HTTP/1.
const HTTP2_MAX: usize = 32;
/// Maximum memory of an HTTP/1 connection, with peers that send up to the limits and do not read.
const HTTP_BYTES: u64 = 320 << 10;
/// The same for HTTP/2: buffers of its streams in both directions, heads, and receive windows.
const HTTP2_BYTES: u64 = 8 << 20;
/// The connections of each version together may hold this fraction of the host's memory.
const OF_MEMORY: u64 = 16;
/// Size of the request line and headers of a request; of an answer, in HTTP/2.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Number of headers of a request or an answer.
pub const HEADERS_MAX: usize = 256;
/// Send buffer of one stream for a peer that does not read, besides the chunk that crossed the limit. The connection window
/// does not bound it, because hyper releases window as soon as a chunk is passed on. This and the number of streams give
/// [`HTTP2_BYTES`].
pub const SEND_BYTES: usize = 8 * 1024;
/// One sandbox may hold this many times the remaining permits, so that a sandbox with many does not get the last
/// ones.
const SHARE: usize = 4;
/// One to the client and one to the server.
const DESCRIPTORS_EACH: u64 = 2;

/// The permits of the connections of all sandboxes.
pub struct Bounds {
    all_max: usize,
    http_bytes_max: u64,
    held: Mutex<Usage>,
}

#[derive(Default)]
struct Usage {
    all: usize,
    http_bytes: u64,
    http2_bytes: u64,
    by_guest: HashMap<Ipv4Addr, Count>,
}

#[derive(Default, Clone, Copy)]
struct Count {
    open: usize,
    undecided: usize,
    http: usize,
    http2: usize,
}

impl Usage {
    /// Counted separately, so that idle HTTP/2 connections take nothing from HTTP/1.
    fn bytes(&mut self, kind: Http) -> &mut u64 {
        match kind {
            Http::One => &mut self.http_bytes,
            Http::Two => &mut self.http2_bytes,
        }
    }
}

/// Version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Http {
    One,
    Two,
}

impl Http {
    fn bytes(self) -> u64 {
        match self {
            Self::One => HTTP_BYTES,
            Self::Two => HTTP2_BYTES,
        }
    }

    fn max_connections(self) -> usize {
        match self {
            Self::One => HTTP_MAX,
            Self::Two => HTTP2_MAX,
        }
    }

    fn of(self, count: &mut Count) -> &mut usize {
        match self {
            Self::One => &mut count.http,
            Self::Two => &mut count.http2,
        }
    }
}

/// The permit of a connection, until it is dropped.
pub struct ConnectionPermit {
    bounds: Arc<Bounds>,
    guest: Ipv4Addr,
    undecided: bool,
    http: Option<Http>,
}

impl Bounds {
    /// Three quarters of the process's file descriptors, and a fraction of the host's memory.
    pub fn of_process() -> Arc<Self> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let connections = limit.unwrap_or(1 << 20) / 4 * 3 / DESCRIPTORS_EACH;
        let host = rustix::system::sysinfo();
        let memory = (host.totalram as u64).saturating_mul(host.mem_unit.into());
        Self::new(usize::try_from(connections).unwrap_or(usize::MAX), memory / OF_MEMORY)
    }

    pub fn new(all_max: usize, http_bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { all_max, http_bytes_max, held: Mutex::default() })
    }

    /// A permit for one more connection of a sandbox, if there is one.
    pub fn take(self: &Arc<Self>, guest: Ipv4Addr) -> Option<ConnectionPermit> {
        let mut held = self.lock();
        let count = held.by_guest.get(&guest).copied().unwrap_or_default();
        let share = (self.all_max - held.all).saturating_mul(SHARE);
        if count.open >= OPEN_MAX.min(share) || count.undecided >= UNDECIDED_MAX {
            return None;
        }
        held.all += 1;
        let count = Count { open: count.open + 1, undecided: count.undecided + 1, ..count };
        held.by_guest.insert(guest, count);
        drop(held);
        Some(ConnectionPermit { bounds: Arc::clone(self), guest, undecided: true, http: None })
    }

    fn lock(&self) -> MutexGuard<'_, Usage> {
        self.held.lock().ignore_poison()
    }
}

impl ConnectionPermit {
    /// The connection is decided.
    pub fn decided(&mut self) {
        if std::mem::take(&mut self.undecided) {
            self.with_count(|count| count.undecided -= 1);
        }
    }

    /// The connection is undecided again. `false` if there are too many of these.
    pub fn undecided(&mut self) -> bool {
        let room = self.with_count(|count| {
            let room = count.undecided < UNDECIDED_MAX;
            count.undecided += usize::from(room);
            room
        });
        self.undecided = room;
        room
    }

    /// The connection is parsed as HTTP from now on, until [`ConnectionPermit::set_idle`]. `false` if there are too many, or they hold
    /// too much.
    pub fn start_http(&mut self, kind: Http) -> bool {
        self.set_idle();
        let mut held = self.bounds.lock();
        let count = *kind.of(held.by_guest.entry(self.guest).or_default());
        let left = self.bounds.http_bytes_max.saturating_sub(*held.bytes(kind));
        // A sandbox that holds much does not get the last bytes.
        let own = (count as u64 + 1) * kind.bytes();
        if count >= kind.max_connections() || kind.bytes() > left || own > left.saturating_mul(SHARE as u64) {
            return false;
        }
        *held.bytes(kind) += kind.bytes();
        *kind.of(held.by_guest.entry(self.guest).or_default()) += 1;
        self.http = Some(kind);
        true
    }

    /// The connection is idle and holds only its sockets.
    pub fn set_idle(&mut self) {
        let Some(kind) = self.http.take() else { return };
        let mut held = self.bounds.lock();
        *held.bytes(kind) -= kind.bytes();
        if let Some(count) = held.by_guest.get_mut(&self.guest) {
            *kind.of(count) -= 1;
        }
    }

    fn with_count<T>(&self, change: impl FnOnce(&mut Count) -> T) -> T {
        change(self.bounds.lock().by_guest.entry(self.guest).or_default())
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.decided();
        self.set_idle();
        let mut held = self.bounds.lock();
        held.all -= 1;
        if let Some(count) = held.by_guest.get_mut(&self.guest) {
            count.open -= 1;
            if count.open == 0 {
                held.by_guest.remove(&self.guest);
            }
        }
    }
}

#[cfg(test)]
mod tests;
