//! Paused sandboxes stay paused. Frozen processes and executions continue after a resume; without processes, a sandbox starts
//! again on its disk.

use e2e::service::Client;
use serde_json::json;

use crate::executions::Counting;
use crate::running::Background;
use crate::{World, created, lose_processes, order, output, read, small, state, verb, write};

pub struct Paused {
    id: String,
    background: Background,
    counting: Counting,
}

impl Paused {
    pub async fn prepare(client: &Client) -> Self {
        let id = created(client, &small()).await;
        write(client, &id, "kept", b"while paused").await;
        let background = Background::start(client, &id).await;
        let counting = Counting::start(client, &id).await;
        order(client, &id, "pause").await;
        Self { id, background, counting }
    }

    pub async fn verify(self, client: &Client) {
        let Self { id, background, counting } = self;
        assert_eq!(state(client, &id).await, "paused");
        let asleep = json!({ "command": "true", "autoResume": false });
        client.post(&verb(&id, "execute"), &asleep).await.unwrap().error(409, "INVALID_STATE").unwrap();
        assert_eq!(counting.execution.view(client).await["state"], "running");
        let resumed = order(client, &id, "resume").await;
        assert!(resumed["pausedDurationMs"].as_u64().unwrap() > 0, "{resumed}");
        background.verify(client, &id).await;
        counting.verify(client).await;
        assert_eq!(read(client, &id, "kept").await, b"while paused");
        // A command resumes it too.
        order(client, &id, "pause").await;
        assert_eq!(output(client, &id, "cat kept").await, "while paused");
        assert_eq!(state(client, &id).await, "running");
        background.verify(client, &id).await;
    }
}

/// A sandbox whose processes had been lost before the upgrade.
pub struct Stopped {
    id: String,
}

impl Stopped {
    pub async fn prepare(world: &World, client: &Client) -> Self {
        let id = created(client, &small()).await;
        write(client, &id, "kept", b"on the disk").await;
        output(client, &id, "sync").await;
        lose_processes(world, client, &id).await;
        Self { id }
    }

    pub async fn verify(&self, client: &Client) {
        assert_eq!(state(client, &self.id).await, "paused");
        assert_eq!(output(client, &self.id, "cat kept").await, "on the disk");
        order(client, &self.id, "pause").await;
        order(client, &self.id, "resume").await;
        assert_eq!(read(client, &self.id, "kept").await, b"on the disk");
    }
}
