//! Times and refusals of the victim, and the bounds that they are compared with.

use std::collections::BTreeMap;
use std::time::Duration;

/// Times below this are not told apart: on two cores that an attacker may share, the scheduler alone moves a median of a
/// few milliseconds by more than the allowed factor.
const FLOOR: Duration = Duration::from_millis(20);

/// What the victim does in each round, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Create,
    Execute,
    Terminal,
    Upload,
    Download,
    /// A page of a server in the victim's sandbox, through an exposed port.
    Page,
    /// A page of a server outside, fetched by a program in the victim's sandbox.
    Outside,
}

impl Operation {
    /// Operations of a round.
    pub const COUNT: usize = 7;

    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Execute => "execute",
            Self::Terminal => "terminal",
            Self::Upload => "upload",
            Self::Download => "download",
            Self::Page => "page",
            Self::Outside => "page outside",
        }
    }
}

/// The figures of some rounds.
#[derive(Debug, Default, Clone)]
pub struct Samples {
    pub rounds: usize,
    times: BTreeMap<Operation, Vec<Duration>>,
    pub refused: Vec<String>,
}

impl Samples {
    pub fn add(&mut self, operation: Operation, result: anyhow::Result<Duration>) {
        match result {
            Ok(time) => self.times.entry(operation).or_default().push(time),
            Err(error) => {
                let text: String = format!("{error:#}").chars().take(300).collect();
                self.refused.push(format!("{}: {text}", operation.name()));
            }
        }
    }

    /// Adds earlier rounds, and keeps the newest times of each operation.
    pub fn continue_from(&mut self, earlier: &Self, newest: usize) {
        for (operation, times) in &earlier.times {
            let own = self.times.entry(*operation).or_default();
            let room = newest.saturating_sub(own.len()).min(times.len());
            own.splice(0..0, times[times.len() - room..].iter().copied());
        }
    }

    fn median(&self, operation: Operation) -> Option<Duration> {
        let mut times = self.times.get(&operation)?.clone();
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    }

    /// The operation that an attack slows down most: its medians and their ratio.
    pub fn worst(before: &Self, during: &Self) -> Option<Slowdown> {
        let slowdowns = before.times.keys().filter_map(|&operation| {
            let (before, during) = (before.median(operation)?, during.median(operation)?);
            let factor = during.max(FLOOR).as_secs_f64() / before.max(FLOOR).as_secs_f64();
            Some(Slowdown { operation, before, during, factor })
        });
        slowdowns.max_by(|one, other| one.factor.total_cmp(&other.factor))
    }
}

/// How much longer an operation takes during an attack.
#[derive(Debug, Clone, Copy)]
pub struct Slowdown {
    pub operation: Operation,
    pub before: Duration,
    pub during: Duration,
    pub factor: f64,
}
