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
    if let Some(text) = sandbox.known().filter(|_| is_told).as_ref().and_then(end_text) {
        output::note(&text);
    }
    Ok(code)
}

/// When the sandbox will end, and what changes that. `None` if it is kept.
pub fn end_text(view: &SandboxView) -> Option<String> {
    if view.on_timeout == OnTimeout::Pause {
        return None;
    }
    let (name, time) = (view.name.as_deref().unwrap_or(view.id.as_str()), time_text(view.timeout_ms));
    Some(format!(
        "sbx: the sandbox ends in {time}; 'sbx timeout 1h {name}' sets another time, and --pause-on-timeout of 'sbx create' keeps it paused"
    ))
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
        let text = end_text(&view("terminate", Some("web"))).unwrap();
        assert!(text.contains("ends in 5m") && text.contains("'sbx timeout 1h web'"), "{text}");
        assert!(end_text(&view("terminate", None)).unwrap().contains("1h sb_abcdefgh"));
        assert_eq!(end_text(&view("pause", None)), None);
    }
}
