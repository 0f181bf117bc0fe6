//! One limit: at most N in any 60 seconds, exactly. See `docs/adr/0007-rate-windows.md`.
//!
//! A window keeps the time of each request it counted until that is 60 seconds old. Requests of one millisecond share an
//! entry, so that no limit, however large, makes a window hold more than 60,000 entries.

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::{Limit, NO_LIMIT};

/// The length of every window.
const WINDOW_MS: u64 = 60_000;

/// How a limit stands after a request, as the three headers say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub of: Limit,
    /// [`NO_LIMIT`] where there is none.
    pub limit: u32,
    pub remaining: u32,
    /// When the oldest request that counts falls out and gives a place back; the present where none counts.
    pub reset_at_ms: u64,
}

impl Standing {
    /// Of a limit that nothing was counted against.
    pub fn untouched(of: Limit, limit: u32, now_ms: u64) -> Self {
        let limit = if limit == 0 { NO_LIMIT } else { limit };
        Self { of, limit, remaining: limit, reset_at_ms: now_ms }
    }

    /// For `X-RateLimit-Reset`: whole seconds since 1970, rounded up. `wall_ahead_ms` is how far the wall clock is ahead of
    /// the clock that [`Standing::reset_at_ms`] is of.
    pub fn reset_unix_seconds(&self, wall_ahead_ms: i64) -> u64 {
        wall_seconds(self.reset_at_ms, wall_ahead_ms)
    }

    /// The one of two that is nearer to its end: by the share that is left, then by what is left, then by how long it
    /// stays so.
    fn nearer(self, other: Self) -> Self {
        let key = |one: &Self, against: &Self| {
            let share = u64::from(one.remaining) * u64::from(against.limit);
            (share, one.remaining, Reverse(one.reset_at_ms))
        };
        if key(&other, &self) < key(&self, &other) { other } else { self }
    }
}

/// A time of the callers' clock as whole seconds of the wall clock, rounded up.
pub fn wall_seconds(at_ms: u64, wall_ahead_ms: i64) -> u64 {
    at_ms.saturating_add_signed(wall_ahead_ms).div_ceil(1000)
}

/// A request past a limit. It was not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}: all {} that are allowed in 60 seconds are used; try again in {retry_after_s} s",
    standing.of.counts(),
    standing.limit
)]
pub struct RateRefusal {
    /// Of the limit that has to be waited for.
    pub standing: Standing,
    /// For `Retry-After`: after so many seconds there is room, if nothing else took it.
    pub retry_after_s: u64,
}

/// What a limit counted in the last 60 seconds.
#[derive(Debug, Clone)]
pub struct Window {
    of: Limit,
    /// 0 for none.
    limit: u32,
    /// Oldest first, each millisecond once. Empty, and without memory of its own, when nothing counts.
    ticks: VecDeque<Tick>,
    counted: u32,
}

#[derive(Debug, Clone, Copy)]
struct Tick {
    at_ms: u64,
    count: u32,
}

impl Window {
    pub fn new(of: Limit, limit: u32) -> Self {
        Self { of, limit, ticks: VecDeque::new(), counted: 0 }
    }

    /// Counts a request, or refuses it.
    pub fn ask(&mut self, now_ms: u64) -> Result<Standing, RateRefusal> {
        ask_all(self, &mut [], now_ms)
    }

    /// How it stands; counts nothing.
    pub fn look(&mut self, now_ms: u64) -> Standing {
        let present_ms = self.present(now_ms);
        self.pass_to(present_ms);
        self.standing(present_ms)
    }

    /// Whether nothing counts any more, so that a new window would answer the same.
    pub fn is_idle(&mut self, now_ms: u64) -> bool {
        self.pass_to(self.present(now_ms));
        self.ticks.is_empty()
    }

    /// Never before the newest request, whatever the caller's clock does.
    fn present(&self, now_ms: u64) -> u64 {
        self.ticks.back().map_or(now_ms, |newest| newest.at_ms.max(now_ms))
    }

    /// Lets go of what is too old, and of all memory with the last of it.
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
            None => untouched,
            Some(oldest) => Standing {
                remaining: untouched.limit - self.counted,
                reset_at_ms: falls_out_at(oldest),
                ..untouched
            },
        }
    }
}

fn falls_out_at(tick: &Tick) -> u64 {
    tick.at_ms.saturating_add(WINDOW_MS)
}

/// Counts one request in all windows, or in none if one of them is full. The answer is of the limit that is nearest to its
/// end; a refusal is of the one that has to be waited for the longest.
pub fn ask_all(first: &mut Window, rest: &mut [&mut Window], now_ms: u64) -> Result<Standing, RateRefusal> {
    let present_ms = rest.iter().fold(first.present(now_ms), |present, window| window.present(present));
    first.pass_to(present_ms);
    rest.iter_mut().for_each(|window| window.pass_to(present_ms));

    let windows = || std::iter::once(&*first).chain(rest.iter().map(|window| &**window));
    let full = windows().filter(|window| window.is_full()).map(|window| window.standing(present_ms));
    if let Some(standing) = full.max_by_key(|standing| standing.reset_at_ms) {
        // From the time that was asked with: that is what the client's seconds add to.
        let retry_after_s = standing.reset_at_ms.saturating_sub(now_ms).div_ceil(1000);
        return Err(RateRefusal { standing, retry_after_s });
    }

    first.count(present_ms);
    rest.iter_mut().for_each(|window| window.count(present_ms));
    let standings = rest.iter().map(|window| window.standing(present_ms));
    Ok(standings.fold(first.standing(present_ms), Standing::nearer))
}
