//! Running code in the code interpreter of a sandbox, and its contexts.

use std::time::Duration;

use api::{
    CodeBody, CodeContext, CodeContextBody, CodeContextList, CodeContextRemoved, CodeDone, CodeException,
    CodeExecution, CodeResult, CodeText, EventKind,
};
use futures_util::stream::{BoxStream, StreamExt, try_unfold};
use hyper::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::execution::exec_events::{completed, failed, truncated};
use crate::execution::stream::EventSource;
use crate::millis::ms;
use crate::sandbox::Sandbox;
use crate::sse::Event;
use crate::transport::ApiCall;
use crate::transport::retry::Safety;
use crate::{Error, Result};

/// The default of the service.
const TIMEOUT_MS: u64 = 60_000;

impl Sandbox {
    /// Runs code in the sandbox's code interpreter; the sandbox needs an image that has one, such as `code-interpreter`. `.await` waits
    /// for the end of the code; [`RunCode::stream`] streams its output. Dropping the future or the stream interrupts the code.
    ///
    /// ```no_run
    /// # async fn example(client: sandboxd_client::Client) -> sandboxd_client::Result<()> {
    /// let sandbox = client.create("code-interpreter").await?;
    /// let execution = sandbox.run_code("x = 20\nx + 1").await?;
    /// assert_eq!(execution.results[0].text.as_deref(), Some("21"));
    /// assert_eq!(sandbox.run_code("x").await?.results[0].text.as_deref(), Some("20"));
    /// # Ok(()) }
    /// ```
    pub fn run_code(&self, code: impl Into<String>) -> RunCode {
        let body = CodeBody { code: code.into(), ..CodeBody::default() };
        RunCode { sandbox: self.clone(), body }
    }

    /// Lists the contexts of the code interpreter.
    ///
    /// ```no_run
    /// # async fn example(sandbox: sandboxd_client::Sandbox) -> sandboxd_client::Result<()> {
    /// for context in sandbox.code_contexts().await? {
    ///     println!("{} {}", context.context_id, context.language);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn code_contexts(&self) -> Result<Vec<CodeContext>> {
        let call = ApiCall::get(self.path("/code/contexts"));
        Ok(self.send::<CodeContextList>(call).await?.data)
    }

    /// Creates a context for `python`, `javascript`, `bash` or another kernel of the image, in the sandbox's `workdir` or in `cwd`. Code
    /// in it shares no state with other contexts, except files.
    ///
    /// ```no_run
    /// # async fn example(sandbox: sandboxd_client::Sandbox) -> sandboxd_client::Result<()> {
    /// let context = sandbox.create_code_context("javascript", Some("/tmp")).await?;
    /// sandbox.run_code("1 + 1").context(&context.context_id).await?;
    /// # Ok(()) }
    /// ```
    pub async fn create_code_context(&self, language: &str, cwd: Option<&str>) -> Result<CodeContext> {
        let body = CodeContextBody { language: Some(language.to_owned()), cwd: cwd.map(str::to_owned) };
        let call =
            ApiCall::new(Method::POST, self.path("/code/contexts"), Safety::OnlyUnstarted).json(&body)?;
        self.send(call).await
    }

    /// Replaces the kernel of a context by a new one, without the state of the old one.
    ///
    /// ```no_run
    /// # async fn example(sandbox: sandboxd_client::Sandbox, id: &str) -> sandboxd_client::Result<()> {
    /// sandbox.restart_code_context(id).await?;
    /// # Ok(()) }
    /// ```
    pub async fn restart_code_context(&self, context_id: &str) -> Result<CodeContext> {
        let path = self.path(&format!("/code/contexts/{}/restart", checked(context_id)?));
        self.send(ApiCall::new(Method::POST, path, Safety::Repeatable)).await
    }

    /// Removes a context and kills its kernel.
    ///
    /// ```no_run
    /// # async fn example(sandbox: sandboxd_client::Sandbox, id: &str) -> sandboxd_client::Result<()> {
    /// sandbox.remove_code_context(id).await?;
    /// # Ok(()) }
    /// ```
    pub async fn remove_code_context(&self, context_id: &str) -> Result<CodeContextRemoved> {
        let path = self.path(&format!("/code/contexts/{}", checked(context_id)?));
        self.send(ApiCall::new(Method::DELETE, path, Safety::AfterAnswer)).await
    }
}

/// An id becomes part of a path.
fn checked(context_id: &str) -> Result<&str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if !context_id.is_empty() && context_id.bytes().all(is_plain) {
        return Ok(context_id);
    }
    Err(Error::argument("context_id", "a context id has letters, digits and hyphens"))
}

/// Code to run. `.await` waits for its end; [`stream`](Self::stream) streams its output.
///
/// ```no_run
/// # async fn example(sandbox: sandboxd_client::Sandbox) -> sandboxd_client::Result<()> {
/// let execution = sandbox.run_code("echo $NAME").language("bash").env("NAME", "x").await?;
/// assert_eq!(execution.stdout, "x\n");
/// # Ok(()) }
/// ```
#[must_use = "code does nothing unless awaited, or started with .stream()"]
pub struct RunCode {
    sandbox: Sandbox,
    body: CodeBody,
}

impl RunCode {
    /// Sets the language: `python` (the default), `javascript`, `bash`, or another kernel of the image.
    ///
    /// ```no_run
    /// # async fn example(sandbox: sandboxd_client::Sandbox) -> sandboxd_client::Result<()> {
    /// sandbox.run_code("await Promise.resolve(1)").language("javascript").await?;
    /// # Ok(()) }
    /// ```
    pub fn language(mut self, language: impl Into<String>) -> Self {
        self.body.language = Some(language.into());
        self
    }

    /// Runs the code in this context instead of the default context of its language.
    ///
    /// ```no_run
    /// # async fn example(sandbox: sandboxd_client::Sandbox) -> sandboxd_client::Result<()> {
    /// let context = sandbox.create_code_context("python", None).await?;
    /// sandbox.run_code("x = 1").context(context.context_id).await?;
    /// # Ok(()) }
    /// ```
    pub fn context(mut self, context_id: impl Into<String>) -> Self {
        self.body.context_id = Some(context_id.into());
        self
    }

    /// Adds an environment variable for this execution.
    ///
    /// ```no_run
    /// # async fn example(sandbox: sandboxd_client::Sandbox) -> sandboxd_client::Result<()> {
    /// sandbox.run_code("import os; os.environ['A']").env("A", "1").await?;
    /// # Ok(()) }
    /// ```
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.body.env.get_or_insert_default().insert(name.into(), value.into());
        self
    }

    /// Interrupts the code after this time: by default 60 s, at most 5 minutes.
    ///
    /// ```no_run
    /// # async fn example(sandbox: sandboxd_client::Sandbox) -> sandboxd_client::Result<()> {
    /// let limit = std::time::Duration::from_secs(1);
    /// let execution = sandbox.run_code("while True: pass").timeout(limit).await?;
    /// assert_eq!(execution.exception.unwrap().name, "Timeout");
    /// # Ok(()) }
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.body.timeout_ms = Some(ms(timeout).into());
        self
    }

    /// Fails with [`InvalidState`](crate::Code::InvalidState) if the sandbox is paused, instead of resuming it.
    ///
    /// ```no_run
    /// # async fn example(sandbox: sandboxd_client::Sandbox) -> sandboxd_client::Result<()> {
    /// sandbox.run_code("1").without_resume().await?;
    /// # Ok(()) }
    /// ```
    pub fn without_resume(mut self) -> Self {
        self.body.auto_resume = Some(false);
        self
    }

    /// Runs the code and streams its output. Dropping the stream interrupts the code.
    ///
    /// ```no_run
    /// # async fn example(sandbox: sandboxd_client::Sandbox) -> sandboxd_client::Result<()> {
    /// use futures_util::TryStreamExt;
    /// use sandboxd_client::CodeOutput;
    /// let mut output = sandbox.run_code("print(1); 2").stream().await?;
    /// while let Some(event) = output.try_next().await? {
    ///     match event {
    ///         CodeOutput::Stdout(text) => print!("{text}"),
    ///         CodeOutput::Stderr(text) => eprint!("{text}"),
    ///         CodeOutput::Result(result) => println!("{:?}", result.text),
    ///         CodeOutput::Exception(exception) => eprintln!("{}", exception.traceback),
    ///         CodeOutput::Done(done) => println!("after {} ms", done.duration_ms),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn stream(self) -> Result<BoxStream<'static, Result<CodeOutput>>> {
        let call = self.call()?.accept("text/event-stream");
        let (sandbox, code) = (self.sandbox, truncated(&self.body.code));
        sandbox.record_event(EventKind::ExecStarted, &[("command", code.clone())]);
        match sandbox.stream(call).await {
            Ok(response) => {
                Ok(Reading { source: EventSource::new(response), sandbox, code, raised: false, over: false }
                    .stream())
            }
            Err(error) => Err(failed(&sandbox, code, error)),
        }
    }

    async fn send(self) -> Result<CodeExecution> {
        let limit = self.body.timeout_ms.map_or(TIMEOUT_MS, |ms| u64::try_from(ms).unwrap_or(TIMEOUT_MS));
        let transport = self.sandbox.client().transport();
        let call = self.call()?.timeout(Duration::from_millis(limit).saturating_add(transport.timeout()));
        let (sandbox, code) = (&self.sandbox, truncated(&self.body.code));
        sandbox.record_event(EventKind::ExecStarted, &[("command", code.clone())]);
        let execution: CodeExecution = match sandbox.json(call).await {
            Ok(execution) => execution,
            Err(error) => return Err(failed(sandbox, code, error)),
        };
        let exit = i32::from(execution.exception.is_some());
        completed(sandbox, code, execution.duration_ms, Some(exit), None);
        Ok(execution)
    }

    fn call(&self) -> Result<ApiCall> {
        ApiCall::new(Method::POST, self.sandbox.path("/code"), Safety::OnlyUnstarted).json(&self.body)
    }
}

awaited! { RunCode -> CodeExecution; }

/// An item of the output of code.
///
/// ```
/// let text = sandboxd_client::CodeOutput::Stdout("a\n".to_owned());
/// assert!(matches!(text, sandboxd_client::CodeOutput::Stdout(_)));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum CodeOutput {
    /// Text on standard output.
    Stdout(String),
    /// Text on standard error.
    Stderr(String),
    /// A value that the code showed.
    Result(Box<CodeResult>),
    /// What the code raised.
    Exception(CodeException),
    /// The end; always the last item.
    Done(CodeDone),
}

struct Reading {
    source: EventSource,
    sandbox: Sandbox,
    code: Value,
    raised: bool,
    over: bool,
}

impl Reading {
    fn stream(self) -> BoxStream<'static, Result<CodeOutput>> {
        try_unfold(self, |mut reading| async move {
            if reading.over {
                return Ok(None);
            }
            match reading.next().await {
                Ok(output) => Ok(Some((output, reading))),
                Err(error) => Err(failed(&reading.sandbox, reading.code, error)),
            }
        })
        .boxed()
    }

    async fn next(&mut self) -> Result<CodeOutput> {
        loop {
            let broken =
                || Error::network("the stream ended before the code did; the code may have been interrupted");
            let event = self.source.next().await?.ok_or_else(broken)?;
            let Some(output) = parse(&event)? else { continue };
            match &output {
                CodeOutput::Exception(_) => self.raised = true,
                CodeOutput::Done(done) => {
                    self.over = true;
                    completed(
                        &self.sandbox,
                        self.code.clone(),
                        done.duration_ms,
                        Some(i32::from(self.raised)),
                        None,
                    );
                }
                _ => {}
            }
            return Ok(output);
        }
    }
}

/// `None` for an event that this version does not know.
fn parse(event: &Event) -> Result<Option<CodeOutput>> {
    let data = &event.data;
    Ok(Some(match event.name.as_str() {
        "stdout" => CodeOutput::Stdout(document::<CodeText>(data)?.text),
        "stderr" => CodeOutput::Stderr(document::<CodeText>(data)?.text),
        "result" => CodeOutput::Result(Box::new(document(data)?)),
        "exception" => CodeOutput::Exception(document(data)?),
        "done" => CodeOutput::Done(document(data)?),
        "error" => {
            let unknown =
                || Error::unknown(200, "the stream ended with an error that cannot be parsed", None);
            return Err(Error::of_event(data).unwrap_or_else(unknown));
        }
        _ => return Ok(None),
    }))
}

fn document<T: DeserializeOwned>(data: &str) -> Result<T> {
    serde_json::from_str(data).map_err(|error| {
        Error::unknown(200, "an event of the stream cannot be parsed", None).caused_by(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, data: &str) -> Event {
        Event { name: name.to_owned(), data: data.to_owned(), id: None, end: None, encoding: None }
    }

    #[test]
    fn each_event_of_code_becomes_an_item() {
        let item = |name: &str, data: &str| parse(&event(name, data)).unwrap();
        assert_eq!(item("stdout", r#"{"text":"a\n"}"#), Some(CodeOutput::Stdout("a\n".to_owned())));
        assert_eq!(item("stderr", r#"{"text":""}"#), Some(CodeOutput::Stderr(String::new())));
        let raised = item("exception", r#"{"name":"E","value":"v","traceback":"t"}"#);
        assert!(matches!(raised, Some(CodeOutput::Exception(exception)) if exception.name == "E"));
        let done = item("done", r#"{"executionCount":null,"contextId":"c","durationMs":3}"#);
        assert!(
            matches!(done, Some(CodeOutput::Done(done)) if done.duration_ms == 3 && done.execution_count.is_none())
        );
        assert_eq!(item("progress", "?"), None, "of a newer service");
    }

    #[test]
    fn an_event_that_cannot_be_parsed_ends_the_stream() {
        for (name, data, code) in [
            ("stdout", "{}", crate::Code::Unknown),
            ("done", "?", crate::Code::Unknown),
            ("error", "?", crate::Code::Unknown),
            ("error", r#"{"code":"NO_INTERPRETER","message":"m"}"#, crate::Code::NoInterpreter),
        ] {
            assert_eq!(parse(&event(name, data)).unwrap_err().code(), code, "{name} {data}");
        }
    }

    #[test]
    fn the_id_of_a_context_cannot_leave_its_part_of_the_path() {
        for id in ["a", "0f3c-7A", "-"] {
            assert_eq!(checked(id).unwrap(), id);
        }
        for id in ["", "a/b", "..", "a?b", "a b", "é", "a%2Fb"] {
            let error = checked(id).unwrap_err();
            assert_eq!(
                (error.code(), &error.details()["argument"]),
                (crate::Code::InvalidArgument, &Value::from("context_id")),
                "{id}"
            );
        }
    }
}
