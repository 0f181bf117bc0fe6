//! Random operations on a few sandboxes, compared with a reference model.

use std::collections::BTreeMap;

use api::{Resources, SandboxConfig, SandboxId, SandboxState};
use driver::Presence;
use engine::{CapacityError, EngineError, HostError, SandboxError};
use proptest::prelude::*;

use crate::harness::{Harness, MINUTE, SECOND, SIZE, command, config, pass, settings, settle};

#[derive(Debug, Clone)]
enum Act {
    Create { cpu: u32, idle_min: u64, life_min: u64 },
    Pause(usize),
    Resume(usize),
    Exec { index: usize, wake: bool },
    Terminate(usize),
    Crash(usize),
    HangUp(usize),
    Pass { minutes: u64 },
    FailCommit(Box<Act>),
}

fn act() -> impl Strategy<Value = Act> {
    let index = 0..4_usize;
    let plain = prop_oneof![
        3 => (prop_oneof![Just(2_u32), Just(4)], 0..4_u64, 20..90_u64)
            .prop_map(|(cpu, idle, life_min)| Act::Create { cpu, idle_min: idle * 7, life_min }),
        3 => index.clone().prop_map(Act::Pause),
        3 => index.clone().prop_map(Act::Resume),
        5 => (index.clone(), any::<bool>()).prop_map(|(index, wake)| Act::Exec { index, wake }),
        1 => index.clone().prop_map(Act::Terminate),
        1 => index.clone().prop_map(Act::Crash),
        1 => index.prop_map(Act::HangUp),
        3 => (1..25_u64).prop_map(|minutes| Act::Pass { minutes }),
    ];
    plain.prop_flat_map(|act| {
        let failing = matches!(act, Act::Pause(_) | Act::Resume(_) | Act::Terminate(_) | Act::Create { .. });
        let weight = if failing { 1 } else { 0 };
        prop_oneof![6 => Just(act.clone()), weight => Just(Act::FailCommit(Box::new(act)))]
    })
}

/// The expected state of one sandbox. All operations happen at whole minutes, plus their own duration.
#[derive(Debug, Clone)]
struct Model {
    cpu: u32,
    state: SandboxState,
    processes: bool,
    ran_ms: u64,
    quiet_ms: u64,
    /// `u64::MAX` for no idle timeout.
    idle_ms: u64,
    life_ms: u64,
}

impl Model {
    fn pass_a_minute(&mut self) {
        if self.state != SandboxState::Running {
            return;
        }
        let (life_left, idle_left) = (self.life_ms - self.ran_ms, self.idle_ms - self.quiet_ms);
        let first = life_left.min(idle_left).min(MINUTE);
        self.ran_ms += first;
        self.quiet_ms += first;
        if first == life_left {
            self.state = SandboxState::Terminated;
        } else if first == idle_left {
            self.state = SandboxState::Paused;
        }
    }

    fn wake(&mut self) {
        self.state = SandboxState::Running;
        self.processes = true;
        self.quiet_ms = 0;
    }
}

const CPU: u64 = 10;

struct Walk {
    harness: Harness,
    models: BTreeMap<SandboxId, Model>,
    order: Vec<SandboxId>,
}

impl Walk {
    fn cpu_used(&self) -> u64 {
        let running = self.models.values().filter(|model| model.state == SandboxState::Running);
        running.map(|model| u64::from(model.cpu)).sum()
    }

    fn fits(&self, cpu: u32) -> bool {
        self.cpu_used() + u64::from(cpu) <= CPU
    }

    fn chosen(&self, index: usize) -> Option<(SandboxId, Model)> {
        let id = self.order.iter().rev().nth(index)?.clone();
        let model = self.models[&id].clone();
        Some((id, model))
    }

    async fn step(&mut self, act: &Act, commit_fails: bool) {
        match act {
            Act::Create { cpu, idle_min, life_min } => {
                self.create(*cpu, *idle_min, *life_min, commit_fails).await;
            }
            Act::Pause(index) => self.pause(*index, commit_fails).await,
            Act::Resume(index) => self.resume(*index, commit_fails).await,
            Act::Exec { index, wake } => self.exec(*index, *wake).await,
            Act::Terminate(index) => self.terminate(*index, commit_fails).await,
            Act::Crash(index) => {
                if let Some((id, model)) = self.chosen(*index)
                    && model.processes
                    && model.state != SandboxState::Terminated
                {
                    self.harness.driver.crash(&id);
                    let model = self.models.get_mut(&id).unwrap();
                    model.processes = false;
                    model.state = SandboxState::Paused;
                    // Longer than the backoff after two link losses.
                    self.pass(1).await;
                }
            }
            Act::HangUp(index) => {
                if let Some((id, _)) = self.chosen(*index) {
                    self.harness.driver.hang_up(&id);
                    // As above.
                    self.pass(1).await;
                }
            }
            Act::Pass { minutes } => self.pass(*minutes).await,
            Act::FailCommit(act) => Box::pin(self.step(act, true)).await,
        }
        settle().await;
    }

    async fn pass(&mut self, minutes: u64) {
        for _ in 0..minutes {
            pass(MINUTE).await;
            self.models.values_mut().for_each(Model::pass_a_minute);
        }
    }

    async fn create(&mut self, cpu: u32, idle_min: u64, life_min: u64, commit_fails: bool) {
        if commit_fails && self.fits(cpu) {
            self.harness.fail_next_commit();
        }
        // Not at whole minutes, so that the duration of operations does not change the result.
        let life_ms = life_min * MINUTE - 7 * SECOND;
        let idle_ms = if idle_min == 0 { u64::MAX } else { idle_min * MINUTE - 20 * SECOND };
        let config = SandboxConfig {
            resources: Resources { cpu, ..SIZE },
            idle_timeout_ms: if idle_min == 0 { 0 } else { idle_ms },
            timeout_ms: life_ms,
            ..config()
        };
        match self.harness.create_with(config).await {
            Ok(id) => {
                assert!(self.fits(cpu) && !commit_fails);
                let state = SandboxState::Running;
                let (ran_ms, quiet_ms) = (0, 0);
                let model = Model { cpu, state, processes: true, ran_ms, quiet_ms, idle_ms, life_ms };
                self.models.insert(id.clone(), model);
                self.order.push(id);
            }
            Err(EngineError::Capacity(CapacityError::NoCapacity(_))) => assert!(!self.fits(cpu)),
            Err(EngineError::Host(HostError::Store(_))) => assert!(commit_fails),
            Err(error) => panic!("{error:?}"),
        }
    }

    async fn pause(&mut self, index: usize, commit_fails: bool) {
        let Some((id, model)) = self.chosen(index) else { return };
        let suits = model.state == SandboxState::Running;
        if commit_fails && suits {
            self.harness.fail_next_commit();
        }
        match self.harness.engine.sandbox("test", &id).pause().await {
            Ok(_) => {
                assert!(suits && !commit_fails);
                self.models.get_mut(&id).unwrap().state = SandboxState::Paused;
            }
            Err(EngineError::Host(HostError::Store(_))) => {
                assert!(suits && commit_fails);
                // Counts as a request.
                self.models.get_mut(&id).unwrap().quiet_ms = 0;
            }
            Err(error) => refused(&model, suits, &error),
        }
    }

    async fn resume(&mut self, index: usize, commit_fails: bool) {
        let Some((id, model)) = self.chosen(index) else { return };
        let suits = model.state == SandboxState::Paused;
        if commit_fails && suits && self.fits(model.cpu) {
            self.harness.fail_next_commit();
        }
        match self.harness.engine.sandbox("test", &id).resume().await {
            Ok(_) => {
                assert!(suits && self.fits(model.cpu) && !commit_fails);
                self.models.get_mut(&id).unwrap().wake();
            }
            Err(EngineError::Capacity(CapacityError::NoCapacity(_))) => {
                assert!(suits && !self.fits(model.cpu));
            }
            Err(EngineError::Host(HostError::Store(_))) => assert!(suits && commit_fails),
            Err(error) => {
                refused(&model, suits, &error);
                self.models.get_mut(&id).unwrap().quiet_ms = 0;
            }
        }
    }

    async fn exec(&mut self, index: usize, wake: bool) {
        let Some((id, model)) = self.chosen(index) else { return };
        let suits = model.state == SandboxState::Running || (model.state == SandboxState::Paused && wake);
        let room = model.state == SandboxState::Running || self.fits(model.cpu);
        let request = api::ExecuteRequest { auto_resume: wake, ..command("echo hello") };
        match self.harness.request(&id, request).await {
            Ok(result) => {
                assert!(suits && room);
                assert_eq!(result.stdout, "hello\n");
                self.models.get_mut(&id).unwrap().wake();
            }
            Err(EngineError::Capacity(CapacityError::NoCapacity(_))) => assert!(suits && !room),
            Err(error) => refused(&model, suits, &error),
        }
    }

    async fn terminate(&mut self, index: usize, commit_fails: bool) {
        let Some((id, model)) = self.chosen(index) else { return };
        let suits = model.state != SandboxState::Terminated;
        if commit_fails && suits {
            self.harness.fail_next_commit();
        }
        match self.harness.engine.sandbox("test", &id).terminate("request").await {
            Ok(_) => {
                assert!(suits && !commit_fails);
                self.models.get_mut(&id).unwrap().state = SandboxState::Terminated;
            }
            Err(EngineError::Host(HostError::Store(_))) => {
                assert!(suits && commit_fails);
                self.models.get_mut(&id).unwrap().quiet_ms = 0;
            }
            Err(error) => refused(&model, suits, &error),
        }
    }

    /// Checks that the engine, its records and the backend agree with the model.
    async fn agrees(&self) {
        let traces = self.harness.driver.traces();
        for (id, model) in &self.models {
            let state = self.harness.state(id).await.unwrap_or(SandboxState::Terminated);
            assert_eq!(state, model.state, "{id}: {model:?}");
            let expected = match (model.state, model.processes) {
                (SandboxState::Terminated, _) => None,
                (SandboxState::Running, _) => Some(Presence::Running),
                (_, true) => Some(Presence::Paused),
                (_, false) => Some(Presence::Stopped),
            };
            assert_eq!(traces.get(id).copied(), expected, "{id}: {model:?}");
        }
        let alive = self.models.values().filter(|model| model.state != SandboxState::Terminated);
        let memory: u64 =
            alive.clone().filter(|model| model.state == SandboxState::Running).count() as u64 * 2048;
        assert_eq!(self.harness.used(), (self.cpu_used(), memory, alive.count() as u64 * 5120));
        assert_eq!(self.harness.driver.violations(), Vec::<String>::new());
    }
}

/// Checks that a refusal is correct for the state of the sandbox.
fn refused(model: &Model, suits: bool, error: &EngineError) {
    assert!(!suits, "{error:?} of {model:?}");
    match error {
        EngineError::Sandbox(SandboxError::NotFound { terminated: Some(_) }) => {
            assert_eq!(model.state, SandboxState::Terminated);
        }
        EngineError::Sandbox(SandboxError::Refused(rules::OperationRefusal::InvalidState {
            state, ..
        })) => {
            assert_eq!(*state, model.state);
        }
        other => panic!("{other:?} of {model:?}"),
    }
}

fn walk(acts: &[Act]) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let capacity = rules::Capacity { cpu: CPU, memory_mb: 1_000_000, disk_mb: 10_000_000 };
        let harness = Harness::new(engine::EngineSettings { capacity, slots: 100, ..settings() }).await;
        let mut walk = Walk { harness, models: BTreeMap::new(), order: Vec::new() };
        for act in acts {
            walk.step(act, false).await;
            walk.agrees().await;
        }
        walk.harness.assert_clean().await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_does_what_the_rules_say(acts in proptest::collection::vec(act(), 1..40)) {
        walk(&acts);
    }
}
