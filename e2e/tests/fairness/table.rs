//! Outcomes as text: a line while the suite runs, the Markdown table, and what exceeds the bounds.

use std::fmt::Write as _;

use api::Isolation;

use crate::attack::Bound;
use crate::figures::{Operation, Samples};
use crate::stage::Outcome;

/// Most memory of the kernel that an attack may take without being charged for it. It includes what the kernel needs for the sandboxes
/// themselves: loop devices, links, structures of processes.
const MAX_KERNEL_MB: i64 = 512;
/// Memory of the daemon that one account's attack may take.
const MAX_DAEMON_MB: i64 = 256;
/// A row shows this many letters of what the attacker reports.
const SHOWN: usize = 90;

/// One line for a terminal.
pub fn line(outcome: &Outcome) -> String {
    let mut text = format!("{}: {}", outcome.attack.name, cells(outcome).join(" | "));
    for refused in outcome.during.refused.iter().take(3) {
        // Writing to a string does not fail.
        let _ = write!(text, "\n    refused: {refused}");
    }
    text
}

fn cells(outcome: &Outcome) -> Vec<String> {
    let held: String = outcome.held.what.replace(['|', '\n'], " ").chars().take(SHOWN).collect();
    let mut cells = vec![held];
    match Samples::worst(&outcome.before, &outcome.during) {
        Some(worst) => cells.extend([
            worst.operation.name().to_owned(),
            format!("{:.1} ms", worst.before.as_secs_f64() * 1000.0),
            format!("{:.1} ms", worst.during.as_secs_f64() * 1000.0),
            format!("{:.1}", worst.factor),
        ]),
        None => cells.extend(["", "", "", ""].map(str::to_owned)),
    }
    cells.push(format!("{:.0}", outcome.attack.bound.factor(outcome.isolation)));
    cells.push(format!("{} of {}", outcome.during.refused.len(), outcome.during.rounds * Operation::COUNT));
    cells.push(format!("{}", outcome.taken.kernel_mb));
    cells.push(format!("{}", outcome.taken.daemon_mb));
    cells
}

/// The table of one isolation.
pub fn markdown(isolation: Isolation, outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "| Attack ({isolation}) | Taken | Slowest operation | p50 before | p50 during | Factor | Allowed | Refused | Kernel MB | Daemon MB |\n\
         |---|---|---|---|---|---|---|---|---|---|\n"
    );
    for outcome in outcomes {
        let _ = writeln!(text, "| {} | {} |", outcome.attack.name, cells(outcome).join(" | "));
    }
    text
}

/// Whether nothing was refused, but a figure is too large. Other programs of the machine may have done that, so it is measured
/// again.
pub fn exceeds_only_figures(outcome: &Outcome) -> bool {
    let refused = !outcome.before.refused.is_empty() || !outcome.during.refused.is_empty();
    let works = outcome.unbegun.is_none() && outcome.unended.is_none();
    !refused && works && !failures(outcome).is_empty()
}

/// What exceeds a bound.
pub fn failures(outcome: &Outcome) -> Vec<String> {
    let name = outcome.attack.name;
    let mut found = Vec::new();
    let allowed = outcome.attack.bound.factor(outcome.isolation);
    if let Some(worst) = Samples::worst(&outcome.before, &outcome.during)
        && worst.factor > allowed
    {
        let reason = match outcome.attack.bound {
            Bound::Own => "its own resource",
            Bound::Shared(share) | Bound::Unbounded(share) => share.reason,
        };
        let (operation, before, during) = (worst.operation.name(), worst.before, worst.during);
        found.push(format!(
            "{name}: {operation} takes {during:?} instead of {before:?}; at most {allowed} times as long is allowed ({reason})"
        ));
    }
    let may_refuse = allowed.is_infinite();
    for (when, samples) in [("before", &outcome.before), ("during", &outcome.during)] {
        if may_refuse && when == "during" {
            continue;
        }
        if let Some(first) = samples.refused.first() {
            found.push(format!(
                "{name}: {} refusals {when} the attack, the first: {first}",
                samples.refused.len()
            ));
        }
    }
    for (whose, taken, most) in [
        ("the kernel", outcome.taken.kernel_mb, MAX_KERNEL_MB),
        ("the daemon", outcome.taken.daemon_mb, MAX_DAEMON_MB),
    ] {
        // What an ended program had is about to become free, and is charged to nobody until then.
        if taken > most && !outcome.held.is_killed {
            found.push(format!(
                "{name}: {taken} MB of {whose} are charged to nobody, at most {most} are allowed"
            ));
        }
    }
    if let Some(error) = &outcome.unbegun {
        found.push(format!("{name}: the attack does not begin: {error}"));
    }
    if let Some(error) = &outcome.unended {
        found.push(format!("{name}: the attack cannot be ended: {error}"));
    }
    found
}
