//! `sbx build`: builds a template and shows the log. Ctrl-C cancels the build.

use std::fs::DirEntry;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use base::SetSome;
use futures_util::TryStreamExt;
use sandboxd_client::{BuildOutput, BuildTemplate, Client, TemplateState, TemplateView};

use super::variables::variables;
use crate::cli::BuildArguments;
use crate::interrupt::Interrupt;
use crate::output::{self, OutputFormat, note};
use crate::progress::size;

const STDIN: &str = "-";
/// The context if none is given.
const HERE: &str = ".";
const DOCKERFILE: &str = "Dockerfile";

/// What the error of the service says about a context that is too large.
const TOO_LARGE: &str = "build context is larger";
/// How many of the largest entries of a context are named.
const NAMED_ENTRIES: usize = 5;

/// Builds a template of each name and prints their ids. A failed build has the exit code 1, and is the last one.
pub async fn build(client: &Client, format: OutputFormat, arguments: BuildArguments) -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let source = BuildSource::find(&arguments)?;
    let mut ready = Vec::new();
    for (number, name) in arguments.tag.iter().enumerate() {
        let is_first = number == 0;
        // The steps of the first build have cached results.
        let no_cache = arguments.no_cache && is_first;
        let request = request(client, &source, &arguments, name)?.no_cache(no_cache);
        let accepted = request.await.inspect_err(|error| explain_size(error, &source))?;
        if arguments.detach {
            ready.push(accepted);
            continue;
        }
        let log = if arguments.quiet || !is_first { LogDisplay::Hidden } else { LogDisplay::beside(format) };
        let template = tokio::select! {
            template = follow(client, accepted.id.as_str(), log) => template?,
            code = interrupt.first() => {
                client.cancel_template(accepted.id.as_str()).await?;
                return Ok(ExitCode::from(code));
            }
        };
        if template.state != TemplateState::Ready {
            return report_failure(format, template);
        }
        ready.push(template);
    }
    match ready.as_slice() {
        [template] => format.print_id(template, &template.id),
        all => format.print_ids(all, |template| template.id.to_string()),
    }
}

fn report_failure(format: OutputFormat, template: TemplateView) -> Result<ExitCode> {
    if format == OutputFormat::Json {
        output::json(&template)?;
    }
    let why = template.error.map_or_else(|| template.state.to_string(), |error| error.message);
    note(&format!("sbx: the build of '{}' failed: {why}", template.name));
    Ok(ExitCode::FAILURE)
}

/// Says what is large in a context that the service has refused for its size.
fn explain_size(error: &sandboxd_client::Error, source: &BuildSource<'_>) {
    let Some(context) = source.context.filter(|_| error.message().contains(TOO_LARGE)) else { return };
    let entries = largest_entries(context);
    let shown: Vec<String> =
        entries.into_iter().map(|(name, bytes)| format!("{name} {}", size(bytes))).collect();
    note(&format!(
        "sbx: the largest entries of {}: {}; a file .dockerignore in it leaves entries out",
        context.display(),
        shown.join(", ")
    ));
}

/// The entries of a directory that have most bytes, with all below them. What cannot be read does not count.
fn largest_entries(directory: &Path) -> Vec<(String, u64)> {
    let mut entries: Vec<(String, u64)> = children(directory)
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), bytes_of(&entry)))
        .collect();
    entries.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    entries.truncate(NAMED_ENTRIES);
    entries
}

fn children(directory: &Path) -> impl Iterator<Item = DirEntry> {
    std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok)
}

/// The bytes of an entry. Links are not followed.
fn bytes_of(entry: &DirEntry) -> u64 {
    let (mut bytes, mut open) = (0, Vec::new());
    let mut add = |entry: &DirEntry, open: &mut Vec<PathBuf>| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => open.push(entry.path()),
        Ok(metadata) => bytes += metadata.len(),
        Err(_) => {}
    };
    add(entry, &mut open);
    while let Some(directory) = open.pop() {
        children(&directory).for_each(|child| add(&child, &mut open));
    }
    bytes
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

/// The Dockerfile of a build.
#[derive(Debug, PartialEq, Eq)]
enum DockerfileFile {
    /// Its path in the context, with which it is sent.
    InContext(String),
    /// Its text: it is outside of the context, or is not used as a whole.
    Text(String),
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
            None => Ok(Self::Text(std::fs::read_to_string(&found).with_context(name)?)),
        }
    }
}

/// What a build reads, found once for all names.
struct BuildSource<'a> {
    context: Option<&'a Path>,
    dockerfile: DockerfileFile,
}

impl<'a> BuildSource<'a> {
    fn find(arguments: &'a BuildArguments) -> Result<Self> {
        let context = arguments.context.as_deref();
        check_context(context)?;
        let mut source = match arguments.file.as_deref() {
            Some(file) if file == Path::new(STDIN) => {
                let dockerfile = DockerfileFile::Text(read_dockerfile()?);
                if context.is_none() {
                    note(
                        "sbx: the Dockerfile is from standard input; no context is sent, as no PATH is given",
                    );
                }
                Self { context, dockerfile }
            }
            file => {
                let context = context.unwrap_or(Path::new(HERE));
                let dockerfile = match file {
                    Some(file) => DockerfileFile::find(file, context)?,
                    None => default_dockerfile(context)?,
                };
                Self { context: Some(context), dockerfile }
            }
        };
        if let Some(stage) = &arguments.target {
            source.dockerfile = DockerfileFile::Text(until_stage(&source.text()?, stage)?);
        }
        Ok(source)
    }

    /// The text of the Dockerfile.
    fn text(&self) -> Result<String> {
        match &self.dockerfile {
            DockerfileFile::Text(text) => Ok(text.clone()),
            DockerfileFile::InContext(path) => {
                let file = self.context.unwrap_or(Path::new(HERE)).join(path);
                std::fs::read_to_string(&file).with_context(|| format!("the Dockerfile {}", file.display()))
            }
        }
    }
}

/// The Dockerfile of a context without `-f`. One that is missing is found before the context is sent.
fn default_dockerfile(context: &Path) -> Result<DockerfileFile> {
    ensure!(
        !context.is_dir() || context.join(DOCKERFILE).exists(),
        "there is no file '{DOCKERFILE}' in {}; -f FILE names another one, and '-f -' reads it from standard input",
        context.display()
    );
    Ok(DockerfileFile::InContext(DOCKERFILE.to_owned()))
}

/// The Dockerfile up to the end of a stage, which is then the last one.
fn until_stage(text: &str, stage: &str) -> Result<String> {
    let parsed = dockerfile::parse(text).context("the Dockerfile")?;
    let Some(lines) = parsed.lines_until(stage) else {
        let names: Vec<&str> = parsed.stage_names().collect();
        let named = if names.is_empty() { "none has a name".to_owned() } else { names.join(", ") };
        bail!("--target is '{}', which is no stage of the Dockerfile: {named}", stage.escape_debug());
    };
    Ok(text.split_inclusive('\n').take(lines).collect())
}

fn request(
    client: &Client,
    source: &BuildSource<'_>,
    arguments: &BuildArguments,
    name: &str,
) -> Result<BuildTemplate> {
    let mut build = client.build_template(name).set_some(source.context, BuildTemplate::context);
    build = match &source.dockerfile {
        DockerfileFile::InContext(path) => build.dockerfile_path(path),
        DockerfileFile::Text(text) => build.dockerfile(text),
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
        assert_eq!(find(&at("outside")).unwrap(), DockerfileFile::Text("# outside".to_owned()));
        // A path from the current directory, and one in the context if there is no such file here.
        let here = find(Path::new("Cargo.toml")).unwrap();
        assert!(matches!(here, DockerfileFile::Text(text) if text.contains("[package]")));
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

    #[test]
    fn a_missing_dockerfile_is_told_with_the_option_that_names_one() {
        let dir = tempfile::tempdir().unwrap();
        let error = default_dockerfile(dir.path()).unwrap_err().to_string();
        assert!(error.contains("-f FILE") && error.contains("no file 'Dockerfile'"), "{error}");
        std::fs::write(dir.path().join("Dockerfile"), "FROM a\n").unwrap();
        let found = default_dockerfile(dir.path()).unwrap();
        assert_eq!(found, DockerfileFile::InContext("Dockerfile".to_owned()));
        // The error of a context that does not exist is that of its upload.
        assert!(default_dockerfile(&dir.path().join("none")).is_ok());
    }

    #[test]
    fn a_target_is_the_last_stage() {
        let text =
            "ARG V=1\nFROM a AS Base\nRUN <<E\nFROM x AS y\nE\n# next\nFROM base AS test\nRUN t\nFROM base\n";
        let base = "ARG V=1\nFROM a AS Base\nRUN <<E\nFROM x AS y\nE\n# next\n";
        for stage in ["base", "0"] {
            assert_eq!(until_stage(text, stage).unwrap(), base, "{stage}");
        }
        assert!(until_stage(text, "test").unwrap().ends_with("RUN t\n"));
        assert_eq!(until_stage(text, "2").unwrap(), text);
        for stage in ["y", "3"] {
            let error = until_stage(text, stage).unwrap_err().to_string();
            assert!(error.contains("Base, test"), "{error}");
        }
    }

    #[test]
    fn the_largest_entries_come_first_with_all_below_them() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("data/deep")).unwrap();
        for (path, bytes) in [("data/deep/a", 300), ("data/b", 200), ("c", 400), ("d", 1)] {
            std::fs::write(dir.path().join(path), vec![0; bytes]).unwrap();
        }
        let expected = [("data", 500), ("c", 400), ("d", 1)].map(|(name, bytes)| (name.to_owned(), bytes));
        assert_eq!(largest_entries(dir.path()), expected);
    }
}
