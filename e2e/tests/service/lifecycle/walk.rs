//! A random walk over the lifecycle: several sandboxes, every operation in every state, compared with a model. At the end the
//! host must have exactly the expected resources. The seed is printed; `SANDBOXD_WALK_SEED` repeats a walk.

use std::collections::BTreeMap;

use e2e::Expected;
use e2e::service::{Client, Service, ServiceOptions};
use hyper::Method;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use crate::{SANDBOXES, action_path, number, sandbox_path, small, text, with};

const STEPS: u32 = 350;
const MAX_SANDBOXES: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModelState {
    Running,
    Paused,
    Terminated,
}

impl ModelState {
    fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Terminated => "terminated",
        }
    }
}

struct Sandbox {
    state: ModelState,
    /// The number of commands that have written a mark.
    marks: u32,
    tag: String,
}

struct Walk {
    client: Client,
    sandboxes: BTreeMap<String, Sandbox>,
    random: StdRng,
}

#[tokio::test]
async fn a_random_walk_agrees_with_the_model() {
    let seed = match std::env::var("SANDBOXD_WALK_SEED") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => rand::rng().random::<u64>(),
    };
    println!("SANDBOXD_WALK_SEED={seed}");
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let mut walk = Walk { client, sandboxes: BTreeMap::new(), random: StdRng::seed_from_u64(seed) };
    for step in 0..STEPS {
        walk.step().await;
        // Restart the daemon, cleanly or by SIGKILL.
        if step % 120 == 60 {
            if walk.random.random::<bool>() {
                service.restart().await.unwrap();
            } else {
                service.kill().unwrap();
                service.start_process().await.unwrap();
            }
            walk.client = walk.client.with_own_connections();
            walk.verify().await;
        }
    }
    walk.verify().await;
    let alive = |sandbox: &Sandbox| sandbox.state != ModelState::Terminated;
    let alive =
        walk.sandboxes.iter().filter(|(_, sandbox)| alive(sandbox)).map(|(id, _)| id.parse().unwrap());
    let expected = Expected { alive: alive.collect(), daemon: service.pid(), ..Expected::default() };
    assert_eq!(e2e::wait_for_resources(&service.layout, &expected).await, Vec::<String>::new());
}

impl Walk {
    async fn step(&mut self) {
        let living =
            self.sandboxes.values().filter(|sandbox| sandbox.state != ModelState::Terminated).count();
        if living == 0 || (living < MAX_SANDBOXES && self.random.random_range(0..8) == 0) {
            return self.create().await;
        }
        // Sometimes choose a terminated sandbox.
        let gone = self.random.random_range(0..12) == 0;
        let fits = |sandbox: &Sandbox| (sandbox.state == ModelState::Terminated) == gone;
        let ids: Vec<String> =
            self.sandboxes.iter().filter(|(_, sandbox)| fits(sandbox)).map(|(id, _)| id.clone()).collect();
        if ids.is_empty() {
            return;
        }
        let id = ids[self.random.random_range(0..ids.len())].clone();
        match self.random.random_range(0..14) {
            0..=2 => self.pause(&id).await,
            3..=5 => self.resume(&id).await,
            6..=8 => self.execute(&id).await,
            9 => self.execute_without_resuming(&id).await,
            10 => self.stream(&id).await,
            11 => self.get(&id).await,
            12 => self.list().await,
            _ => self.delete(&id).await,
        }
    }

    fn state(&self, id: &str) -> ModelState {
        self.sandboxes[id].state
    }

    fn set(&mut self, id: &str, state: ModelState) {
        self.sandboxes.get_mut(id).unwrap().state = state;
    }

    async fn create(&mut self) {
        let tag = format!("tag-{}", self.random.random_range(0..3));
        let body = with(small(), "metadata", json!({ "tag": tag }));
        let sandbox = self.client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap();
        assert_eq!(sandbox["state"], "running");
        self.sandboxes.insert(text(&sandbox["id"]), Sandbox { state: ModelState::Running, marks: 0, tag });
    }

    async fn pause(&mut self, id: &str) {
        let answer = self.client.post_empty(&action_path(id, "pause")).await.unwrap();
        match self.state(id) {
            ModelState::Running => {
                number(&answer.is(200).unwrap()["runtimeDurationMs"]);
                self.set(id, ModelState::Paused);
            }
            ModelState::Paused => drop(answer.error(409, "INVALID_STATE").unwrap()),
            ModelState::Terminated => drop(answer.error(404, "SANDBOX_NOT_FOUND").unwrap()),
        }
    }

    async fn resume(&mut self, id: &str) {
        let answer = self.client.post_empty(&action_path(id, "resume")).await.unwrap();
        match self.state(id) {
            ModelState::Paused => {
                number(&answer.is(200).unwrap()["pausedDurationMs"]);
                self.set(id, ModelState::Running);
            }
            ModelState::Running => drop(answer.error(409, "INVALID_STATE").unwrap()),
            ModelState::Terminated => drop(answer.error(404, "SANDBOX_NOT_FOUND").unwrap()),
        }
    }

    /// Each command writes a mark and counts all marks; none may be lost.
    async fn execute(&mut self, id: &str) {
        let body = json!({ "command": "echo x >> /marks; wc -l < /marks" });
        let answer = self.client.post(&action_path(id, "execute"), &body).await.unwrap();
        if self.state(id) == ModelState::Terminated {
            answer.error(404, "SANDBOX_NOT_FOUND").unwrap();
            return;
        }
        let sandbox = self.sandboxes.get_mut(id).unwrap();
        (sandbox.state, sandbox.marks) = (ModelState::Running, sandbox.marks + 1);
        assert_eq!(answer.is(200).unwrap()["stdout"], format!("{}\n", sandbox.marks));
    }

    async fn execute_without_resuming(&mut self, id: &str) {
        let body = json!({ "command": "cat /marks 2>/dev/null | wc -l", "autoResume": false });
        let answer = self.client.post(&action_path(id, "execute"), &body).await.unwrap();
        match self.state(id) {
            ModelState::Running => {
                assert_eq!(answer.is(200).unwrap()["stdout"], format!("{}\n", self.sandboxes[id].marks));
            }
            ModelState::Paused => drop(answer.error(409, "INVALID_STATE").unwrap()),
            ModelState::Terminated => drop(answer.error(404, "SANDBOX_NOT_FOUND").unwrap()),
        }
    }

    async fn stream(&mut self, id: &str) {
        if self.state(id) == ModelState::Terminated {
            return;
        }
        let body = json!({ "command": "echo x >> /marks; wc -l < /marks" });
        let events =
            self.client.call(Method::POST, &action_path(id, "execute")).json(&body).stream().await.unwrap();
        let events = events.rest().await.unwrap();
        let sandbox = self.sandboxes.get_mut(id).unwrap();
        (sandbox.state, sandbox.marks) = (ModelState::Running, sandbox.marks + 1);
        assert_eq!((events[0].data.clone(), events[1].name.as_str()), (sandbox.marks.to_string(), "done"));
    }

    async fn get(&mut self, id: &str) {
        let answer = self.client.get(&sandbox_path(id)).await.unwrap();
        match self.state(id) {
            ModelState::Terminated => drop(answer.error(404, "SANDBOX_NOT_FOUND").unwrap()),
            state => {
                let sandbox = answer.is(200).unwrap();
                assert_eq!(sandbox["state"], state.name());
                assert_eq!(sandbox.get("pausedAt").is_some(), state == ModelState::Paused);
            }
        }
    }

    async fn delete(&mut self, id: &str) {
        let answer = self.client.delete(&sandbox_path(id)).await.unwrap();
        if self.state(id) == ModelState::Terminated {
            answer.error(404, "SANDBOX_NOT_FOUND").unwrap();
        } else {
            number(&answer.is(200).unwrap()["totalRuntimeMs"]);
            self.set(id, ModelState::Terminated);
        }
    }

    /// Compares a list with a random filter to the model.
    async fn list(&mut self) {
        let state = [None, Some(ModelState::Running), Some(ModelState::Paused), Some(ModelState::Terminated)]
            [self.random.random_range(0..4)];
        let tag = self.random.random::<bool>().then(|| format!("tag-{}", self.random.random_range(0..3)));
        let state_filter = state.map(|state| format!("&state={}", state.name())).unwrap_or_default();
        let tag_filter = tag.as_ref().map(|tag| format!("&metadata.tag={tag}")).unwrap_or_default();
        let list = self
            .client
            .get(&format!("{SANDBOXES}?limit=100{state_filter}{tag_filter}"))
            .await
            .unwrap()
            .is(200)
            .unwrap();
        let mut found: Vec<(String, String)> = list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| (text(&item["id"]), text(&item["state"])))
            .collect();
        found.sort();
        let fits = |sandbox: &Sandbox| {
            state.is_none_or(|state| sandbox.state == state)
                && tag.as_ref().is_none_or(|tag| sandbox.tag == *tag)
        };
        let expected: Vec<(String, String)> = self
            .sandboxes
            .iter()
            .filter(|(_, sandbox)| fits(sandbox))
            .map(|(id, sandbox)| (id.clone(), sandbox.state.name().to_owned()))
            .collect();
        assert_eq!(list["pagination"]["total"], json!(expected.len()));
        assert_eq!(found, expected.into_iter().take(100).collect::<Vec<_>>());
    }

    async fn verify(&mut self) {
        let ids: Vec<String> = self.sandboxes.keys().cloned().collect();
        for id in ids {
            self.get(&id).await;
        }
        self.list().await;
    }
}
