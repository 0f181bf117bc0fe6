//! The daemon is killed at any instant under load, again and again: what it acknowledged holds, and nothing is left over.
//!
//! `SANDBOXD_CHAOS_KILLS` says how often (15), `SANDBOXD_CHAOS_SEED` repeats a run's choices; the seed is printed. The kernel's
//! timing is not repeated with it, so a seed makes a failure likely and not certain.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::SandboxId;
use e2e::{Answer, Daemon, Expected, Found, Place, RigOptions, Sweeper, settled};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const VICTIM: &str = env!("CARGO_BIN_EXE_victim");
const WORKERS: usize = 4;
const SANDBOXES_A_WORKER: usize = 3;
/// Few, so that a range of user ids that does not come back is soon missed.
const SLOTS: u32 = 24;
const POOL: u32 = 2;
/// A command in the foreground, by which it is known again on the host.
const FOREGROUND: &str = "sleep 98765";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Paused,
    Gone,
}

/// What a test knows of a sandbox.
#[derive(Debug)]
struct Tracked {
    id: SandboxId,
    /// The one it was acknowledged in, and those that an unanswered request may have brought it to.
    possible: Vec<State>,
    /// A process in the background and what it wrote, once acknowledged.
    marker: Option<Marker>,
    /// Whether a command of ours may be running in it now.
    foreground: bool,
}

#[derive(Debug, Clone)]
struct Marker {
    token: String,
    pid: u32,
}

impl Tracked {
    fn new(id: SandboxId) -> Self {
        Self { id, possible: vec![State::Running], marker: None, foreground: false }
    }

    fn is(&mut self, state: State) {
        self.possible = vec![state];
    }

    fn may_be(&mut self, state: State) {
        self.possible.push(state);
    }

    fn state(&self) -> State {
        self.possible[0]
    }
}

/// One client: its own sandboxes, one request after the other.
struct Worker {
    rng: StdRng,
    tracked: Vec<Tracked>,
    /// Creates that were asked for and not answered before the daemon died.
    unanswered_creates: usize,
    done: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Met {
    Alive,
    Death,
}

impl Worker {
    fn new(seed: u64) -> Self {
        Self { rng: StdRng::seed_from_u64(seed), tracked: Vec::new(), unanswered_creates: 0, done: 0 }
    }

    /// Works until the daemon dies.
    async fn work(mut self, daemon: Arc<Daemon>) -> Self {
        while self.step(&daemon).await == Met::Alive {
            self.done += 1;
        }
        self
    }

    async fn step(&mut self, daemon: &Arc<Daemon>) -> Met {
        let alive = self.tracked.iter().filter(|tracked| tracked.state() != State::Gone).count();
        if alive == 0 || (alive < SANDBOXES_A_WORKER && self.rng.random_bool(0.4)) {
            return self.create(daemon).await;
        }
        let index = self.rng.random_range(0..self.tracked.len());
        if self.tracked[index].state() == State::Gone {
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

    async fn create(&mut self, daemon: &Daemon) -> Met {
        match daemon.call("create").await {
            Answer::Ok(id) => {
                self.tracked.push(Tracked::new(id.parse().unwrap()));
                Met::Alive
            }
            Answer::No(why) => panic!("a create was refused: {why}"),
            Answer::Lost => {
                self.unanswered_creates += 1;
                Met::Death
            }
        }
    }

    /// A file and a process that should outlive every daemon.
    async fn mark(&mut self, daemon: &Daemon, index: usize) -> Met {
        if self.tracked[index].marker.is_some() {
            return self.exec(daemon, index).await;
        }
        let token = format!("token-{}", self.rng.random::<u64>());
        let text = format!("echo {token} > marker; sleep 87654 </dev/null >/dev/null 2>&1 & echo $!");
        let (met, output) = self.command(daemon, index, &text).await;
        if let Some(output) = output {
            let pid = output.trim().parse().unwrap_or_else(|_| panic!("{output:?} is no process id"));
            self.tracked[index].marker = Some(Marker { token, pid });
        }
        met
    }

    async fn exec(&mut self, daemon: &Daemon, index: usize) -> Met {
        let text = match self.rng.random_range(0..4) {
            0 => "head -c 3000000 /dev/zero | tr '\\0' x",
            1 => "sleep 0.03",
            2 => "(setsid sleep 0.2 &) ; echo said",
            _ => "true",
        };
        self.command(daemon, index, text).await.0
    }

    /// A command to its end; its output where that was answered.
    async fn command(&mut self, daemon: &Daemon, index: usize, text: &str) -> (Met, Option<String>) {
        let tracked = &mut self.tracked[index];
        match daemon.call(&format!("exec {} {text}", tracked.id)).await {
            Answer::Ok(output) => {
                tracked.is(State::Running);
                let (code, output) = output.split_once(' ').unwrap();
                assert_eq!(code, "0", "{text:?} in {} said {output:?}", tracked.id);
                (Met::Alive, Some(output.to_owned()))
            }
            Answer::No(why) => panic!("{text:?} in {tracked:?} was refused: {why}"),
            Answer::Lost => {
                tracked.may_be(State::Running);
                (Met::Death, None)
            }
        }
    }

    /// Nobody waits for this one; the daemon's death ends it.
    fn start_foreground(&mut self, daemon: &Arc<Daemon>, index: usize) -> Met {
        let tracked = &mut self.tracked[index];
        // It could wake the sandbox behind our back.
        if tracked.foreground || tracked.state() != State::Running {
            return Met::Alive;
        }
        tracked.foreground = true;
        let (daemon, request) = (Arc::clone(daemon), format!("exec {} {FOREGROUND}", tracked.id));
        tokio::spawn(async move { daemon.call(&request).await });
        // It may arrive after a pause that follows; then it resumes the sandbox.
        tracked.may_be(State::Running);
        Met::Alive
    }

    async fn toggle(&mut self, daemon: &Daemon, index: usize) -> Met {
        let tracked = &mut self.tracked[index];
        if tracked.foreground {
            return Met::Alive;
        }
        let (verb, next) = match tracked.state() {
            State::Running => ("pause", State::Paused),
            _ => ("resume", State::Running),
        };
        match daemon.call(&format!("{verb} {}", tracked.id)).await {
            Answer::Ok(_) => tracked.is(next),
            Answer::No(why) => panic!("{verb} of {tracked:?} was refused: {why}"),
            Answer::Lost => {
                tracked.may_be(next);
                return Met::Death;
            }
        }
        Met::Alive
    }

    async fn destroy(&mut self, daemon: &Daemon, index: usize) -> Met {
        match daemon.call(&format!("destroy {}", self.tracked[index].id)).await {
            Answer::Ok(_) => {
                self.tracked[index].is(State::Gone);
                // Kept until the next restart has shown that it stays so.
                Met::Alive
            }
            Answer::No(why) if self.tracked[index].state() == State::Gone => {
                assert!(why.contains("no such sandbox"), "{why}");
                Met::Alive
            }
            Answer::No(why) => panic!("destroy of {:?} was refused: {why}", self.tracked[index]),
            Answer::Lost => {
                self.tracked[index].may_be(State::Gone);
                Met::Death
            }
        }
    }
}

/// Looks whether the world is as the workers know it, and brings them up to date.
async fn verify(daemon: &Daemon, place: &Place, workers: &mut [Worker], pool: u32) {
    let living: BTreeSet<SandboxId> =
        daemon.ask("living").await.unwrap().split_whitespace().map(|id| id.parse().unwrap()).collect();
    let mut strangers = living.clone();
    for worker in workers.iter_mut() {
        for tracked in &mut worker.tracked {
            strangers.remove(&tracked.id);
            look_at(daemon, tracked).await;
        }
        worker.tracked.retain(|tracked| tracked.state() != State::Gone);
    }
    // A create that nobody heard the end of is there as a whole or not at all.
    let unanswered: usize = workers.iter().map(|worker| worker.unanswered_creates).sum();
    assert!(
        strangers.len() <= unanswered,
        "{strangers:?} are there and {unanswered} creates were not answered"
    );
    for (number, id) in strangers.into_iter().enumerate() {
        daemon.ask(&format!("exec {id} true")).await.unwrap();
        workers[number % WORKERS].tracked.push(Tracked::new(id));
    }
    for worker in workers.iter_mut() {
        worker.unanswered_creates = 0;
    }
    // What a pool makes meanwhile has no record and cannot be told from a leak.
    if pool == 0 {
        let expected = Expected { alive: living, daemon: daemon.pid(), ..Expected::default() };
        let strays = settled(place, &expected).await;
        assert!(strays.is_empty(), "left over after a restart:\n{}", strays.join("\n"));
    }
}

async fn look_at(daemon: &Daemon, tracked: &mut Tracked) {
    let id = tracked.id.clone();
    let said = daemon.ask(&format!("state {id}")).await.unwrap();
    let state = match said.as_str() {
        "running" => State::Running,
        "paused" => State::Paused,
        "terminated request" => State::Gone,
        other => panic!("{tracked:?} is {other:?} after a restart"),
    };
    assert!(tracked.possible.contains(&state), "{tracked:?} is {state:?} after a restart");
    tracked.is(state);
    match state {
        State::Gone => return,
        State::Paused => assert!(is_frozen(&id), "{tracked:?} is paused and not frozen"),
        State::Running => assert!(!is_frozen(&id), "{tracked:?} is running and frozen"),
    }
    // Now and then also what is inside the paused ones.
    if state == State::Paused && !id.as_str().ends_with(['0', '1', '2', '3', '4', '5', '6', '7']) {
        return;
    }
    if let Some(Marker { token, pid }) = &tracked.marker {
        let found = daemon.ask(&format!("exec {id} cat marker; kill -0 {pid} && echo alive")).await.unwrap();
        assert_eq!(found, format!("0 {token}\nalive\n"), "{tracked:?}");
    } else {
        daemon.ask(&format!("exec {id} true")).await.unwrap();
    }
    tracked.is(State::Running);
    if tracked.foreground {
        // Its client died with the daemon.
        let looks = Instant::now();
        while daemon.ask(&format!("exec {id} pgrep -xf '{FOREGROUND}'; true")).await.unwrap() != "0 " {
            assert!(
                looks.elapsed() < Duration::from_secs(5),
                "a command of a dead client runs on in {tracked:?}"
            );
        }
        tracked.foreground = false;
    }
}

/// What the kernel says, whatever the engine does.
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
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}; a number is wanted")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_and_nothing_leaks_whenever_the_daemon_dies() {
    let kills = setting("SANDBOXD_CHAOS_KILLS").unwrap_or(15);
    let seed = setting("SANDBOXD_CHAOS_SEED").unwrap_or_else(rand::random);
    println!("SANDBOXD_CHAOS_SEED={seed} SANDBOXD_CHAOS_KILLS={kills}");
    let mut rng = StdRng::seed_from_u64(seed);
    let place = Place::fresh();
    let _sweeper = Sweeper::new(&place, &RigOptions::default());
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| Worker::new(rng.random())).collect();
    let mut orphans = 0;
    let mut slowest_ms = 0;

    for kill in 0..kills {
        let pool = if kill % 2 == 0 { POOL } else { 0 };
        let daemon = Daemon::start(Path::new(VICTIM), &place, pool, SLOTS).unwrap();
        if rng.random_bool(0.15) {
            // Starting is recovering, and may be cut short as well.
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..60))).await;
            daemon.kill().await.unwrap();
            continue;
        }
        let found: Found = daemon.ready().await.unwrap();
        orphans += found.orphans;
        slowest_ms = slowest_ms.max(found.took_ms);
        verify(&daemon, &place, &mut workers, pool).await;

        let daemon = Arc::new(daemon);
        let working: Vec<_> =
            workers.drain(..).map(|worker| tokio::spawn(worker.work(Arc::clone(&daemon)))).collect();
        // Short and long ones alike: most of what can be half done is so for milliseconds.
        let patience = Duration::from_micros(2_u64.pow(rng.random_range(12..20)) + rng.random_range(0..4000));
        tokio::time::sleep(patience).await;
        daemon.kill().await.unwrap();
        for worker in working {
            workers.push(worker.await.unwrap());
        }
        drop(daemon);
    }

    let daemon = Daemon::start(Path::new(VICTIM), &place, 0, SLOTS).unwrap();
    orphans += daemon.ready().await.unwrap().orphans;
    verify(&daemon, &place, &mut workers, 0).await;
    let done: u64 = workers.iter().map(|worker| worker.done).sum();
    println!(
        "{kills} kills, {done} requests answered, {orphans} orphans removed, slowest recovery {slowest_ms} ms"
    );
    assert!(done > kills, "the load did next to nothing");
    for tracked in workers.iter().flat_map(|worker| &worker.tracked) {
        daemon.ask(&format!("destroy {}", tracked.id)).await.unwrap();
    }
    let strays = settled(&place, &Expected { daemon: daemon.pid(), ..Expected::default() }).await;
    assert!(strays.is_empty(), "left over at the end:\n{}", strays.join("\n"));
    assert_eq!(daemon.ask("used").await.unwrap(), "0 0 0 0");
    daemon.stop().await.unwrap();
}
