//! A running sandbox: its files, processes and executions.

use e2e::service::{Client, Events};
use hyper::Method;
use serde_json::json;

use crate::executions::{Counting, Ended, Execution};
use crate::{
    Installation, action_path, create_sandbox, lose_processes, output, read, run_action, run_command,
    sandbox_path, small, state, wait_until, with, write,
};

/// A background process that appends to a file.
pub struct Background {
    pid: String,
}

impl Background {
    pub async fn start(client: &Client, id: &str) -> Self {
        let command = "setsid bash -c 'while :; do echo x >> /beats; sleep 0.05; done' </dev/null >/dev/null 2>&1 & echo $!";
        Self { pid: output(client, id, command).await.trim().to_owned() }
    }

    /// The same process is still running.
    pub async fn verify(&self, client: &Client, id: &str) {
        let command = format!("kill -0 {} && wc -l < /beats", self.pid);
        let beats = async || output(client, id, &command).await.trim().parse::<u64>().unwrap();
        let before = beats().await;
        wait_until("the background process writes", async || beats().await > before).await;
    }
}

pub struct Running {
    id: String,
    content: Vec<u8>,
    background: Background,
    counting: Counting,
    ended: Ended,
    cat: Execution,
    terminal: Execution,
    trap: Execution,
    tree: Execution,
    // Its command belongs to this stream and ends with it.
    _attached: Events,
}

impl Running {
    pub async fn prepare(client: &Client) -> Self {
        let body = with(small(), "env", json!({ "GREETING": "hello" }));
        let body = with(body, "metadata", json!({ "user": "4711" }));
        let id = create_sandbox(client, &with(body, "workdir", json!("/srv/app"))).await;
        let content: Vec<u8> = (0..1_000_003_u32).flat_map(|n| (n % 65_521).to_le_bytes()).collect();
        write(client, &id, "notes/content", &content).await;
        let background = Background::start(client, &id).await;
        let ended = Ended::prepare(client, &id).await;
        let cat = Execution::start(client, &id, "cat").await;
        cat.write(client, "", "before\n").await;
        cat.prints(client, "before\n").await;
        let terminal = Execution::terminal(client, &id).await;
        terminal.write(client, "", "echo be''fore\r").await;
        terminal.prints(client, "before").await;
        let trap = "trap 'echo caught; exit 9' INT; echo set; while :; do sleep 0.05; done";
        let trap = Execution::start(client, &id, trap).await;
        trap.prints(client, "set").await;
        let tree = Execution::start(client, &id, "setsid sleep 4322 & sleep 4322").await;
        let attached = json!({ "command": "echo begun; exec sleep 4321" });
        let own_client = client.with_own_connections();
        let call = own_client.call(Method::POST, &action_path(&id, "execute")).json(&attached);
        let mut attached = call.stream().await.unwrap();
        assert_eq!(attached.next().await.unwrap().unwrap().data, "begun");
        let counting = Counting::start(client, &id).await;
        Self { id, content, background, counting, ended, cat, terminal, trap, tree, _attached: attached }
    }

    /// Reads the remaining output after the end of the daemon.
    pub async fn read_the_rest(&mut self) {
        self.counting.read_the_rest().await;
    }

    pub async fn verify(self, installation: &Installation, client: &Client) {
        let id = &self.id;
        assert_eq!(state(client, id).await, "running");
        self.background.verify(client, id).await;
        self.counting.verify(client).await;
        self.ended.verify(client).await;
        self.cat.write(client, "?close=true", "after\n").await;
        assert_eq!(self.cat.ended(client).await["exitCode"], 0);
        assert_eq!(self.cat.output(client, "").await["stdout"], "before\nafter\n");
        self.terminal.write(client, "", "echo af''ter; exit 7\r").await;
        assert_eq!(self.terminal.ended(client).await["exitCode"], 7);
        self.terminal.prints(client, "after").await;
        let signal = json!({ "signal": "SIGINT" });
        client.post(&self.trap.path("/signal"), &signal).await.unwrap().is(200).unwrap();
        assert_eq!(self.trap.ended(client).await["exitCode"], 9);
        self.trap.prints(client, "caught").await;
        assert_eq!(output(client, id, "pgrep -fxc 'sleep 4322'").await, "2\n");
        let cancelled = client.delete(&self.tree.path("")).await.unwrap().is(200).unwrap();
        assert_eq!(cancelled["signal"], "SIGKILL");
        let none = async |command: &str| {
            run_command(client, id, json!({ "command": command })).await["stdout"] == "0\n"
        };
        assert!(none("pgrep -fxc 'sleep 4322'").await, "a cancelled execution has processes");
        wait_until("the command of the lost client has ended", async || {
            none("pgrep -fxc 'sleep 4321'").await
        })
        .await;

        assert_eq!(output(client, id, "echo $GREETING; pwd").await, "hello\n/srv/app\n");
        assert!(read(client, id, "notes/content").await == self.content);
        write(client, id, "notes/new", b"of the current daemon").await;
        assert_eq!(
            output(client, id, "cat notes/new; ls notes").await,
            "of the current daemoncontent\nnew\n"
        );
        let tar = client.get(&action_path(id, "files/tar?path=notes")).await.unwrap();
        assert_eq!((tar.status, tar.body.len() > self.content.len()), (200, true));
        Ended::prepare(client, id).await.verify(client).await;
        run_action(client, id, "pause").await;
        run_action(client, id, "resume").await;
        self.background.verify(client, id).await;
        restart_after_process_loss(installation, client, id).await;
        assert!(read(client, id, "notes/content").await == self.content);
    }
}

/// It starts again on its disk, now with the current agent.
async fn restart_after_process_loss(installation: &Installation, client: &Client, id: &str) {
    lose_processes(installation, client, id).await;
    run_action(client, id, "resume").await;
    assert_eq!(output(client, id, "cat notes/new; pgrep -c bash || true").await, "of the current daemon1\n");
    let view = client.get(&sandbox_path(id)).await.unwrap().is(200).unwrap();
    assert_eq!(view["metadata"], json!({ "user": "4711" }));
}
