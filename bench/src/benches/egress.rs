//! Outgoing traffic of sandboxes on a simulated internet: streams, first bytes, policies, creates with a network, and many
//! connections. `direct` is the same client on the host, without a sandbox.

mod connections;
mod create;
mod machine;
mod policies;
mod transfer;

use anyhow::{Context as _, Result};

use super::{Scale, Setup};
use crate::report::Row;
use machine::Machine;

/// The benches that can be selected.
pub const NAMES: [&str; 6] = [
    "egress-stream",
    "egress-first-byte",
    "policy-apply",
    "egress-create-cold",
    "egress-create-warm",
    "proxy-connections",
];

pub async fn run(setup: &Setup) -> Result<Vec<Row>> {
    // A separate thread, because it enters the machine's network namespace permanently.
    tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(measure(setup))
            });
            worker.join().map_err(|_| anyhow::anyhow!("the bench panicked"))?
        })
    })
}

async fn measure(setup: &Setup) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let machine = Machine::start("nftables", 0).await.context("starting a machine")?;
    if setup.wants(&["egress-stream"]) {
        rows.extend(transfer::streams(&machine).await?);
    }
    if setup.wants(&["egress-first-byte"]) {
        rows.extend(transfer::first_bytes(&machine).await?);
    }
    if setup.wants(&["proxy-connections"]) {
        rows.extend(connections::run(&machine).await?);
    }
    if setup.wants(&["policy-apply"]) {
        let count = if setup.scale == Scale::Full { 500 } else { 100 };
        rows.extend(policies::run(&machine, count).await?);
    }
    drop(machine);
    for (bench, pool) in [("egress-create-cold", 0), ("egress-create-warm", 4)] {
        if setup.wants(&[bench]) {
            rows.extend(create::run(bench, pool).await?);
        }
    }
    Ok(rows)
}
