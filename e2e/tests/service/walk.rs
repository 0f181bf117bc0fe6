//! A random walk over the life cycle: several sandboxes, every operation in every state, against a model of section 3; and at
//! the end the host has exactly what the model says. A seed is printed; `SANDBOXD_WALK_SEED` repeats it.

use std::collections::BTreeMap;

use e2e::Expected;
use e2e::service::{Client, Service, ServiceOptions};
use hyper::Method;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use crate::{SANDBOXES, at, number, small, text, verb, with};

const STEPS: u32 = 350;
const MOST: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Model {
    Running,
    Paused,
    Terminated,
}

impl Model {
    fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Terminated => "terminated",
        }
    }
}

struct Sandbox {
    state: Model,
    /// How many commands have left their mark inside.
    marks: u32,
    tag: String,
}

struct Walk {
    client: Client,
    sandboxes: BTreeMap<String, Sandbox>,
    random: StdRng,
}

#[tokio::test]
async fn a_random_walk_agrees_with_the_table() {
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
        // The life cycle goes on over a restart, in good order or not.
        if step % 120 == 60 {
            if walk.random.random::<bool>() {
                service.restart().await.unwrap();
            } else {
                service.kill().unwrap();
                service.boot().await.unwrap();
            }
            walk.client = walk.client.apart();
            walk.agrees().await;
        }
    }
    walk.agrees().await;
    let alive = |sandbox: &Sandbox| sandbox.state != Model::Terminated;
    let alive =
        walk.sandboxes.iter().filter(|(_, sandbox)| alive(sandbox)).map(|(id, _)| id.parse().unwrap());
    let expected = Expected { alive: alive.collect(), daemon: service.pid(), ..Expected::default() };
    assert_eq!(e2e::settled(&service.place, &expected).await, Vec::<String>::new());
}

impl Walk {
    async fn step(&mut self) {
        let living = self.sandboxes.values().filter(|sandbox| sandbox.state != Model::Terminated).count();
        if living == 0 || (living < MOST && self.random.random_range(0..8) == 0) {
            return self.create().await;
        }
        // Now and then one that is gone.
        let gone = self.random.random_range(0..12) == 0;
        let fits = |sandbox: &Sandbox| (sandbox.state == Model::Terminated) == gone;
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

    fn state(&self, id: &str) -> Model {
        self.sandboxes[id].state
    }

    fn set(&mut self, id: &str, state: Model) {
        self.sandboxes.get_mut(id).unwrap().state = state;
    }

    async fn create(&mut self) {
        let tag = format!("tag-{}", self.random.random_range(0..3));
        let body = with(small(), "metadata", json!({ "tag": tag }));
        let sandbox = self.client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap();
        assert_eq!(sandbox["state"], "running");
        self.sandboxes.insert(text(&sandbox["id"]), Sandbox { state: Model::Running, marks: 0, tag });
    }

    async fn pause(&mut self, id: &str) {
        let answer = self.client.order(&verb(id, "pause")).await.unwrap();
        match self.state(id) {
            Model::Running => {
                number(&answer.is(200).unwrap()["runtimeDurationMs"]);
                self.set(id, Model::Paused);
            }
            Model::Paused => drop(answer.error(409, "INVALID_STATE").unwrap()),
            Model::Terminated => drop(answer.error(404, "SANDBOX_NOT_FOUND").unwrap()),
        }
    }

    async fn resume(&mut self, id: &str) {
        let answer = self.client.order(&verb(id, "resume")).await.unwrap();
        match self.state(id) {
            Model::Paused => {
                number(&answer.is(200).unwrap()["pausedDurationMs"]);
                self.set(id, Model::Running);
            }
            Model::Running => drop(answer.error(409, "INVALID_STATE").unwrap()),
            Model::Terminated => drop(answer.error(404, "SANDBOX_NOT_FOUND").unwrap()),
        }
    }

    /// Each command leaves a mark and counts those there are: none may be lost, whatever came between.
    async fn execute(&mut self, id: &str) {
        let body = json!({ "command": "echo x >> /marks; wc -l < /marks" });
        let answer = self.client.post(&verb(id, "execute"), &body).await.unwrap();
        if self.state(id) == Model::Terminated {
            answer.error(404, "SANDBOX_NOT_FOUND").unwrap();
            return;
        }
        let sandbox = self.sandboxes.get_mut(id).unwrap();
        (sandbox.state, sandbox.marks) = (Model::Running, sandbox.marks + 1);
        assert_eq!(answer.is(200).unwrap()["stdout"], format!("{}\n", sandbox.marks));
    }

    async fn execute_without_resuming(&mut self, id: &str) {
        let body = json!({ "command": "cat /marks 2>/dev/null | wc -l", "autoResume": false });
        let answer = self.client.post(&verb(id, "execute"), &body).await.unwrap();
        match self.state(id) {
            Model::Running => {
                assert_eq!(answer.is(200).unwrap()["stdout"], format!("{}\n", self.sandboxes[id].marks));
            }
            Model::Paused => drop(answer.error(409, "INVALID_STATE").unwrap()),
            Model::Terminated => drop(answer.error(404, "SANDBOX_NOT_FOUND").unwrap()),
        }
    }

    async fn stream(&mut self, id: &str) {
        if self.state(id) == Model::Terminated {
            return;
        }
        let body = json!({ "command": "echo x >> /marks; wc -l < /marks" });
        let events = self.client.call(Method::POST, &verb(id, "execute")).json(&body).stream().await.unwrap();
        let events = events.rest().await.unwrap();
        let sandbox = self.sandboxes.get_mut(id).unwrap();
        (sandbox.state, sandbox.marks) = (Model::Running, sandbox.marks + 1);
        assert_eq!((events[0].data.clone(), events[1].name.as_str()), (sandbox.marks.to_string(), "done"));
    }

    async fn get(&mut self, id: &str) {
        let answer = self.client.get(&at(id)).await.unwrap();
        match self.state(id) {
            Model::Terminated => drop(answer.error(404, "SANDBOX_NOT_FOUND").unwrap()),
            state => {
                let sandbox = answer.is(200).unwrap();
                assert_eq!(sandbox["state"], state.name());
                assert_eq!(sandbox.get("pausedAt").is_some(), state == Model::Paused);
            }
        }
    }

    async fn delete(&mut self, id: &str) {
        let answer = self.client.delete(&at(id)).await.unwrap();
        if self.state(id) == Model::Terminated {
            answer.error(404, "SANDBOX_NOT_FOUND").unwrap();
        } else {
            number(&answer.is(200).unwrap()["totalRuntimeMs"]);
            self.set(id, Model::Terminated);
        }
    }

    /// A random filter finds what the model does.
    async fn list(&mut self) {
        let state = [None, Some(Model::Running), Some(Model::Paused), Some(Model::Terminated)]
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

    async fn agrees(&mut self) {
        let ids: Vec<String> = self.sandboxes.keys().cloned().collect();
        for id in ids {
            self.get(&id).await;
        }
        self.list().await;
    }
}
