//! The subjects of a bench, which run in alternation.

use std::time::Duration;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use rand::seq::SliceRandom as _;

use crate::report::{OURS, Row};
use crate::samples::Samples;

/// Rounds before the first that counts, to fill caches and initialize lazy parts.
const WARM_UP: usize = 3;
/// A pause, so that background work of one round, such as a peer's cleanup, is not measured in the next.
const PAUSE_BETWEEN_TURNS: Duration = Duration::from_millis(10);

/// The row that a duration belongs to, and the duration.
pub type Measured = (&'static str, Duration);

/// One side of a comparison.
#[async_trait]
pub trait Subject: Send {
    fn name(&self) -> &'static str;

    /// Runs one round and returns its measurements, which do not include setup and cleanup.
    async fn once(&mut self) -> Result<Vec<Measured>>;
}

/// Runs `n` rounds with each subject, in random order, so that no subject always follows the same one.
pub async fn interleave(n: usize, subjects: &mut [Box<dyn Subject + '_>]) -> Result<Vec<Row>> {
    let mut found: Vec<(&'static str, &'static str, Samples)> = Vec::new();
    for round in 0..n + WARM_UP {
        subjects.shuffle(&mut rand::rng());
        for subject in subjects.iter_mut() {
            tokio::time::sleep(PAUSE_BETWEEN_TURNS).await;
            let measured =
                subject.once().await.with_context(|| format!("{} in round {round}", subject.name()))?;
            if round < WARM_UP {
                continue;
            }
            for (bench, duration) in measured {
                let at = found.iter().position(|(b, s, _)| *b == bench && *s == subject.name());
                let at = at.unwrap_or_else(|| {
                    found.push((bench, subject.name(), Samples::default()));
                    found.len() - 1
                });
                found[at].2.push(duration);
            }
        }
    }
    found.sort_by_key(|(bench, subject, _)| (*bench, *subject != OURS, *subject));
    Ok(found.into_iter().map(|(bench, subject, samples)| Row::times(bench, subject, &samples)).collect())
}
