//! Noisy neighbours: one account takes all that it can of one resource, while the victim, another account, works.
//!
//! For each row of `rows.rs` the victim works alone first, then during the attack: it creates and terminates a sandbox, executes a
//! command that takes a little of every kernel resource, opens a terminal, writes and reads a file, fetches a page from its own
//! sandbox and one from outside. Nothing may fail for it, except in rows that are `Bound::Unbounded`, and the median of each operation may grow by the factor of the row only:
//! 3, or what the row states if the kernel shares the resource between all. Memory of the kernel and of the daemon that no sandbox
//! is charged for is bounded, too.
//!
//! - Medians below 20 ms count as 20 ms. An attacker may use as many cores as this machine has, and the scheduler alone moves a few
//!   milliseconds by more than a factor of 3.
//! - A row of which only figures are too large is measured again, because other programs may have slowed the victim down or
//!   taken the memory. A refusal is never measured again.
//! - The rate limits of keys are off, because the victim exceeds them. So the attackers send more than any key may.
//!
//! The short form is part of `./dev test`. Its periods are too short for a median, so its figures without an attack include rounds
//! before earlier rows. `./dev fairness` runs the long form and prints a table, from which that of `docs/security.md` is made.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attack;
mod builds;
mod clients;
mod figures;
mod host;
mod outside;
mod programs;
mod rates;
mod rows;
mod stage;
mod table;
mod victim;

use std::time::Duration;

use api::Isolation;
use attack::{Attack, Form};
use stage::{Period, Stage};

/// Attacks of both isolations must not disturb each other.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// How often a row is measured again of which only figures are too large.
const REPETITIONS: usize = 2;
const SHORT: Period =
    Period { before: Duration::ZERO, during: Duration::from_millis(600), rounds: [1, 3], kept: 9 };
const AGAIN: Period =
    Period { before: Duration::from_secs(2), during: Duration::from_secs(3), rounds: [5, 5], kept: 0 };

/// An environment variable.
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The period of each attack in the long form: `SANDBOXD_FAIRNESS_SECONDS`, or 20.
fn long() -> Period {
    let seconds = setting("SANDBOXD_FAIRNESS_SECONDS").map_or(20, |text| text.parse().unwrap());
    let [before, during] = [Duration::from_secs(seconds / 4 + 1), Duration::from_secs(seconds)];
    Period { before, during, rounds: [5, 5], kept: 0 }
}

/// The rows of a form, or those that `SANDBOXD_FAIRNESS_ONLY` names, separated by commas.
fn rows(isolation: Isolation, form: Form) -> Vec<&'static Attack> {
    let only = setting("SANDBOXD_FAIRNESS_ONLY");
    let all = rows::KERNEL.iter().chain(rows::DAEMON);
    let chosen = all.filter(|row| match &only {
        Some(only) => only.split(',').any(|name| row.name == name),
        None => match form {
            Form::Long => true,
            Form::Short | Form::Containers => {
                row.form == Form::Short || (row.form == Form::Containers && isolation == Isolation::Container)
            }
        },
    });
    chosen.collect()
}

async fn measure(isolation: Isolation, form: Form, period: Period) {
    let _alone = ALONE.lock().await;
    let mut stage = Stage::new(isolation).await.unwrap();
    let mut outcomes = Vec::new();
    for row in rows(isolation, form) {
        let mut outcome = stage.measure(row, period).await.unwrap();
        for _ in 0..REPETITIONS {
            if table::exceeds_only_figures(&outcome) {
                println!("again, {}", table::line(&outcome));
                outcome = stage.measure(row, AGAIN).await.unwrap();
            }
        }
        println!("{}", table::line(&outcome));
        outcomes.push(outcome);
    }
    println!("\n{}", table::markdown(isolation, &outcomes));
    let failures: Vec<String> = outcomes.iter().flat_map(table::failures).collect();
    assert!(failures.is_empty(), "{isolation}:\n{}", failures.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_container_takes_what_belongs_to_all() {
    measure(Isolation::Container, Form::Short, SHORT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_sandbox_under_gvisor_takes_what_belongs_to_all() {
    measure(Isolation::Gvisor, Form::Short, SHORT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by ./dev fairness"]
async fn full_tcp_buffers_leave_a_container_its_rate() {
    let _alone = ALONE.lock().await;
    rates::measure(Isolation::Container).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by ./dev fairness"]
async fn full_tcp_buffers_leave_a_sandbox_under_gvisor_its_rate() {
    let _alone = ALONE.lock().await;
    rates::measure(Isolation::Gvisor).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by ./dev fairness"]
async fn long_attacks_of_containers() {
    measure(Isolation::Container, Form::Long, long()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by ./dev fairness"]
async fn long_attacks_under_gvisor() {
    measure(Isolation::Gvisor, Form::Long, long()).await;
}
