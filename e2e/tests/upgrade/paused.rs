//! Paused sandboxes stay paused. Frozen processes and executions continue after a resume; without processes, a sandbox starts
//! again on its disk.

use e2e::service::Client;
use serde_json::json;

use crate::executions::Counting;
use crate::running::Background;
use crate::{
    Installation, action_path, create_sandbox, lose_processes, output, read, run_action, small, state, write,
};

pub struct Paused {
    id: String,
    background: Background,
    counting: Counting,
}

impl Paused {
    pub async fn prepare(client: &Client) -> Self {
        let id = create_sandbox(client, &small()).await;
        write(client, &id, "kept", b"while paused").await;
        let background = Background::start(client, &id).await;
        let counting = Counting::start(client, &id).await;
        run_action(client, &id, "pause").await;
        Self { id, background, counting }
    }

    pub async fn verify(self, client: &Client) {
        let Self { id, background, counting } = self;
        assert_eq!(state(client, &id).await, "paused");
        let asleep = json!({ "command": "true", "autoResume": false });
        client
            .post(&action_path(&id, "execute"), &asleep)
            .await
            .unwrap()
            .error(409, "INVALID_STATE")
            .unwrap();
        assert_eq!(counting.execution.view(client).await["state"], "running");
        let resumed = run_action(client, &id, "resume").await;
        assert!(resumed["pausedDurationMs"].as_u64().unwrap() > 0, "{resumed}");
        background.verify(client, &id).await;
        counting.verify(client).await;
        assert_eq!(read(client, &id, "kept").await, b"while paused");
        // A command resumes it too.
        run_action(client, &id, "pause").await;
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
    pub async fn prepare(installation: &Installation, client: &Client) -> Self {
        let id = create_sandbox(client, &small()).await;
        write(client, &id, "kept", b"on the disk").await;
        output(client, &id, "sync").await;
        lose_processes(installation, client, &id).await;
        Self { id }
    }

    pub async fn verify(&self, client: &Client) {
        assert_eq!(state(client, &self.id).await, "paused");
        assert_eq!(output(client, &self.id, "cat kept").await, "on the disk");
        run_action(client, &self.id, "pause").await;
        run_action(client, &self.id, "resume").await;
        assert_eq!(read(client, &self.id, "kept").await, b"on the disk");
    }
}
