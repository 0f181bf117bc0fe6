//! The command that a sandbox is for, as the command of a container is in Docker. Called by `logs` and `ls`.

use sandboxd_client::{ExecutionState, ExecutionView};

/// The newest command in the background that runs, or else the newest that has ended: a server counts more than the commands that were run
/// beside it. Without one, the newest other command that runs, or else the newest. A terminal does not count; `sbx shell --attach` attaches
/// to it. `all`: newest first, as the service lists them.
pub fn main_command(all: &[ExecutionView]) -> Option<&ExecutionView> {
    let commands = || all.iter().filter(|view| view.terminal.is_none());
    let is_running = |view: &&ExecutionView| view.state == ExecutionState::Running;
    let background = commands().filter(|view| is_background(view));
    let other = commands().find(is_running).or_else(|| commands().next());
    background.clone().find(is_running).or_else(|| background.clone().next()).or(other)
}

/// `exec` gives each command that it waits for a time limit; one that is started detached has none, unless its user sets one.
pub fn is_background(view: &ExecutionView) -> bool {
    view.terminal.is_none() && view.timeout_ms.is_none()
}

#[cfg(test)]
pub mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// An execution with some fields set.
    pub fn view(changes: &Value) -> ExecutionView {
        let mut view = json!({
            "executionId": "ex_00000000000000000000", "sandboxId": "sb_00000000", "state": "exited", "command": "make",
            "runId": "", "timeoutMs": null, "stdinOpen": false, "startedAt": "2023-11-14T22:13:20Z",
            "endedAt": null, "exitCode": null, "signal": null, "durationMs": null, "outputEnd": "0.0",
            "outputStart": "0.0",
        });
        for (name, value) in changes.as_object().unwrap() {
            view[name] = value.clone();
        }
        serde_json::from_value(view).unwrap()
    }

    #[test]
    fn a_command_in_the_background_counts_more_than_those_beside_it() {
        let server = |state: &str| json!({ "command": "server", "state": state });
        let beside = |state: &str| json!({ "command": "beside", "state": state, "timeoutMs": 86_400_000 });
        let terminal =
            json!({ "command": "bash", "state": "running", "terminal": { "cols": 80, "rows": 24 } });
        for (newest_first, expected) in [
            (vec![beside("exited"), server("running")], Some("server")),
            (vec![beside("running"), server("exited")], Some("server")),
            (vec![server("exited"), beside("exited")], Some("server")),
            (vec![terminal.clone(), beside("exited")], Some("beside")),
            (vec![terminal], None),
            (vec![], None),
        ] {
            let all: Vec<ExecutionView> = newest_first.iter().map(view).collect();
            let found = main_command(&all).map(|view| view.command.as_str());
            assert_eq!(found, expected, "{newest_first:?}");
        }
        let named = |id: &str, state: &str| view(&json!({ "executionId": id, "state": state }));
        let all = [
            named("ex_00000000000000000003", "exited"),
            named("ex_00000000000000000002", "running"),
            named("ex_00000000000000000001", "running"),
        ];
        assert_eq!(main_command(&all).unwrap().execution_id.as_str(), "ex_00000000000000000002");
    }
}
