//! An engine in a process that tests kill: `victim NAME POOL SLOTS`. `e2e::Daemon` documents the protocol on its streams.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use api::SandboxId;
use e2e::{Rig, RigOptions, command, escape, unescape};
use engine::{EngineError, OutputEvent, SandboxError};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

const MAX_OUTPUT: usize = 64 * 1024;
/// Output that arrives later than this after the last output is not waited for.
const OUTPUT_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(50);
/// The length of the request queue.
const QUEUE_LENGTH: usize = 64;

#[tokio::main]
async fn main() -> Result<()> {
    // The standard output is for responses.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("usage: victim NAME POOL SLOTS");
    let name = next()?;
    let options = RigOptions { pool: next()?.parse()?, slots: next()?.parse()?, ..RigOptions::default() };
    let begin = Instant::now();
    let rig = Arc::new(Rig::reopen(name, options).await?);
    let found = rig.recovered;
    let took_ms = begin.elapsed().as_millis();
    let ready =
        format!("ready {} {} {} {} {took_ms}", found.running, found.paused, found.stopped, found.orphans);
    write_line(&ready)?;

    let tasks = TaskTracker::new();
    let (send, mut lines) = mpsc::channel(QUEUE_LENGTH);
    let reading = tokio::task::spawn_blocking(move || -> Result<()> {
        for line in std::io::stdin().lock().lines() {
            send.blocking_send(line?)?;
        }
        Ok(())
    });
    while let Some(line) = lines.recv().await {
        let rig = Arc::clone(&rig);
        tasks.spawn(async move {
            let (number, request) = line.split_once(' ').unwrap_or((&line, ""));
            let answer = match serve(&rig, &unescape(request)).await {
                Ok(text) => format!("{number} ok {}", escape(&text)),
                Err(error) => format!("{number} no {}", escape(&format!("{error:#}"))),
            };
            // If the reader is gone, the input ends too.
            let _ = write_line(&answer);
        });
    }
    reading.await??;
    tasks.close();
    tasks.wait().await;
    rig.engine.shutdown().await;
    Ok(())
}

fn write_line(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// The output of a detached execution from an offset, up to now or its end: the next offset, the exit code, and the text.
async fn read_output(rig: &Rig, id: &SandboxId, rest: &str) -> Result<String> {
    let (execution, from) = rest.split_once(' ').context("output ID EXECUTION POSITION")?;
    let mut position = from.parse()?;
    let mut reader = rig.engine.sandbox("test", id).follow(&execution.parse()?, position).await?;
    let mut text = String::new();
    let mut exit_code = "-".to_owned();
    while let Ok(next) = tokio::time::timeout(OUTPUT_TIMEOUT, reader.next()).await {
        match next? {
            OutputEvent::Output { bytes, position: at, .. } => {
                text.push_str(std::str::from_utf8(&bytes)?);
                position = at;
            }
            OutputEvent::Dropped { position } => bail!("dropped up to {position}"),
            OutputEvent::Ended(status) => {
                exit_code = format!("{:?}:{:?}", status.state, status.exit_code);
                break;
            }
        }
        if text.len() > MAX_OUTPUT {
            break;
        }
    }
    Ok(format!("{position} {exit_code} {text}"))
}

async fn serve(rig: &Rig, request: &str) -> Result<String> {
    let (verb, rest) = request.split_once(' ').unwrap_or((request, ""));
    let (id, text) = rest.split_once(' ').unwrap_or((rest, ""));
    let id = || id.parse::<SandboxId>().with_context(|| format!("{id:?} is not a sandbox id"));
    match verb {
        "create" => Ok(rig.create().await?.to_string()),
        "exec" => {
            let result =
                rig.engine.sandbox("test", &id()?).execute(command(text)).await?.collect(MAX_OUTPUT).await?;
            Ok(format!("{} {}", result.exit_code.unwrap_or(-1), result.stdout))
        }
        "detach" => {
            let request = engine::DetachedRequest {
                command: text.to_owned(),
                auto_resume: true,
                ..engine::DetachedRequest::default()
            };
            Ok(rig.engine.sandbox("test", &id()?).start_detached(request).await?.id.to_string())
        }
        "output" => read_output(rig, &id()?, text).await,
        "pause" => Ok(rig.engine.sandbox("test", &id()?).pause().await?.runtime_duration_ms.to_string()),
        "resume" => Ok(rig.engine.sandbox("test", &id()?).resume().await?.paused_duration_ms.to_string()),
        "destroy" => {
            Ok(rig.engine.sandbox("test", &id()?).terminate("request").await?.total_runtime_ms.to_string())
        }
        "state" => match rig.engine.sandbox("test", &id()?).status().await {
            Ok(status) => Ok(status.state().to_string()),
            Err(EngineError::Sandbox(SandboxError::NotFound { terminated: Some((_, reason)) })) => {
                Ok(format!("terminated {reason}"))
            }
            Err(EngineError::Sandbox(SandboxError::NotFound { terminated: None })) => {
                Ok("unknown".to_owned())
            }
            Err(error) => Err(error.into()),
        },
        "living" => {
            let ids = rig.store.living().await?.into_iter().map(|record| record.id.to_string());
            Ok(ids.collect::<Vec<_>>().join(" "))
        }
        "kinds" => {
            let events = rig.lifecycle_events(&id()?).await?;
            Ok(events.into_iter().map(|event| event.kind).collect::<Vec<_>>().join(" "))
        }
        "used" => {
            let (_, used) = rig.engine.capacity();
            Ok(format!("{} {} {} {}", used.cpu, used.memory_mb, used.disk_mb, rig.engine.living()))
        }
        "full" => {
            rig.wait_for_full_pool().await;
            Ok(String::new())
        }
        other => bail!("{other:?} is an unknown verb"),
    }
}
