//! The benches, one per file. Each returns rows and removes what it created, also if it fails.

mod at_once;
mod burst;
mod churn;
mod client;
mod code;
mod create;
mod density;
mod destroy;
mod disk;
mod e2b;
mod egress;
mod events;
mod execute;
mod files;
mod get;
mod gvisor;
mod hibernation;
mod http_create;
mod http_execute;
mod list;
mod memory_snapshot;
mod object_store;
mod output;
mod pause;
mod pip;
mod ports;
pub mod recovery;
mod sbx_run;
mod sdk;
mod snapshot;
mod sse;
mod streams;
mod template;
mod terminal_echo;

use std::time::Instant;

use anyhow::Result;

use crate::baselines::docker::Docker;
use crate::report::Row;

/// The benches that can be selected. `create` has the peers' rows for `create-warm` and `create-cold`.
pub const NAMES: [&str; 51] = [
    "execute",
    "create-warm",
    "create-cold",
    "create",
    "burst",
    "at-once",
    "at-once-cold",
    "pause",
    "resume",
    "destroy",
    "churn",
    "output",
    "recovery",
    "density",
    "http-execute",
    "code",
    "http-create",
    "get",
    "list",
    "events",
    "sse",
    "streams",
    "egress-stream",
    "egress-first-byte",
    "policy-apply",
    "egress-create-cold",
    "egress-create-warm",
    "proxy-connections",
    "client",
    "sbx-run",
    "files",
    "upload",
    "small-files",
    "ports",
    "terminal-echo",
    "sdk",
    "e2b",
    "gvisor",
    "snapshot",
    "create-from-snapshot",
    "fork",
    "hibernate",
    "wake",
    "hibernated",
    "memory-snapshot",
    "memory-fork",
    "template-build",
    "template-rebuild",
    "store",
    "store-changes",
    "fetch",
];

/// The benches that also measure Docker.
pub const USES_DOCKER: [&str; 12] = [
    "template-build",
    "template-rebuild",
    "snapshot",
    "create-from-snapshot",
    "execute",
    "create-warm",
    "create-cold",
    "create",
    "pause",
    "resume",
    "destroy",
    "sbx-run",
];

/// The size of benches whose bounds are about large numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    Short,
    Full,
}

/// The options of a run.
pub struct Setup {
    pub selected: Vec<&'static str>,
    pub scale: Scale,
    pub docker: Option<Docker>,
}

impl Setup {
    pub fn wants(&self, names: &[&str]) -> bool {
        self.selected.iter().any(|selected| names.contains(selected))
    }
}

/// Runs the selected benches. A bench that fails adds a line to the failures.
pub async fn run_selected(setup: &Setup) -> (Vec<Row>, Vec<String>) {
    let mut rows = Vec::new();
    let mut failures = Vec::new();
    let mut record = |names: &str, begin: Instant, result: Result<Vec<Row>>| {
        match result {
            Ok(more) => rows.extend(more),
            Err(error) => failures.push(format!("{names} failed: {error:#}")),
        }
        eprintln!("bench: {names} took {:.1} s", begin.elapsed().as_secs_f64());
    };
    macro_rules! bench {
        ($names:expr, $run:expr) => {
            if setup.wants(&$names) {
                let begin = Instant::now();
                record(&$names.join(", "), begin, $run.await);
            }
        };
    }
    bench!(["execute"], execute::run(setup));
    bench!(["create-warm", "create-cold", "create"], create::run(setup));
    bench!(["burst"], burst::run());
    bench!(at_once::NAMES, at_once::run());
    bench!(["pause", "resume"], pause::run(setup));
    bench!(["destroy"], destroy::run(setup));
    bench!(["churn"], churn::run(setup));
    bench!(["output"], output::run());
    bench!(["recovery"], recovery::run());
    bench!(["density"], density::run(setup));
    bench!(["http-execute"], http_execute::run());
    bench!(["code"], code::run());
    bench!(["http-create"], http_create::run());
    bench!(["get"], get::run());
    bench!(["list"], list::run(setup));
    bench!(["events"], events::run(setup));
    bench!(["sse"], sse::run());
    bench!(["streams"], streams::run());
    bench!(egress::NAMES, egress::run(setup));
    bench!(["client"], client::run());
    bench!(["terminal-echo"], terminal_echo::run());
    bench!(["sbx-run"], sbx_run::run(setup));
    bench!(["files"], files::run());
    bench!(disk::NAMES, disk::run(setup));
    bench!(["ports"], ports::run());
    bench!(["sdk"], sdk::run());
    bench!(["e2b"], e2b::run());
    bench!(["gvisor"], gvisor::run());
    bench!(snapshot::NAMES, snapshot::run(setup));
    bench!(hibernation::NAMES, hibernation::run(setup));
    bench!(memory_snapshot::NAMES, memory_snapshot::run());
    bench!(template::NAMES, template::run(setup));
    bench!(object_store::NAMES, object_store::run());
    (rows, failures)
}
