//! `sbx create`: creates a sandbox and prints its id.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Result;
use base::SetSome;
use sandboxd_client::{Client, Create, OnTimeout, SandboxView};

use super::command_line;
use super::creation::{Creation, CreationOptions, create_sandbox};
use super::expose::publish;
use super::variables::variables;
use crate::cli::CreateArguments;
use crate::interrupt::Interrupt;
use crate::output::{self, OutputFormat};
use crate::units::time_text;

/// Prints the id of the new sandbox, and on a terminal when it will end.
pub async fn create(client: &Client, format: OutputFormat, arguments: CreateArguments) -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let env = variables(&arguments.new.env_file, &arguments.new.env)?;
    let request = |client: &Client, image: &str| {
        let mut create = command_line::create_request(client, image, &arguments.new, &env);
        create = create.set_some(arguments.timeout, Create::timeout);
        if arguments.pause_on_timeout {
            create = create.on_timeout(OnTimeout::Pause);
        }
        if arguments.no_auto_resume {
            create = create.auto_resume(false);
        }
        create = create.set_some(arguments.idle, Create::idle_timeout);
        create
    };
    let (image, wait) = (arguments.image.as_str(), arguments.new.wait);
    let options = CreationOptions { client, image, wait, format, interrupt: &interrupt };
    let sandbox = match create_sandbox(options, request).await? {
        Creation::Sandbox(sandbox) => sandbox,
        Creation::Interrupted(code) => return Ok(ExitCode::from(code)),
    };
    let code = format.print_id(&sandbox.known(), sandbox.id())?;
    publish(&client.sandbox(sandbox.id().as_str())?, &arguments.new).await?;
    // For a person who has not set a time; scripts read standard error, too.
    let is_told =
        format == OutputFormat::Plain && arguments.timeout.is_none() && std::io::stderr().is_terminal();
    if let Some(text) = sandbox.known().filter(|_| is_told).and_then(|view| end_text(&view, Pausable::Yes)) {
        output::note(&text);
    }
    Ok(code)
}

/// Whether the command that created a sandbox has an option that pauses it at its timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pausable {
    Yes,
    No,
}

/// When the sandbox will end, and what changes that. `None` if it is kept.
pub fn end_text(view: &SandboxView, pausable: Pausable) -> Option<String> {
    if view.on_timeout == OnTimeout::Pause {
        return None;
    }
    let (name, time) = (view.name.as_deref().unwrap_or(view.id.as_str()), time_text(view.timeout_ms));
    let kept = match pausable {
        Pausable::Yes => ", and --pause-on-timeout of 'sbx create' keeps it paused",
        Pausable::No => ", up to 24h",
    };
    Some(format!("sbx: the sandbox ends in {time}; 'sbx timeout 1h {name}' sets another time{kept}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(on_timeout: &str, name: Option<&str>) -> SandboxView {
        let json = serde_json::json!({"id": "sb_abcdefgh", "state": "running", "image": "a", "env": {}, "workdir": "/",
            "resources": {"cpu": 2, "memoryMb": 4096, "diskMb": 10240}, "timeoutMs": 300_000, "idleTimeoutMs": 0,
            "onTimeout": on_timeout, "metadata": {}, "network": {"egress": {"allow": [], "default": "allow"}},
            "createdAt": "1970-01-01T00:00:00Z", "name": name});
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn the_end_of_a_sandbox_is_told_unless_it_is_kept() {
        let end_text = |view| end_text(&view, Pausable::Yes);
        let text = end_text(view("terminate", Some("web"))).unwrap();
        assert!(text.contains("ends in 5m") && text.contains("'sbx timeout 1h web'"), "{text}");
        assert!(text.contains("--pause-on-timeout"), "{text}");
        assert!(end_text(view("terminate", None)).unwrap().contains("1h sb_abcdefgh"));
        assert_eq!(end_text(view("pause", None)), None);
    }

    #[test]
    fn an_option_that_the_command_does_not_have_is_not_advised() {
        let text = super::end_text(&view("terminate", Some("web")), Pausable::No).unwrap();
        assert!(text.contains("up to 24h") && !text.contains("--pause"), "{text}");
    }
}
