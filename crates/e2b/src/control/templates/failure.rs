//! Words the failure of a build as clients of E2B expect it. Pure.

use api::TemplateError;
use serde_json::{Value, json};

use super::recipe;

/// The steps that clients trace to the call that chose the base, and to the one that set the start command.
const BASE_STEP: &str = "base";
const START_STEP: &str = "finalize";
/// How the agent refuses a process of an unknown user.
const NO_USER: &str = "the sandbox has no user ";
/// Clients know only users.
const NO_GROUP: &str = "the sandbox has no group ";

/// What a build was doing when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildStage {
    Steps,
    /// Only the start command was left to do.
    Start,
}

/// The reason of a failure. Clients know the step, but not the lines of the Dockerfile.
pub fn reason(error: &TemplateError, dockerfile: &str, stage: BuildStage) -> Value {
    let TemplateError { message, line } = error;
    let Some(line) = *line else {
        return match stage {
            BuildStage::Start => json!({ "message": message, "step": START_STEP, "logEntries": [] }),
            BuildStage::Steps => json!({ "message": message, "logEntries": [] }),
        };
    };
    let message = message.strip_prefix(&format!("line {line}: ")).unwrap_or(message);
    let line = line as usize;
    let message = match recipe::command_at(dockerfile, line) {
        Some(command) => format!("failed to run command '{command}': {}", cause(message)),
        None => message.to_owned(),
    };
    let step =
        recipe::step_at(dockerfile, line).map_or_else(|| BASE_STEP.to_owned(), |step| step.to_string());
    json!({ "message": message, "step": step, "logEntries": [] })
}

fn cause(message: &str) -> String {
    match message.strip_prefix(NO_USER).or_else(|| message.strip_prefix(NO_GROUP)) {
        Some(user) => format!("command failed: unauthenticated: invalid username: '{user}'"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCKERFILE: &str = r#"FROM a
USER user
WORKDIR /w
# step 1
USER root123
RUN ["/bin/bash","-l","-c","echo \"a\"\nwhoami"]
USER user
# step 2
COPY --chown=user ["0123abcd/a","b"]
"#;

    fn worded(message: &str, line: Option<u32>, stage: BuildStage) -> (String, Option<String>) {
        let error = TemplateError { message: message.to_owned(), line };
        let reason = reason(&error, DOCKERFILE, stage);
        let text = |name: &str| reason[name].as_str().map(str::to_owned);
        (text("message").unwrap(), text("step"))
    }

    #[test]
    fn a_failed_command_is_named() {
        let failed = "failed to run command 'echo \"a\"\nwhoami': ";
        for (message, expected) in [
            ("line 6: the command exited with code 3", "the command exited with code 3"),
            (
                "line 6: the sandbox has no user root123",
                "command failed: unauthenticated: invalid username: 'root123'",
            ),
        ] {
            assert_eq!(
                worded(message, Some(6), BuildStage::Steps),
                (format!("{failed}{expected}"), Some("1".to_owned()))
            );
        }
    }

    #[test]
    fn other_failures_have_their_steps() {
        for (message, line, stage, expected, step) in [
            ("line 9: no such file", Some(9), BuildStage::Steps, "no such file", Some("2")),
            ("line 1: no such image", Some(1), BuildStage::Steps, "no such image", Some("base")),
            ("the start command ended", None, BuildStage::Start, "the start command ended", Some("finalize")),
            ("the build was cancelled", None, BuildStage::Steps, "the build was cancelled", None),
        ] {
            let found = worded(message, line, stage);
            assert_eq!(found, (expected.to_owned(), step.map(str::to_owned)));
        }
    }
}
