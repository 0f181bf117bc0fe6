//! Kills the daemon repeatedly at random moments under load. Acknowledged operations must persist and nothing may leak.
//!
//! `SANDBOXD_CHAOS_KILLS` sets the number of kills (default 15). `SANDBOXD_CHAOS_SEED` repeats the random choices of a run; the
//! seed is printed. Timing is not repeated, so a seed makes a failure likely but not certain.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::SandboxId;
use e2e::{
    CallOutcome, CleanupGuard, Daemon, Expected, RecoverySummary, RigLayout, RigOptions, wait_for_resources,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const VICTIM: &str = env!("CARGO_BIN_EXE_victim");
const WORKERS: usize = 4;
const SANDBOXES_PER_WORKER: usize = 3;
/// Few, so that the test soon fails if ranges of user ids leak.
const SLOTS: u32 = 24;
const POOL: u32 = 2;
/// The command of foreground executions, unique on the host.
const FOREGROUND: &str = "sleep 98765";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SandboxState {
    Running,
    Paused,
    Gone,
}

/// The known state of a sandbox.
#[derive(Debug)]
struct Tracked {
    id: SandboxId,
    /// The acknowledged state, followed by states that unanswered requests may have caused.
    possible: Vec<SandboxState>,
    /// A background process and its file, once acknowledged.
    marker: Option<Marker>,
    /// Whether a foreground command may be running.
    foreground: bool,
}

#[derive(Debug, Clone)]
struct Marker {
    token: String,
    pid: u32,
}

impl Tracked {
    fn new(id: SandboxId) -> Self {
        Self { id, possible: vec![SandboxState::Running], marker: None, foreground: false }
    }

    fn set_state(&mut self, state: SandboxState) {
        self.possible = vec![state];
    }

    fn add_possible(&mut self, state: SandboxState) {
        self.possible.push(state);
    }

    fn state(&self) -> SandboxState {
        self.possible[0]
    }
}

/// A client with its own sandboxes that sends one request at a time.
struct Worker {
    rng: StdRng,
    tracked: Vec<Tracked>,
    /// Creates that were not answered before the daemon was killed.
    unanswered_creates: usize,
    done: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum StepResult {
    Completed,
    DaemonDied,
}

impl Worker {
    fn new(seed: u64) -> Self {
        Self { rng: StdRng::seed_from_u64(seed), tracked: Vec::new(), unanswered_creates: 0, done: 0 }
    }

    /// Sends requests until the daemon dies.
    async fn work(mut self, daemon: Arc<Daemon>) -> Self {
        while self.step(&daemon).await == StepResult::Completed {
            self.done += 1;
        }
        self
    }

    async fn step(&mut self, daemon: &Arc<Daemon>) -> StepResult {
        let alive = self.tracked.iter().filter(|tracked| tracked.state() != SandboxState::Gone).count();
        if alive == 0 || (alive < SANDBOXES_PER_WORKER && self.rng.random_bool(0.4)) {
            return self.create(daemon).await;
        }
        let index = self.rng.random_range(0..self.tracked.len());
        if self.tracked[index].state() == SandboxState::Gone {
            return self.destroy(daemon, index).await;
        }
        match self.rng.random_range(0..100) {
            0..15 => self.mark(daemon, index).await,
            15..40 => self.exec(daemon, index).await,
            40..50 => self.start_foreground(daemon, index),
            50..85 => self.toggle(daemon, index).await,
            _ => self.destroy(daemon, index).await,
        }
    }

    async fn create(&mut self, daemon: &Daemon) -> StepResult {
        match daemon.call("create").await {
            CallOutcome::Ok(id) => {
                self.tracked.push(Tracked::new(id.parse().unwrap()));
                StepResult::Completed
            }
            CallOutcome::No(why) => panic!("a create was refused: {why}"),
            CallOutcome::Lost => {
                self.unanswered_creates += 1;
                StepResult::DaemonDied
            }
        }
    }

    /// Creates a file and a process that must outlive the daemon.
    async fn mark(&mut self, daemon: &Daemon, index: usize) -> StepResult {
        if self.tracked[index].marker.is_some() {
            return self.exec(daemon, index).await;
        }
        let token = format!("token-{}", self.rng.random::<u64>());
        let text = format!("echo {token} > marker; sleep 87654 </dev/null >/dev/null 2>&1 & echo $!");
        let (result, output) = self.command(daemon, index, &text).await;
        if let Some(output) = output {
            let pid = output.trim().parse().unwrap_or_else(|_| panic!("{output:?} is not a process id"));
            self.tracked[index].marker = Some(Marker { token, pid });
        }
        result
    }

    async fn exec(&mut self, daemon: &Daemon, index: usize) -> StepResult {
        let text = match self.rng.random_range(0..4) {
            0 => "head -c 3000000 /dev/zero | tr '\\0' x",
            1 => "sleep 0.03",
            2 => "(setsid sleep 0.2 &) ; echo said",
            _ => "true",
        };
        self.command(daemon, index, text).await.0
    }

    /// Runs a command to its end; returns its output if it was answered.
    async fn command(&mut self, daemon: &Daemon, index: usize, text: &str) -> (StepResult, Option<String>) {
        let tracked = &mut self.tracked[index];
        match daemon.call(&format!("exec {} {text}", tracked.id)).await {
            CallOutcome::Ok(output) => {
                tracked.set_state(SandboxState::Running);
                let (code, output) = output.split_once(' ').unwrap();
                assert_eq!(code, "0", "{text:?} in {} printed {output:?}", tracked.id);
                (StepResult::Completed, Some(output.to_owned()))
            }
            CallOutcome::No(why) => panic!("{text:?} in {tracked:?} was refused: {why}"),
            CallOutcome::Lost => {
                tracked.add_possible(SandboxState::Running);
                (StepResult::DaemonDied, None)
            }
        }
    }

    /// Starts a command without waiting for it. It ends when the daemon dies.
    fn start_foreground(&mut self, daemon: &Arc<Daemon>, index: usize) -> StepResult {
        let tracked = &mut self.tracked[index];
        // The command could resume the sandbox later.
        if tracked.foreground || tracked.state() != SandboxState::Running {
            return StepResult::Completed;
        }
        tracked.foreground = true;
        let (daemon, request) = (Arc::clone(daemon), format!("exec {} {FOREGROUND}", tracked.id));
        tokio::spawn(async move { daemon.call(&request).await });
        // The request may arrive after a later pause and then resumes the sandbox.
        tracked.add_possible(SandboxState::Running);
        StepResult::Completed
    }

    async fn toggle(&mut self, daemon: &Daemon, index: usize) -> StepResult {
        let tracked = &mut self.tracked[index];
        if tracked.foreground {
            return StepResult::Completed;
        }
        let (verb, next) = match tracked.state() {
            SandboxState::Running => ("pause", SandboxState::Paused),
            _ => ("resume", SandboxState::Running),
        };
        match daemon.call(&format!("{verb} {}", tracked.id)).await {
            CallOutcome::Ok(_) => tracked.set_state(next),
            CallOutcome::No(why) => panic!("{verb} of {tracked:?} was refused: {why}"),
            CallOutcome::Lost => {
                tracked.add_possible(next);
                return StepResult::DaemonDied;
            }
        }
        StepResult::Completed
    }

    async fn destroy(&mut self, daemon: &Daemon, index: usize) -> StepResult {
        match daemon.call(&format!("destroy {}", self.tracked[index].id)).await {
            CallOutcome::Ok(_) => {
                self.tracked[index].set_state(SandboxState::Gone);
                // Tracked until the next restart confirms it.
                StepResult::Completed
            }
            CallOutcome::No(why) if self.tracked[index].state() == SandboxState::Gone => {
                assert!(why.contains("no such sandbox"), "{why}");
                StepResult::Completed
            }
            CallOutcome::No(why) => panic!("destroy of {:?} was refused: {why}", self.tracked[index]),
            CallOutcome::Lost => {
                self.tracked[index].add_possible(SandboxState::Gone);
                StepResult::DaemonDied
            }
        }
    }
}

/// Compares the actual state of all sandboxes with the workers' knowledge and updates the workers.
async fn verify(daemon: &Daemon, layout: &RigLayout, workers: &mut [Worker], pool: u32) {
    let living: BTreeSet<SandboxId> =
        daemon.expect_ok("living").await.unwrap().split_whitespace().map(|id| id.parse().unwrap()).collect();
    let mut unknown = living.clone();
    for worker in workers.iter_mut() {
        for tracked in &mut worker.tracked {
            unknown.remove(&tracked.id);
            verify_sandbox(daemon, tracked).await;
        }
        worker.tracked.retain(|tracked| tracked.state() != SandboxState::Gone);
    }
    // An unanswered create is complete or has no effect.
    let unanswered: usize = workers.iter().map(|worker| worker.unanswered_creates).sum();
    assert!(
        unknown.len() <= unanswered,
        "{unknown:?} exist, but only {unanswered} creates were not answered"
    );
    for (number, id) in unknown.into_iter().enumerate() {
        daemon.expect_ok(&format!("exec {id} true")).await.unwrap();
        workers[number % WORKERS].tracked.push(Tracked::new(id));
    }
    for worker in workers.iter_mut() {
        worker.unanswered_creates = 0;
    }
    // Sandboxes that the warm pool provisions meanwhile have no record and look like leaks.
    if pool == 0 {
        let expected = Expected { alive: living, daemon: daemon.pid(), ..Expected::default() };
        let strays = wait_for_resources(layout, &expected).await;
        assert!(strays.is_empty(), "left over after a restart:\n{}", strays.join("\n"));
    }
}

async fn verify_sandbox(daemon: &Daemon, tracked: &mut Tracked) {
    let id = tracked.id.clone();
    let answer = daemon.expect_ok(&format!("state {id}")).await.unwrap();
    let state = match answer.as_str() {
        "running" => SandboxState::Running,
        "paused" => SandboxState::Paused,
        "terminated request" => SandboxState::Gone,
        other => panic!("{tracked:?} is {other:?} after a restart"),
    };
    assert!(tracked.possible.contains(&state), "{tracked:?} is {state:?} after a restart");
    tracked.set_state(state);
    match state {
        SandboxState::Gone => return,
        SandboxState::Paused => assert!(is_frozen(&id), "{tracked:?} is paused but not frozen"),
        SandboxState::Running => assert!(!is_frozen(&id), "{tracked:?} is running but frozen"),
    }
    // The check resumes the sandbox, so only a part of the paused ones is checked.
    if state == SandboxState::Paused && !id.as_str().ends_with(['0', '1', '2', '3', '4', '5', '6', '7']) {
        return;
    }
    if let Some(Marker { token, pid }) = &tracked.marker {
        let found =
            daemon.expect_ok(&format!("exec {id} cat marker; kill -0 {pid} && echo alive")).await.unwrap();
        assert_eq!(found, format!("0 {token}\nalive\n"), "{tracked:?}");
    } else {
        daemon.expect_ok(&format!("exec {id} true")).await.unwrap();
    }
    tracked.set_state(SandboxState::Running);
    if tracked.foreground {
        // Its client died with the daemon.
        let start = Instant::now();
        while daemon.expect_ok(&format!("exec {id} pgrep -xf '{FOREGROUND}'; true")).await.unwrap() != "0 " {
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "a command of a dead client still runs in {tracked:?}"
            );
        }
        tracked.foreground = false;
    }
}

/// The state of the freezer according to the kernel.
fn is_frozen(id: &SandboxId) -> bool {
    let find = |root: &str, file: &str| {
        let parents = std::fs::read_dir(root)
            .ok()?
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("sandboxd-test-"));
        parents
            .map(|parent| parent.path().join(id.as_str()).join(file))
            .find_map(|file| std::fs::read_to_string(file).ok())
    };
    if let Some(state) = find("/sys/fs/cgroup/freezer", "freezer.state") {
        return state.trim() == "FROZEN";
    }
    find("/sys/fs/cgroup", "cgroup.events")
        .is_some_and(|events| events.lines().any(|line| line == "frozen 1"))
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, expected a number")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_of_the_daemon_lose_and_leak_nothing() {
    let kills = setting("SANDBOXD_CHAOS_KILLS").unwrap_or(15);
    let seed = setting("SANDBOXD_CHAOS_SEED").unwrap_or_else(rand::random);
    println!("SANDBOXD_CHAOS_SEED={seed} SANDBOXD_CHAOS_KILLS={kills}");
    let mut rng = StdRng::seed_from_u64(seed);
    let layout = RigLayout::unused();
    let _cleanup = CleanupGuard::new(&layout, &RigOptions::default());
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| Worker::new(rng.random())).collect();
    let mut orphans = 0;
    let mut slowest_ms = 0;

    for kill in 0..kills {
        let pool = if kill % 2 == 0 { POOL } else { 0 };
        let daemon = Daemon::start(Path::new(VICTIM), &layout, pool, SLOTS).unwrap();
        if rng.random_bool(0.15) {
            // Kills the daemon during recovery.
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..60))).await;
            daemon.kill().await.unwrap();
            continue;
        }
        let found: RecoverySummary = daemon.ready().await.unwrap();
        orphans += found.orphans;
        slowest_ms = slowest_ms.max(found.took_ms);
        verify(&daemon, &layout, &mut workers, pool).await;

        let daemon = Arc::new(daemon);
        let working: Vec<_> =
            workers.drain(..).map(|worker| tokio::spawn(worker.work(Arc::clone(&daemon)))).collect();
        // Both short and long delays: most operations are incomplete only for milliseconds.
        let delay = Duration::from_micros(2_u64.pow(rng.random_range(12..20)) + rng.random_range(0..4000));
        tokio::time::sleep(delay).await;
        daemon.kill().await.unwrap();
        for worker in working {
            workers.push(worker.await.unwrap());
        }
        drop(daemon);
    }

    let daemon = Daemon::start(Path::new(VICTIM), &layout, 0, SLOTS).unwrap();
    orphans += daemon.ready().await.unwrap().orphans;
    verify(&daemon, &layout, &mut workers, 0).await;
    let done: u64 = workers.iter().map(|worker| worker.done).sum();
    println!(
        "{kills} kills, {done} requests answered, {orphans} orphans removed, slowest recovery {slowest_ms} ms"
    );
    assert!(done > kills, "the workers completed almost no requests");
    for tracked in workers.iter().flat_map(|worker| &worker.tracked) {
        daemon.expect_ok(&format!("destroy {}", tracked.id)).await.unwrap();
    }
    let strays = wait_for_resources(&layout, &Expected { daemon: daemon.pid(), ..Expected::default() }).await;
    assert!(strays.is_empty(), "left over at the end:\n{}", strays.join("\n"));
    assert_eq!(daemon.expect_ok("used").await.unwrap(), "0 0 0 0");
    daemon.stop().await.unwrap();
}
