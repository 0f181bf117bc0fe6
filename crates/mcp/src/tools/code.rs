//! `run_code`.
//!
//! The service does not store the output of code, so output that is longer than the page is written to a file of the sandbox, which
//! `read_file` reads.

use std::time::{Duration, UNIX_EPOCH};

use base::SetSome;
use futures_util::StreamExt;
use rmcp::model::{ContentBlock, JsonObject};
use sandboxd_client::{Code, CodeException, CodeOutput, CodeResult, Error, Output, Sandbox};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::output::OutputPage;
use super::reply::ToolReply;
use super::schema::Effect;
use super::shared::SandboxReference;
use super::{Declared, ToolCall, within};
use crate::failure::ToolFailure;
use crate::session::FirstUse;

const DEFAULT_TIMEOUT_S: u64 = 60;
const LONGEST_TIMEOUT_S: u64 = 300;
const LONGEST_CODE: usize = 1 << 20;
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// The most bytes of output that are kept for the file.
const LONGEST_FILE: usize = 2 << 20;
/// The most characters of one form of a result, and of a traceback.
const LONGEST_FORM: usize = 8 << 10;
const MOST_RESULTS: usize = 20;
/// The most bytes of images, as base64, in one result.
const LONGEST_IMAGES: usize = 2 << 20;

/// Run Python, JavaScript or Bash code in a code interpreter that keeps variables, imports and functions from one call to the next.
/// Returns printed output, the value of the last expression, and images such as matplotlib figures. The sandbox must have the image
/// code-interpreter, which the sandbox of this session gets if run_code is the first tool that uses it and the service has that image. For
/// programs and shell commands use run_command.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunCode {
    /// The code.
    #[schemars(length(min = 1, max = LONGEST_CODE))]
    code: String,
    /// python, javascript or bash. Default: python. Not together with contextId.
    #[schemars(length(max = 64))]
    language: Option<String>,
    /// The context of an earlier result. Default: one context for each language.
    #[schemars(length(max = 64))]
    context_id: Option<String>,
    /// Time after which the code is interrupted. Default: 60.
    #[schemars(range(min = 1, max = LONGEST_TIMEOUT_S))]
    timeout_seconds: Option<u64>,
    sandbox_id: Option<SandboxReference>,
}

impl Declared for RunCode {
    const NAME: &'static str = "run_code";
    const TITLE: &'static str = "Run code";
    const EFFECT: Effect = Effect::Runs;
    type Output = CodeRan;

    async fn call(self, call: &ToolCall) -> Result<ToolReply<CodeRan>, ToolFailure> {
        run(call, self).await
    }
}

/// What code did so far.
#[derive(Default)]
struct Collected {
    page: OutputPage,
    /// The output for the file.
    whole: String,
    results: Vec<CodeResult>,
    exception: Option<CodeException>,
    context_id: Option<String>,
    duration_ms: Option<u64>,
}

/// What code printed and returned.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CodeRan {
    /// The sandbox.
    sandbox_id: String,
    /// The context in which the code ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<String>,
    /// Standard output, from the beginning.
    stdout: String,
    /// Standard error, from the beginning.
    stderr: String,
    /// The end of a longer output, stdout and stderr together.
    #[serde(skip_serializing_if = "Option::is_none")]
    tail: Option<String>,
    /// Bytes of output after stdout and stderr, tail included.
    #[serde(skip_serializing_if = "is_zero")]
    omitted_bytes: u64,
    /// A file in the sandbox with the output, if it is longer. Read it with read_file.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_file: Option<String>,
    /// Values in their forms (text, html, markdown, latex, json, svg). Images are content of the result.
    results: Vec<JsonObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exception: Option<Raised>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
}

/// What the code raised.
#[derive(Debug, Serialize, JsonSchema)]
struct Raised {
    /// Its class.
    name: String,
    /// Its message.
    value: String,
    /// Where it was raised.
    traceback: String,
}

impl Raised {
    /// The exception in bounded texts, as they are without a terminal.
    fn of(exception: &CodeException) -> Self {
        let bounded = |text: &str| without_escapes(beginning(text, LONGEST_FORM));
        let CodeException { name, value, traceback } = exception;
        Self { name: bounded(name), value: bounded(value), traceback: bounded(traceback) }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

async fn run(call: &ToolCall, arguments: RunCode) -> Result<ToolReply<CodeRan>, ToolFailure> {
    let RunCode { code, language, context_id, timeout_seconds, sandbox_id } = arguments;
    let timeout_s =
        within("timeoutSeconds", timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_S), 1, LONGEST_TIMEOUT_S)?;
    let timeout = Duration::from_secs(timeout_s);
    if code.len() > LONGEST_CODE {
        return Err(ToolFailure::argument(format!(
            "code has {} bytes; it must have at most {LONGEST_CODE}.",
            code.len()
        )));
    }
    let target = call.target_for(sandbox_id.as_deref(), FirstUse::Code).await?;
    let mut run = target.sandbox.run_code(code).timeout(timeout);
    run = run
        .set_some(language, sandboxd_client::RunCode::language)
        .set_some(context_id, sandboxd_client::RunCode::context);
    let mut collected = Collected::default();
    // A stream that is dropped interrupts the code.
    let mut outputs = match run.stream().await {
        Ok(outputs) => outputs,
        Err(error) => return Err(failed(call, &target.sandbox, error).await),
    };
    let started = Instant::now();
    let mut ticks = tokio::time::interval_at(started + PROGRESS_INTERVAL, PROGRESS_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let output = tokio::select! {
            biased;
            () = call.cancelled.cancelled() => return Err(ToolFailure::cancelled()),
            _ = ticks.tick(), if call.progress.is_some() => {
                if let Some(progress) = &call.progress {
                    let passed = started.elapsed().as_secs_f64();
                    progress.send(passed, Some(timeout.as_secs_f64()), &collected.page.last_line).await;
                }
                continue;
            }
            output = outputs.next() => output,
        };
        match output {
            None => break,
            Some(Ok(output)) => collected.add(output),
            Some(Err(error)) => return Err(failed(call, &target.sandbox, error).await),
        }
    }
    Ok(collected.finish(&target.sandbox, target.note).await)
}

/// As [`ToolCall::failed`], with advice for a sandbox without an interpreter.
async fn failed(call: &ToolCall, sandbox: &Sandbox, error: Error) -> ToolFailure {
    match error.code() {
        Code::NoInterpreter => ToolFailure::new(
            format!("The sandbox {} has no code interpreter.", sandbox.id()),
            "Call create_sandbox with the image code-interpreter and pass its sandboxId, or run a program with run_command.",
        ),
        Code::ContextNotFound => ToolFailure::new(
            "There is no context with this contextId in the sandbox.",
            "Leave contextId out to use the default context; its variables may have to be set again.",
        ),
        _ => call.failed(sandbox, error).await,
    }
}

impl Collected {
    fn add(&mut self, output: CodeOutput) {
        match output {
            CodeOutput::Stdout(text) => self.add_text(text, Output::Stdout),
            CodeOutput::Stderr(text) => self.add_text(text, Output::Stderr),
            CodeOutput::Result(result) if self.results.len() < MOST_RESULTS => self.results.push(*result),
            CodeOutput::Result(_) => {}
            CodeOutput::Exception(exception) => self.exception = Some(exception),
            CodeOutput::Done(done) => {
                self.context_id = Some(done.context_id);
                self.duration_ms = Some(done.duration_ms);
            }
        }
    }

    fn add_text(&mut self, text: String, output: fn(String) -> Output) {
        let room = LONGEST_FILE.saturating_sub(self.whole.len());
        self.whole.push_str(beginning(&text, room));
        self.page.add(output(text), None);
    }

    async fn finish(self, sandbox: &Sandbox, note: Option<String>) -> ToolReply<CodeRan> {
        let mut notes: Vec<String> = note.into_iter().collect();
        let mut output_file = None;
        if self.page.is_full() {
            let path = format!("/tmp/run_code-{}.txt", UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos());
            match sandbox.files().write(&path, self.whole).await {
                Ok(_) => output_file = Some(path),
                Err(error) => notes.push(format!("The output could not be stored in the sandbox: {error}.")),
            }
        }
        let ran = CodeRan {
            sandbox_id: sandbox.id().to_string(),
            context_id: self.context_id,
            tail: self.page.tail(),
            omitted_bytes: self.page.omitted_bytes,
            output_file,
            results: self.results.iter().map(forms).collect(),
            exception: self.exception.as_ref().map(Raised::of),
            duration_ms: self.duration_ms,
            stdout: self.page.stdout,
            stderr: self.page.stderr,
        };
        ToolReply::texts(ran.texts().into_iter().chain(notes), ran).with(images(&self.results))
    }
}

impl CodeRan {
    fn texts(&self) -> Vec<String> {
        let mut texts = vec![self.stdout.clone()];
        if !self.stderr.is_empty() {
            texts.push(format!("[stderr]\n{}", self.stderr));
        }
        if let Some(tail) = &self.tail {
            texts.push(format!("[{} bytes follow; they end with:]\n{tail}", self.omitted_bytes));
        }
        for value in &self.results {
            let form =
                ["text", "markdown", "html", "latex"].into_iter().find_map(|form| value.get(form)?.as_str());
            texts.extend(form.map(str::to_owned));
        }
        if let Some(Raised { name, value, traceback }) = &self.exception {
            let shown = if traceback.is_empty() { format!("{name}: {value}") } else { traceback.clone() };
            texts.push(format!("[exception]\n{shown}"));
        }
        if let Some(file) = &self.output_file {
            texts.push(format!("The output is in {file}; read it with read_file."));
        }
        if texts.iter().all(String::is_empty) {
            texts.push("The code printed nothing and has no value.".to_owned());
        }
        texts
    }
}

/// The textual forms of a value, each of bounded length.
fn forms(value: &CodeResult) -> JsonObject {
    let mut forms = JsonObject::new();
    forms.insert("isMainResult".to_owned(), value.is_main_result.into());
    let texts = [
        ("text", &value.text),
        ("html", &value.html),
        ("markdown", &value.markdown),
        ("svg", &value.svg),
        ("latex", &value.latex),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            forms.insert(name.to_owned(), beginning(text, LONGEST_FORM).into());
        }
    }
    if let Some(json) = value.json.as_ref().filter(|json| json.to_string().len() <= LONGEST_FORM) {
        forms.insert("json".to_owned(), json.clone());
    }
    forms
}

/// The images of all values, as far as they fit.
fn images(results: &[CodeResult]) -> Vec<ContentBlock> {
    let mut room = LONGEST_IMAGES;
    let mut images = Vec::new();
    for value in results {
        let image = value.png.as_ref().map(|data| (data, "image/png"));
        let Some((data, kind)) = image.or_else(|| value.jpeg.as_ref().map(|data| (data, "image/jpeg")))
        else {
            continue;
        };
        if data.len() > room {
            images.push(ContentBlock::text(
                "[an image is too large for the result; save it to a file and make it smaller]",
            ));
            continue;
        }
        room -= data.len();
        images.push(ContentBlock::image(data.trim(), kind));
    }
    images
}

/// The first `most` bytes, without a cut character.
fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|index| text.is_char_boundary(*index));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

/// The text without the sequences that color it on a terminal.
fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        if character != '\u{1b}' {
            plain.push(character);
        } else if rest.next() == Some('[') {
            // Until the final byte of the sequence.
            rest.by_ref().find(|character| ('@'..='~').contains(character));
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_removed_and_texts_are_cut_at_characters() {
        assert_eq!(without_escapes("\u{1b}[0;31mError\u{1b}[0m: x\u{1b}"), "Error: x");
        assert_eq!(beginning("äöü", 3), "ä");
        assert_eq!(beginning("ä", 10), "ä");
    }

    #[test]
    fn images_beyond_the_bound_are_left_out() {
        let image = |bytes: usize| CodeResult { png: Some("A".repeat(bytes)), ..CodeResult::default() };
        let blocks = images(&[image(LONGEST_IMAGES), image(1), CodeResult::default()]);
        assert_eq!(blocks.len(), 2);
        assert!(matches!(&blocks[0], ContentBlock::Image(_)) && matches!(&blocks[1], ContentBlock::Text(_)));
    }

    fn ran() -> CodeRan {
        CodeRan {
            sandbox_id: "sb_1".to_owned(),
            context_id: None,
            stdout: String::new(),
            stderr: String::new(),
            tail: None,
            omitted_bytes: 0,
            output_file: None,
            results: Vec::new(),
            exception: None,
            duration_ms: None,
        }
    }

    fn value(forms: &[(&str, &str)]) -> JsonObject {
        forms.iter().map(|(name, text)| ((*name).to_owned(), (*text).into())).collect()
    }

    #[test]
    fn a_value_is_shown_in_the_form_that_is_easiest_to_read() {
        let shown = |forms: &[(&str, &str)]| CodeRan { results: vec![value(forms)], ..ran() }.texts();
        assert_eq!(shown(&[("html", "<b>"), ("markdown", "**"), ("text", "t"), ("latex", "$")])[1], "t");
        assert_eq!(shown(&[("html", "<b>"), ("markdown", "**")])[1], "**");
        assert_eq!(shown(&[("latex", "$"), ("html", "<b>")])[1], "<b>");
        assert_eq!(shown(&[("latex", "$"), ("svg", "<svg>")])[1], "$");
        // It is an image of the result.
        assert_eq!(shown(&[("svg", "<svg>")]), ["", "The code printed nothing and has no value."]);
    }

    #[test]
    fn an_exception_is_shown_by_its_traceback_and_silence_is_said() {
        let raised = |traceback: &str| {
            let exception =
                Raised { name: "E".to_owned(), value: "v".to_owned(), traceback: traceback.to_owned() };
            CodeRan { exception: Some(exception), ..ran() }.texts()
        };
        assert_eq!(raised(""), ["", "[exception]\nE: v"]);
        assert_eq!(raised("line 1"), ["", "[exception]\nline 1"]);
        assert_eq!(ran().texts(), ["", "The code printed nothing and has no value."]);
        let long = CodeRan {
            stdout: "a".to_owned(),
            stderr: "b".to_owned(),
            tail: Some("z".to_owned()),
            omitted_bytes: 7,
            output_file: Some("/tmp/x".to_owned()),
            ..ran()
        };
        let file = "The output is in /tmp/x; read it with read_file.";
        assert_eq!(long.texts(), ["a", "[stderr]\nb", "[7 bytes follow; they end with:]\nz", file]);
    }

    #[test]
    fn forms_are_bounded_and_a_cut_document_is_none() {
        let long = "ä".repeat(LONGEST_FORM);
        let result = CodeResult {
            text: Some(long.clone()),
            json: Some(serde_json::json!([long])),
            is_main_result: true,
            ..CodeResult::default()
        };
        let shown = forms(&result);
        assert_eq!(shown["text"].as_str().map(str::len), Some(LONGEST_FORM));
        assert!(!shown.contains_key("json") && !shown.contains_key("html"));
        assert_eq!(shown["isMainResult"], true);
        let small = CodeResult { json: Some(serde_json::json!({ "a": 1 })), ..CodeResult::default() };
        assert_eq!(forms(&small)["json"], serde_json::json!({ "a": 1 }));
    }

    #[test]
    fn what_code_does_is_kept_up_to_the_bounds() {
        let mut collected = Collected::default();
        for _ in 0..=MOST_RESULTS {
            collected.add(CodeOutput::Result(Box::default()));
        }
        assert_eq!(collected.results.len(), MOST_RESULTS);
        let piece = "ä".repeat(LONGEST_FILE / 2);
        collected.add(CodeOutput::Stdout(format!("a{piece}")));
        // One byte is left, and no room for a character of two.
        assert_eq!(collected.whole.len(), LONGEST_FILE - 1);
        collected.add(CodeOutput::Stderr("xy".to_owned()));
        assert!(collected.whole.ends_with('x') && collected.whole.len() == LONGEST_FILE);
        collected.add(CodeOutput::Stdout("more".to_owned()));
        assert_eq!(collected.whole.len(), LONGEST_FILE);
        let raised = CodeException { name: "E".to_owned(), ..CodeException::default() };
        collected.add(CodeOutput::Exception(raised));
        let done = sandboxd_client::CodeDone {
            execution_count: None,
            context_id: "c".to_owned(),
            duration_ms: 3,
            output_truncated: false,
        };
        collected.add(CodeOutput::Done(done));
        assert_eq!((collected.context_id.as_deref(), collected.duration_ms), (Some("c"), Some(3)));
        assert!(collected.exception.is_some());
    }

    #[test]
    fn an_exception_is_bounded_and_without_colors() {
        let exception = CodeException {
            name: "\u{1b}[1mE".to_owned(),
            value: "v".repeat(LONGEST_FORM + 1),
            traceback: "\u{1b}[0;31mline\u{1b}[0m".to_owned(),
        };
        let raised = Raised::of(&exception);
        assert_eq!((raised.name.as_str(), raised.traceback.as_str()), ("E", "line"));
        assert_eq!(raised.value.len(), LONGEST_FORM);
    }
}
