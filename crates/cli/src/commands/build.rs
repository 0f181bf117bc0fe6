//! `sbx build`: builds a template and shows the log. Ctrl-C cancels the build.

use std::io::{Read, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use futures_util::TryStreamExt;
use sandboxd_client::{BuildOutput, BuildTemplate, Client, TemplateState, TemplateView};

use super::command_line::env_variable;
use crate::cli::BuildArguments;
use crate::interrupt::Interrupt;
use crate::output::{self, note};

const STDIN: &str = "-";

pub async fn build(client: &Client, json: bool, arguments: BuildArguments) -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let accepted = request(client, &arguments)?.await?;
    let id = accepted.id.as_str();
    if arguments.detach {
        return shown(&accepted, json).map(|()| ExitCode::SUCCESS);
    }
    let template = tokio::select! {
        template = follow(client, id, !arguments.quiet && !json) => template?,
        code = interrupt.first() => {
            client.cancel_template(id).await?;
            return Ok(ExitCode::from(code));
        }
    };
    if template.state != TemplateState::Ready {
        if json {
            output::json(&template)?;
        }
        let why = template.error.map_or_else(|| template.state.to_string(), |error| error.message);
        note(&format!("sbx: the build of '{}' failed: {why}", template.name));
        return Ok(ExitCode::FAILURE);
    }
    shown(&template, json)?;
    Ok(ExitCode::SUCCESS)
}

fn shown(template: &TemplateView, json: bool) -> Result<()> {
    if json { output::json(template) } else { output::text(&format!("{}\n", template.id)) }
}

/// Prints the log on standard error, and returns the template.
pub async fn follow(client: &Client, id: &str, prints: bool) -> Result<TemplateView> {
    let mut log = client.template_log(id);
    while let Some(event) = log.try_next().await? {
        if let BuildOutput::Done(template) = event {
            return Ok(*template);
        }
        if prints && let Some(line) = line(&event) {
            // A closed standard error does not end the build.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
    bail!("the log ended before the build did")
}

fn line(event: &BuildOutput) -> Option<String> {
    match event {
        BuildOutput::Step(step) => {
            let cached = if step.cached { " (cached)" } else { "" };
            Some(format!("[{}/{}] {}{cached}", step.number, step.total, step.text))
        }
        BuildOutput::Stdout(line) | BuildOutput::Stderr(line) => Some(format!("  {line}")),
        BuildOutput::Note(note) => Some(format!("-- {note}")),
        BuildOutput::Done(_) => None,
    }
}

fn request(client: &Client, arguments: &BuildArguments) -> Result<BuildTemplate> {
    let mut build = client.build_template(&arguments.tag).no_cache(arguments.no_cache);
    build = match arguments.file.as_deref() {
        Some(STDIN) => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read the Dockerfile")?;
            note("sbx: the Dockerfile is from standard input; no context is sent");
            build.dockerfile(text)
        }
        Some(path) => build.context(&arguments.context).dockerfile_path(path),
        None => build.context(&arguments.context),
    };
    for word in &arguments.build_arg {
        let (name, value) = env_variable(word)?;
        build = build.build_arg(name, value);
    }
    if let Some(start) = &arguments.start {
        build = build.start_command(start);
    }
    if let Some(ready) = &arguments.ready {
        build = build.ready_command(ready);
    }
    if let Some(timeout) = arguments.ready_timeout {
        build = build.ready_timeout(timeout);
    }
    if let Some(cpu) = arguments.cpu {
        build = build.cpu(cpu);
    }
    if let Some(memory) = arguments.memory {
        build = build.memory_mb(memory);
    }
    if let Some(disk) = arguments.disk {
        build = build.disk_mb(disk);
    }
    if !arguments.allow.is_empty() {
        build = build.only_domains(&arguments.allow);
    }
    if let Some(isolation) = arguments.isolation {
        build = build.isolation(isolation);
    }
    if let Some(timeout) = arguments.timeout {
        build = build.timeout(timeout);
    }
    for (key, value) in &arguments.metadata {
        build = build.metadata(key, value);
    }
    Ok(build)
}
