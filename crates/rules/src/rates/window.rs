//! One limit: at most N in any 60 seconds, exactly. See `docs/adr/0007-rate-windows.md`.
//!
//! A window keeps the time of each counted request for 60 seconds. Requests of one millisecond share an entry, so that a window never
//! holds more than 60,000 entries.

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::{Limit, NO_LIMIT, RateSource};
use crate::ReachedLimit;

/// The length of every window.
const WINDOW_MS: u64 = 60_000;

/// The standing of a limit after a request, as the three headers report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub of: Limit,
    /// [`NO_LIMIT`] if unlimited.
    pub limit: u32,
    pub remaining: u32,
    /// When the oldest counted request leaves the window; now if none counts.
    pub reset_at_ms: u64,
}

impl Standing {
    /// The standing of a limit without counted requests.
    pub fn untouched(of: Limit, limit: u32, now_ms: u64) -> Self {
        let limit = if limit == 0 { NO_LIMIT } else { limit };
        Self { of, limit, remaining: limit, reset_at_ms: now_ms }
    }

    /// For `X-RateLimit-Reset`: Unix seconds, rounded up. `wall_ahead_ms` is how far the wall clock is ahead of the clock of
    /// [`Standing::reset_at_ms`].
    pub fn reset_unix_seconds(&self, wall_ahead_ms: i64) -> u64 {
        wall_seconds(self.reset_at_ms, wall_ahead_ms)
    }

    /// The one of two that is closer to its limit: by the remaining share, then by the remaining count, then by how long it stays
    /// so.
    fn nearer(self, other: Self) -> Self {
        let key = |one: &Self, against: &Self| {
            let share = u64::from(one.remaining) * u64::from(against.limit);
            (share, one.remaining, Reverse(one.reset_at_ms))
        };
        if key(&other, &self) < key(&self, &other) { other } else { self }
    }
}

/// Converts a time of the callers' clock to Unix seconds, rounded up.
pub fn wall_seconds(at_ms: u64, wall_ahead_ms: i64) -> u64 {
    at_ms.saturating_add_signed(wall_ahead_ms).div_ceil(1000)
}

/// A request past a limit. It was not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("rate limit exceeded")]
pub struct RateRefusal {
    /// Of the limit that is used up.
    pub standing: Standing,
    /// For `Retry-After`: after this many seconds a request is allowed, unless others use the key meanwhile.
    pub retry_after_s: u64,
}

impl RateRefusal {
    /// The limit, which is set at `source`.
    pub fn limit(&self, source: RateSource<'_>) -> ReachedLimit {
        let Standing { of, limit, .. } = self.standing;
        ReachedLimit::set_by_operator(limit.into(), of.counts(), of.key(source))
    }
}

/// The requests that a limit counted in the last 60 seconds.
#[derive(Debug, Clone)]
pub struct Window {
    of: Limit,
    /// 0 is unlimited.
    limit: u32,
    /// Oldest first, one entry per millisecond. Empty, without an allocation, when nothing counts.
    ticks: VecDeque<Tick>,
    counted: u32,
}

#[derive(Debug, Clone, Copy)]
struct Tick {
    at_ms: u64,
    count: u32,
}

impl Window {
    /// A window in which nothing was counted. `limit` is a number per minute.
    pub fn new(of: Limit, limit: u32) -> Self {
        Self { of, limit, ticks: VecDeque::new(), counted: 0 }
    }

    /// The window with another limit, which what has been counted may exceed.
    pub fn limited_to(&mut self, limit: u32) -> &mut Self {
        self.limit = limit;
        self
    }

    /// Counts a request, or refuses it.
    pub fn try_count(&mut self, now_ms: u64) -> Result<Standing, RateRefusal> {
        try_count_all(self, &mut [], now_ms)
    }

    /// The standing; counts nothing.
    pub fn look(&mut self, now_ms: u64) -> Standing {
        let present_ms = self.present(now_ms);
        self.pass_to(present_ms);
        self.standing(present_ms)
    }

    /// Whether nothing counts any more, so that a new window decides the same.
    pub fn is_idle(&mut self, now_ms: u64) -> bool {
        self.pass_to(self.present(now_ms));
        self.ticks.is_empty()
    }

    /// Never before the newest request, even if the caller's clock goes back.
    fn present(&self, now_ms: u64) -> u64 {
        self.ticks.back().map_or(now_ms, |newest| newest.at_ms.max(now_ms))
    }

    /// Drops expired entries, and the allocation with the last of them.
    fn pass_to(&mut self, present_ms: u64) {
        while let Some(oldest) = self.ticks.front().copied().filter(|tick| falls_out_at(tick) <= present_ms) {
            self.ticks.pop_front();
            self.counted -= oldest.count;
        }
        if self.ticks.is_empty() {
            self.ticks = VecDeque::new();
        }
    }

    fn is_full(&self) -> bool {
        self.limit != 0 && self.counted >= self.limit
    }

    /// When a full window has room again. That is when its oldest entry leaves, unless requests that had a higher limit have filled
    /// it beyond this one.
    fn has_room_at(&self) -> u64 {
        let mut excess = self.counted.saturating_sub(self.limit) + 1;
        let last = self.ticks.iter().find(|tick| {
            excess = excess.saturating_sub(tick.count);
            excess == 0
        });
        last.map_or(0, falls_out_at)
    }

    fn count(&mut self, present_ms: u64) {
        if self.limit == 0 {
            return;
        }
        self.counted += 1;
        match self.ticks.back_mut() {
            Some(newest) if newest.at_ms == present_ms => newest.count += 1,
            _ => self.ticks.push_back(Tick { at_ms: present_ms, count: 1 }),
        }
    }

    fn standing(&self, present_ms: u64) -> Standing {
        let untouched = Standing::untouched(self.of, self.limit, present_ms);
        match self.ticks.front() {
            Some(oldest) if self.limit != 0 => Standing {
                remaining: untouched.limit.saturating_sub(self.counted),
                reset_at_ms: falls_out_at(oldest),
                ..untouched
            },
            _ => untouched,
        }
    }
}

fn falls_out_at(tick: &Tick) -> u64 {
    tick.at_ms.saturating_add(WINDOW_MS)
}

/// Counts one request in all windows, or in none if one of them is full. Returns the standing of the limit that is closest to its
/// end; a refusal is of the limit with the longest wait.
pub fn try_count_all(
    first: &mut Window,
    rest: &mut [&mut Window],
    now_ms: u64,
) -> Result<Standing, RateRefusal> {
    let present_ms = rest.iter().fold(first.present(now_ms), |present, window| window.present(present));
    first.pass_to(present_ms);
    rest.iter_mut().for_each(|window| window.pass_to(present_ms));

    let windows = || std::iter::once(&*first).chain(rest.iter().map(|window| &**window));
    let full = windows().filter(|window| window.is_full());
    if let Some(full) = full.max_by_key(|window| window.has_room_at()) {
        // From the time of the request, to which the client adds the seconds.
        let retry_after_s = full.has_room_at().saturating_sub(now_ms).div_ceil(1000);
        return Err(RateRefusal { standing: full.standing(present_ms), retry_after_s });
    }

    first.count(present_ms);
    rest.iter_mut().for_each(|window| window.count(present_ms));
    let standings = rest.iter().map(|window| window.standing(present_ms));
    Ok(standings.fold(first.standing(present_ms), Standing::nearer))
}
