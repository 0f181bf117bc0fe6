//! Code that runs: its events, its time limit, and its end. Used by the buffered response and by the stream.

use admission::error::ApiError;
use admission::output_memory::OutputReservation;
use api::{CodeException, CodeExecution};
use engine::ExternalExecution;
use rules::CappedOutput;
use service::error::invalid_interpreter;

use crate::interpreter::{self, Event, Reply};

/// Code that runs. Dropping it interrupts the code.
pub struct Running {
    pub run: ExternalExecution,
    pub reply: Reply,
    pub memory: OutputReservation,
    pub context_id: String,
    pub execution_count: Option<u64>,
    pub raised: bool,
    /// Whether output was omitted.
    pub truncated: bool,
}

/// The next thing that the code did.
pub enum CodeStep {
    Event(Event),
    /// All output was read. The duration in ms.
    End(u64),
}

impl Running {
    /// Cancel safe.
    pub async fn step(&mut self) -> Result<CodeStep, ApiError> {
        let next = self.reply.next(&mut self.memory);
        let event = match self.run.within(next).await {
            Some(Ok(Some(event))) => event,
            // Older programs end a response so when its context is restarted.
            Some(Ok(None)) if self.reply.announces_end() => {
                let value =
                    "the code interpreter ended the execution; its context was probably restarted or removed";
                return Ok(CodeStep::Event(self.ended_by("KernelDied", value)));
            }
            Some(Ok(None)) => {
                let error = invalid_interpreter("it ended its response before the code");
                self.run.failed(&error.message);
                return Err(error);
            }
            Some(Err(error)) => {
                self.run.failed(&error.message);
                return Err(error);
            }
            // The code is interrupted when this is dropped.
            None => {
                let value = "the code did not end within its timeoutMs and was interrupted";
                return Ok(CodeStep::Event(self.ended_by("Timeout", value)));
            }
        };
        Ok(self.seen(event))
    }

    /// The next step if it is here already.
    pub fn ready(&mut self) -> Option<Result<CodeStep, ApiError>> {
        Some(self.reply.ready()?.map(|event| self.seen(event)))
    }

    fn seen(&mut self, event: Event) -> CodeStep {
        match &event {
            Event::Stdout { text } => self.run.count(text.len(), 0),
            Event::Stderr { text } => self.run.count(0, text.len()),
            Event::NumberOfExecutions { execution_count } => self.execution_count = *execution_count,
            Event::Error(_) => self.raised = true,
            Event::OutputOmitted => self.truncated = true,
            // As of a command: 1 if the code raised an exception.
            Event::EndOfExecution => return CodeStep::End(self.run.completed(i32::from(self.raised))),
            Event::Result(_) | Event::Other => {}
        }
        CodeStep::Event(event)
    }

    /// An exception that no code raised, after which no more events are read.
    fn ended_by(&mut self, name: &str, value: &str) -> Event {
        self.reply.end();
        self.raised = true;
        let (name, value) = (name.to_owned(), value.to_owned());
        Event::Error(CodeException { name, value, traceback: String::new() })
    }

    /// Runs to the end.
    pub async fn collect(mut self, max_output_bytes: usize) -> Result<CodeExecution, ApiError> {
        let (mut stdout, mut stderr) =
            (CappedOutput::new(max_output_bytes), CappedOutput::new(max_output_bytes));
        let (mut results, mut exception, mut kept) = (Vec::new(), None, 0);
        let duration_ms = loop {
            let before = self.reply.received();
            match self.step().await? {
                CodeStep::End(duration_ms) => break duration_ms,
                CodeStep::Event(Event::Stdout { text }) => stdout.push(text.as_bytes()),
                CodeStep::Event(Event::Stderr { text }) => stderr.push(text.as_bytes()),
                CodeStep::Event(Event::Result(result)) => results.push(interpreter::result(result)?),
                CodeStep::Event(Event::Error(error)) => exception = Some(error),
                CodeStep::Event(_) => {}
            }
            kept += self.reply.received() - before;
            // What is kept, and its copy as JSON.
            self.memory.cover(kept * 2).await.inspect_err(|error| self.run.failed(&error.message))?;
        };
        let (stdout, stderr) = (stdout.finish(), stderr.finish());
        Ok(CodeExecution {
            output_truncated: self.truncated || stdout.truncated || stderr.truncated,
            stdout: stdout.into_text(),
            stderr: stderr.into_text(),
            results,
            exception,
            execution_count: self.execution_count,
            context_id: std::mem::take(&mut self.context_id),
            duration_ms,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Only the first end of an execution is recorded.
        self.run.failed("its client disconnected or the daemon stopped, so the code was interrupted");
    }
}
