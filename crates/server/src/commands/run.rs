//! `sandboxd run`: one command in a new sandbox, without a server.
//!
//! It shares only the images with a server: each run takes a directory of its own, locks it while it runs, and keeps everything there. The
//! next run in a directory first removes what a killed run left.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use api::{CreateBody, CreateResources, ExecuteRequest, SandboxConfig, SandboxId};
use base::lock_file;
use driver::Sandboxes;
use engine::{Engine, Execution, ExecutionEvent, Finished, Template};
use net::Guest;
use rules::{ConfigRules, IsolationRules, sandbox_config};
use rustix::fs::{FlockOperation, flock};
use service::images::template;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::signal::unix::{SignalKind, signal};

use super::EXIT_CODE_SANDBOXD_FAILED;
use crate::app::{LxcfsUse, Opened, Pool, Scope, images_lock, open_engine, open_images};
use crate::cli::RunArguments;
use crate::config::Config;
use crate::progress;

/// The most concurrent runs on this host.
const MAX_RUNS: u32 = 64;
/// A run has one sandbox; an unused range of ids separates it from the next run.
const SLOTS_PER_RUN: u32 = 2;
/// The files of a run's store, present while it runs and after it was killed. The first one is removed last.
const STORE: [&str; 4] = ["store.db", "store.db-wal", "store.db-shm", "store.db-notes"];
const ACCOUNT: &str = "local";
const DAY_MS: u64 = 24 * 3600 * 1000;
/// Exit codes of shells after SIGINT, SIGTERM and SIGPIPE.
const EXIT_CODE_SIGINT: u8 = 130;
const EXIT_CODE_SIGTERM: u8 = 143;
const EXIT_CODE_SIGPIPE: u8 = 141;
const EXIT_CODE_NOT_STARTED: u8 = 127;

pub async fn run(config: &Config, arguments: RunArguments) -> Result<ExitCode> {
    let mut sandbox = sandbox(&arguments, &config.resources.rules())?;
    let request = request(&arguments)?;
    let images = open_images(config)?;
    let in_use = images_lock(config)?;
    flock(&in_use, FlockOperation::LockShared)?;
    let image = progress::show(|report| images.ensure(&arguments.image, report)).await;
    let image = image?;
    if let Some(stand_in) = &image.stand_in {
        tracing::info!("{stand_in}");
    }
    let (_lock, scope) = lock_run_directory(config)?;
    let Opened { engine, driver, network, isolation, .. } =
        open_engine(config, &images, &scope, Pool::None).await?;
    let isolation = IsolationRules::new(&isolation, ACCOUNT);
    let code = tokio::select! {
        code = async {
            sandbox.isolation = isolation.choose(arguments.isolation, &sandbox.image)?;
            create_and_execute(&engine, sandbox, template(&image), request).await
        } => code,
        stopped = wait_for_stop_signal() => stopped.map(ExitCode::from),
    };
    // Everything, including the rest of an interrupted create: no other run uses this directory.
    engine.shutdown().await;
    for id in driver.list().await? {
        driver.destroy(&id).await?;
        for slot in 0..SLOTS_PER_RUN {
            network.unplug(&Guest { id: id.clone(), slot }).await?;
        }
    }
    driver.retire().await?;
    network.close().await;
    network.retire().await?;
    drop(engine);
    remove_store(&scope.data_dir)?;
    code
}

async fn create_and_execute(
    engine: &Engine,
    sandbox: SandboxConfig,
    template: Template,
    request: ExecuteRequest,
) -> Result<ExitCode> {
    let status = engine.create(ACCOUNT, sandbox, template, None).await?;
    execute(engine, &status.record.id, request).await
}

fn sandbox(arguments: &RunArguments, rules: &ConfigRules) -> Result<SandboxConfig> {
    let resources = CreateResources {
        cpu: arguments.cpu.map(Into::into),
        memory_mb: arguments.memory.map(Into::into),
        disk_mb: arguments.disk.map(Into::into),
    };
    let body = CreateBody {
        image: arguments.image.clone(),
        resources: Some(resources),
        workdir: arguments.workdir.clone(),
        env: Some(environment(&arguments.env)?),
        timeout_ms: Some(DAY_MS.into()),
        idle_timeout_ms: Some(0),
        ..CreateBody::default()
    };
    Ok(sandbox_config(body, rules)?)
}

fn environment(entries: &[String]) -> Result<BTreeMap<String, String>> {
    let split = |entry: &String| match entry.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => bail!("--env is '{entry}'; it must be NAME=VALUE"),
    };
    entries.iter().map(split).collect()
}

fn request(arguments: &RunArguments) -> Result<ExecuteRequest> {
    let mut stdin = None;
    if arguments.stdin {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input as UTF-8")?;
        stdin = Some(text);
    }
    Ok(ExecuteRequest {
        command: command_line(&arguments.command),
        cwd: None,
        env: BTreeMap::new(),
        timeout_ms: arguments.timeout.map_or(DAY_MS, |seconds| seconds.saturating_mul(1000)),
        stdin,
        auto_resume: true,
        run_id: None,
        user: None,
    })
}

/// One argument is a bash command line; several are quoted words.
fn command_line(words: &[String]) -> String {
    match words {
        [line] => line.clone(),
        words => words
            .iter()
            .map(|word| format!("'{}'", word.replace('\'', r"'\''")))
            .collect::<Vec<_>>()
            .join(" "),
    }
}

/// The first directory that no other run uses. Directories of killed runs come first, so that the next run cleans them up.
fn lock_run_directory(config: &Config) -> Result<(File, Scope)> {
    let data_dir = |number: u32| config.data_dir.join(format!("once/{number}"));
    let (left, clean): (Vec<_>, Vec<_>) =
        (0..MAX_RUNS).partition(|number| data_dir(*number).join(STORE[0]).exists());
    for number in left.into_iter().chain(clean) {
        let data_dir = data_dir(number);
        fs::create_dir_all(&data_dir)?;
        let lock = lock_file(&data_dir.join("lock"))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        // Without records everything of a killed run is an orphan, which the engine removes at its start.
        remove_store(&data_dir)?;
        let runtime = &config.runtime;
        let first_slot = runtime.uid_slots + number * SLOTS_PER_RUN;
        let uid_base = first_slot.checked_mul(65_536).and_then(|offset| offset.checked_add(runtime.uid_base));
        let scope = Scope {
            data_dir,
            run_dir: config.run_dir.join(format!("once/{number}")),
            cgroup_parent: format!("{}-once-{number}", runtime.cgroup_parent),
            uid_base: uid_base.context("runtime.uid_base and runtime.uid_slots leave no user ids for 'sandboxd run'; lower one of them")?,
            slots: SLOTS_PER_RUN,
            lxcfs: LxcfsUse::HostOnly,
        };
        return Ok((lock, scope));
    }
    bail!(
        "{MAX_RUNS} 'sandboxd run' commands are active on this host, the maximum; try again when one has ended"
    )
}

fn remove_store(data_dir: &Path) -> std::io::Result<()> {
    STORE.iter().rev().try_for_each(|file| base::allow_missing(fs::remove_file(data_dir.join(file))))
}

async fn execute(engine: &Engine, id: &SandboxId, request: ExecuteRequest) -> Result<ExitCode> {
    let mut execution = engine.sandbox(ACCOUNT, id).execute(request).await?;
    let finished = match pass_on_output(&mut execution).await {
        Err(error) if is_broken_pipe(&error) => return Ok(ExitCode::from(EXIT_CODE_SIGPIPE)),
        finished => finished?,
    };
    if let Some(note) = &finished.outcome.stderr_note {
        eprint!("{note}");
    }
    Ok(ExitCode::from(exit_code(&finished)))
}

/// Resolves with an exit code after SIGINT or SIGTERM.
async fn wait_for_stop_signal() -> Result<u8> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted.map(|()| EXIT_CODE_SIGINT).map_err(Into::into),
        _ = terminated.recv() => Ok(EXIT_CODE_SIGTERM),
    }
}

/// The reader of the output has gone, as `head` does.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

async fn pass_on_output(execution: &mut Execution) -> Result<Finished> {
    loop {
        // Written before the next event is requested: a slow reader slows the command.
        match execution.next().await {
            ExecutionEvent::Stdout(bytes) => write_now(&mut tokio::io::stdout(), &bytes).await?,
            ExecutionEvent::Stderr(bytes) => write_now(&mut tokio::io::stderr(), &bytes).await?,
            ExecutionEvent::Done(finished) => return Ok(finished),
            ExecutionEvent::Failed(error) => return Err(error.into()),
        }
    }
}

/// On a separate thread, so that a blocked reader cannot delay signals.
async fn write_now(out: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<()> {
    out.write_all(bytes).await?;
    out.flush().await.context("cannot pass on the command's output")
}

/// 128 plus the number of the signal, as in shells.
fn exit_code(finished: &Finished) -> u8 {
    match (finished.outcome.exit_code, finished.outcome.signal.as_deref()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(EXIT_CODE_SANDBOXD_FAILED),
        (None, Some("SIGTERM")) => 128 + 15,
        (None, Some("SIGINT")) => 128 + 2,
        (None, Some(_)) => 128 + 9,
        (None, None) => EXIT_CODE_NOT_STARTED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_is_a_line_and_several_are_words() {
        let words =
            |words: &[&str]| command_line(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&["echo $HOME | wc"]), "echo $HOME | wc");
        assert_eq!(words(&["echo", "it's $HOME", ""]), r"'echo' 'it'\''s $HOME' ''");
    }

    #[test]
    fn an_environment_entry_without_a_value_is_refused() {
        assert!(environment(&["A=b=c".to_owned()]).unwrap()["A"] == "b=c");
        assert!(environment(&["A".to_owned()]).is_err());
    }
}
