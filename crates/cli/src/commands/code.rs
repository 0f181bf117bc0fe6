//! `sbx code`: runs code in the code interpreter of a sandbox.

use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::TryStreamExt;
use sandboxd_client::{Client, CodeOutput, CodeResult};

use super::command_line;
use crate::cli::CodeArguments;
use crate::interrupt::Interrupt;
use crate::output;

/// The most that the service allows.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(300);

pub async fn code(client: &Client, as_json: bool, arguments: CodeArguments) -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let CodeArguments { id, language, context, env, output: dir, code } = arguments;
    let code = match code {
        Some(code) if code != "-" => code,
        _ => tokio::task::spawn_blocking(read_stdin).await??,
    };
    let mut run = client.sandbox(&id)?.run_code(code).timeout(TIMEOUT);
    if let Some(language) = language {
        run = run.language(language);
    }
    if let Some(context) = context {
        run = run.context(context);
    }
    for word in &env {
        let (name, value) = command_line::env_variable(word)?;
        run = run.env(name, value);
    }
    let show = async {
        if as_json {
            let execution = run.await?;
            output::json(&execution)?;
            return Ok(execution.exception.is_some());
        }
        let (mut events, mut raised, mut files) = (run.stream().await?, false, 0);
        while let Some(event) = events.try_next().await? {
            match event {
                CodeOutput::Stdout(text) => output::text(&text)?,
                CodeOutput::Stderr(text) => std::io::stderr().write_all(text.as_bytes())?,
                CodeOutput::Result(result) => show_result(&result, dir.as_deref(), &mut files)?,
                CodeOutput::Exception(exception) => {
                    raised = true;
                    let text =
                        if exception.traceback.is_empty() { &exception.value } else { &exception.traceback };
                    output::note(text);
                }
                CodeOutput::Done(_) => {}
            }
        }
        anyhow::Ok(raised)
    };
    tokio::select! {
        raised = show => Ok(ExitCode::from(u8::from(raised?))),
        // Dropping the request interrupts the code.
        code = interrupt.first() => Ok(ExitCode::from(code)),
    }
}

fn read_stdin() -> Result<String> {
    let mut code = String::new();
    std::io::stdin().read_to_string(&mut code).context("cannot read the code from standard input")?;
    Ok(code)
}

/// Prints the text of a result. Images and documents go to files, if a directory is given.
fn show_result(result: &CodeResult, dir: Option<&Path>, files: &mut usize) -> Result<()> {
    if let Some(text) = &result.text {
        output::text(&format!("{text}\n"))?;
    }
    let Some(dir) = dir else { return Ok(()) };
    let texts =
        [("html", &result.html), ("svg", &result.svg), ("md", &result.markdown), ("tex", &result.latex)];
    let encoded = [("png", &result.png), ("jpeg", &result.jpeg), ("pdf", &result.pdf)];
    let texts = texts.into_iter().filter_map(|(end, text)| Some((end, text.clone()?.into_bytes())));
    let mut contents: Vec<(&str, Vec<u8>)> = texts.collect();
    for (end, text) in encoded {
        let Some(text) = text else { continue };
        contents.push((end, STANDARD.decode(text).context("a result is not base64")?));
    }
    if contents.is_empty() {
        return Ok(());
    }
    *files += 1;
    for (end, content) in contents {
        let path = dir.join(format!("result-{files}.{end}"));
        std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        output::note(&path.display().to_string());
    }
    Ok(())
}
