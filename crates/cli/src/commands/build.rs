//! `sbx build`: builds a template and shows the log. Ctrl-C cancels the build.

use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use base::SetSome;
use futures_util::TryStreamExt;
use sandboxd_client::{BuildOutput, BuildTemplate, Client, TemplateState, TemplateView};

use super::variables::variables;
use crate::cli::BuildArguments;
use crate::interrupt::Interrupt;
use crate::output::{self, OutputFormat, note};

const STDIN: &str = "-";
/// The context if none is given.
const HERE: &str = ".";

/// Builds a template and prints its id. A failed build has the exit code 1.
pub async fn build(client: &Client, format: OutputFormat, arguments: BuildArguments) -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let accepted = request(client, &arguments)?.await?;
    let id = accepted.id.as_str();
    if arguments.detach {
        return format.print_id(&accepted, &accepted.id);
    }
    let log = if arguments.quiet { LogDisplay::Hidden } else { LogDisplay::beside(format) };
    let template = tokio::select! {
        template = follow(client, id, log) => template?,
        code = interrupt.first() => {
            client.cancel_template(id).await?;
            return Ok(ExitCode::from(code));
        }
    };
    if template.state != TemplateState::Ready {
        if format == OutputFormat::Json {
            output::json(&template)?;
        }
        let why = template.error.map_or_else(|| template.state.to_string(), |error| error.message);
        note(&format!("sbx: the build of '{}' failed: {why}", template.name));
        return Ok(ExitCode::FAILURE);
    }
    format.print_id(&template, &template.id)
}

/// Whether the log of a build is printed, on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogDisplay {
    Shown,
    Hidden,
}

impl LogDisplay {
    /// Only people read the log.
    pub fn beside(format: OutputFormat) -> Self {
        match format {
            OutputFormat::Plain => Self::Shown,
            OutputFormat::Json => Self::Hidden,
        }
    }
}

/// Follows the log of a build to its end, and returns the template.
pub async fn follow(client: &Client, id: &str, display: LogDisplay) -> Result<TemplateView> {
    let mut log = client.template_log(id);
    while let Some(event) = log.try_next().await? {
        if let BuildOutput::Done(template) = event {
            return Ok(*template);
        }
        if display == LogDisplay::Shown
            && let Some(line) = line(&event)
        {
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

fn read_dockerfile() -> Result<String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read the Dockerfile")?;
    Ok(text)
}

/// Refuses what Docker accepts as a context besides directories.
fn check_context(context: Option<&Path>) -> Result<()> {
    let Some(context) = context else { return Ok(()) };
    if context == Path::new(STDIN) {
        bail!(
            "the context cannot be standard input; '-f -' reads the Dockerfile from it, and PATH is a directory"
        );
    }
    if context.to_string_lossy().contains("://") {
        let shown = context.display();
        bail!(
            "the context is {shown}, and not a local directory; download it first, or pass its Dockerfile with '-f -'"
        );
    }
    Ok(())
}

/// The Dockerfile that `-f` names.
#[derive(Debug, PartialEq, Eq)]
enum DockerfileFile {
    /// Its path in the context, with which it is sent.
    InContext(String),
    /// Its text: it is outside of the context.
    Outside(String),
}

impl DockerfileFile {
    /// Finds a Dockerfile from the current directory, as Docker does, or else in the context, as earlier versions of sbx did.
    fn find(file: &Path, context: &Path) -> Result<Self> {
        let file = if file.is_absolute() || file.exists() { file.to_owned() } else { context.join(file) };
        let name = || format!("the Dockerfile {}", file.display());
        let (found, root) = (file.canonicalize().with_context(name)?, context.canonicalize());
        // A context that cannot be found is an error when it is sent.
        match root.ok().and_then(|root| found.strip_prefix(root).ok().and_then(Path::to_str)) {
            Some(path) => Ok(Self::InContext(path.to_owned())),
            None => Ok(Self::Outside(std::fs::read_to_string(&found).with_context(name)?)),
        }
    }
}

fn request(client: &Client, arguments: &BuildArguments) -> Result<BuildTemplate> {
    let mut build = client.build_template(&arguments.tag).no_cache(arguments.no_cache);
    let context = arguments.context.as_deref();
    check_context(context)?;
    build = match (arguments.file.as_deref(), context) {
        (Some(file), Some(dir)) if file == Path::new(STDIN) => {
            build.context(dir).dockerfile(read_dockerfile()?)
        }
        (Some(file), None) if file == Path::new(STDIN) => {
            let build = build.dockerfile(read_dockerfile()?);
            note("sbx: the Dockerfile is from standard input; no context is sent, as no PATH is given");
            build
        }
        (Some(file), dir) => {
            let dir = dir.unwrap_or(Path::new(HERE));
            match DockerfileFile::find(file, dir)? {
                DockerfileFile::InContext(path) => build.context(dir).dockerfile_path(path),
                DockerfileFile::Outside(text) => build.context(dir).dockerfile(text),
            }
        }
        (None, dir) => build.context(dir.unwrap_or(Path::new(HERE))),
    };
    for (name, value) in variables(&[], &arguments.build_arg)? {
        build = build.build_arg(name, value);
    }
    build = build
        .set_some(arguments.start.as_ref(), BuildTemplate::start_command)
        .set_some(arguments.ready.as_ref(), BuildTemplate::ready_command)
        .set_some(arguments.ready_timeout, BuildTemplate::ready_timeout)
        .set_some(arguments.cpu, BuildTemplate::cpu)
        .set_some(arguments.memory, BuildTemplate::memory_mb)
        .set_some(arguments.disk, BuildTemplate::disk_mb);
    if !arguments.allow.is_empty() {
        build = build.only_domains(&arguments.allow);
    }
    build = build
        .set_some(arguments.isolation, BuildTemplate::isolation)
        .set_some(arguments.timeout, BuildTemplate::timeout);
    for (key, value) in &arguments.metadata {
        build = build.metadata(key, value);
    }
    Ok(build)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dockerfile_may_be_inside_or_outside_of_the_context() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("context/sub")).unwrap();
        for name in ["context/Dockerfile", "context/sub/web", "outside"] {
            std::fs::write(at(name), format!("# {name}")).unwrap();
        }
        let find = |file: &Path| DockerfileFile::find(file, &at("context"));
        let inside = |path: &str| DockerfileFile::InContext(path.to_owned());
        assert_eq!(find(&at("context/sub/web")).unwrap(), inside("sub/web"));
        assert_eq!(find(&at("context/sub/../Dockerfile")).unwrap(), inside("Dockerfile"));
        assert_eq!(find(&at("outside")).unwrap(), DockerfileFile::Outside("# outside".to_owned()));
        // A path from the current directory, and one in the context if there is no such file here.
        let here = find(Path::new("Cargo.toml")).unwrap();
        assert!(matches!(here, DockerfileFile::Outside(text) if text.contains("[package]")));
        assert_eq!(find(Path::new("sub/web")).unwrap(), inside("sub/web"));
        let error = format!("{:#}", find(Path::new("no-such-file")).unwrap_err());
        assert!(error.contains("context/no-such-file"), "{error}");
    }

    #[test]
    fn contexts_that_are_no_directories_are_refused_with_a_hint() {
        for accepted in [None, Some("."), Some("/srv/app"), Some("./-")] {
            assert!(check_context(accepted.map(Path::new)).is_ok(), "{accepted:?}");
        }
        for refused in ["-", "https://example.com/app.git"] {
            let error = check_context(Some(Path::new(refused))).unwrap_err().to_string();
            assert!(error.contains("'-f -'"), "{refused}: {error}");
        }
    }
}
