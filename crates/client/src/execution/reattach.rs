//! The output of a detached execution as a stream that reconnects.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::{BoxStream, StreamExt, try_unfold};
use tokio::time::Instant;

use crate::execution::detached::Detached;
use crate::execution::stream::{BYTES, EventSource, LINES, LINES_WITH_ENDS, Output, OutputForm};
use crate::transport::ApiCall;
use crate::{Code, Error, Result};

/// Limit for reconnecting without success.
const LONGEST_AWAY: Duration = Duration::from_secs(120);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// The id of the last event, which is the output offset after it.
const END: &str = "end";

/// A stream of [`Output`], which ends after [`Output::Done`] or the first error. It reconnects for up to two minutes after a lost
/// connection and continues after the last line, so that no line is missed or repeated.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// use futures_util::TryStreamExt;
/// let mut output = sandbox.start("echo hi").await?.follow();
/// while let Some(output) = output.try_next().await? {
///     println!("{output:?}");
/// }
/// # Ok(()) });
/// ```
pub struct Following<T = String> {
    events: BoxStream<'static, Result<Output<T>>>,
    offset: SharedOffset,
}

type SharedOffset = Arc<Mutex<Option<String>>>;

impl<T: Send + 'static> Following<T> {
    pub(crate) fn new(execution: Detached, offset: Option<String>, form: OutputForm<T>) -> Self {
        let offset: SharedOffset = Arc::new(Mutex::new(offset));
        let begin =
            FollowingState { execution, form, offset: Arc::clone(&offset), source: None, over: false };
        let events = try_unfold(begin, |mut state| async move {
            let output = state.next().await?;
            Ok(output.map(|output| (output, state)))
        });
        Self { events: events.boxed(), offset }
    }

    /// The offset after the last line, for [`Detached::follow_from`]; `None` before the first line.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// use futures_util::TryStreamExt;
    /// let mut output = sandbox.start("echo hi").await?.follow();
    /// assert_eq!(output.offset(), None);
    /// output.try_next().await?;
    /// assert_eq!(output.offset().as_deref(), Some("3.0"));
    /// # Ok(()) });
    /// ```
    pub fn offset(&self) -> Option<String> {
        self.offset.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Detached {
    /// Streams the output line by line from the beginning, followed by the result.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// use futures_util::TryStreamExt;
    /// let mut output = sandbox.start("echo hi").await?.follow();
    /// assert_eq!(output.try_next().await?, Some(sandboxd_client::Output::Stdout("hi".into())));
    /// # Ok(()) });
    /// ```
    pub fn follow(&self) -> Following {
        Following::new(self.clone(), None, LINES)
    }

    /// Like [`follow`](Self::follow), but keeps line ends: `\n`, `\r\n`, or none for a part of a long line and for a last line without
    /// one. The concatenation is the output as written, with U+FFFD for bytes that are not UTF-8; [`follow_bytes`](Self::follow_bytes) has
    /// them.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// use futures_util::TryStreamExt;
    /// let command = sandbox.execute("cat").stdin("no end").detached().await?;
    /// let mut output = command.follow_with_line_ends();
    /// assert_eq!(output.try_next().await?, Some(sandboxd_client::Output::Stdout("no end".into())));
    /// # Ok(()) });
    /// ```
    pub fn follow_with_line_ends(&self) -> Following {
        Following::new(self.clone(), None, LINES_WITH_ENDS)
    }

    /// Like [`follow`](Self::follow), but starts after an [offset](Following::offset).
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// use futures_util::TryStreamExt;
    /// let command = sandbox.start("echo one; echo two").await?;
    /// let mut output = command.follow();
    /// output.try_next().await?;
    /// let rest: Vec<_> = command.follow_from(output.offset().unwrap()).try_collect().await?;
    /// assert_eq!(rest[0], sandboxd_client::Output::Stdout("two".into()));
    /// # Ok(()) });
    /// ```
    pub fn follow_from(&self, offset: impl Into<String>) -> Following {
        Following::new(self.clone(), Some(offset.into()), LINES)
    }

    /// Like [`follow_from`](Self::follow_from), with the line ends of
    /// [`follow_with_line_ends`](Self::follow_with_line_ends).
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// use futures_util::TryStreamExt;
    /// let command = sandbox.start("echo one; echo two").await?;
    /// let mut output = command.follow_with_line_ends();
    /// output.try_next().await?;
    /// let mut rest = command.follow_with_line_ends_from(output.offset().unwrap());
    /// assert_eq!(rest.try_next().await?, Some(sandboxd_client::Output::Stdout("two\n".into())));
    /// # Ok(()) });
    /// ```
    pub fn follow_with_line_ends_from(&self, offset: impl Into<String>) -> Following {
        Following::new(self.clone(), Some(offset.into()), LINES_WITH_ENDS)
    }

    /// Like [`follow`](Self::follow), with the exact bytes of the output as they come, also if they are not UTF-8.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// use futures_util::TryStreamExt;
    /// let command = sandbox.start("echo hi").await?;
    /// let mut output = command.follow_bytes();
    /// assert_eq!(output.try_next().await?, Some(sandboxd_client::Output::Stdout("hi\n".into())));
    /// # Ok(()) });
    /// ```
    pub fn follow_bytes(&self) -> Following<Bytes> {
        Following::new(self.clone(), None, BYTES)
    }

    /// Like [`follow_bytes`](Self::follow_bytes), but starts after an [offset](Following::offset).
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// use futures_util::TryStreamExt;
    /// let command = sandbox.execute("echo one; echo two").detached().await?;
    /// command.wait().await?;
    /// let output = command.output_bytes(None).await?;
    /// let rest: Vec<_> = command.follow_bytes_from(output.result.next).try_collect().await?;
    /// assert_eq!((&output.stdout[..], rest.len()), (&b"one\ntwo\n"[..], 1));
    /// # Ok(()) });
    /// ```
    pub fn follow_bytes_from(&self, offset: impl Into<String>) -> Following<Bytes> {
        Following::new(self.clone(), Some(offset.into()), BYTES)
    }
}

impl<T> Stream for Following<T> {
    type Item = Result<Output<T>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().events.as_mut().poll_next(cx)
    }
}

struct FollowingState<T> {
    execution: Detached,
    form: OutputForm<T>,
    offset: SharedOffset,
    source: Option<EventSource>,
    over: bool,
}

impl<T> FollowingState<T> {
    async fn next(&mut self) -> Result<Option<Output<T>>> {
        let mut away: Option<Instant> = None;
        let mut wait = FIRST_WAIT;
        while !self.over {
            let error = match self.try_next().await {
                Ok(output) => return Ok(output),
                Err(error) => error,
            };
            self.source = None;
            let since = *away.get_or_insert_with(Instant::now);
            if !passes(&error) || since.elapsed() > LONGEST_AWAY {
                self.over = true;
                return Err(self.execution.sandbox().failed(error));
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        Ok(None)
    }

    async fn try_next(&mut self) -> Result<Option<Output<T>>> {
        loop {
            let source = match &mut self.source {
                Some(source) => source,
                None => match self.open().await? {
                    Some(source) => self.source.insert(source),
                    None => return Ok(None),
                },
            };
            let event = source.next().await?;
            let event = event.ok_or_else(|| Error::network("the stream ended before the execution did"))?;
            let id = event.id.clone();
            // A temporary error carries no output, so the offset is unchanged.
            let Some(output) = self.form.parse(event)? else { continue };
            self.over = matches!(output, Output::Done(_));
            *self.offset.lock().unwrap_or_else(PoisonError::into_inner) = id;
            return Ok(Some(output));
        }
    }

    /// `None` if there is no more output.
    async fn open(&mut self) -> Result<Option<EventSource>> {
        let offset = self.offset.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let what = format!("/output{}", self.form.query);
        let mut call = ApiCall::get(self.execution.path(&what)).accept("text/event-stream");
        if let Some(offset) = &offset {
            call = call.after(offset)?;
        }
        let response = self.execution.sandbox().client().transport().stream(call).await?;
        if offset.as_deref() == Some(END) && response.status().as_u16() == 204 {
            self.over = true;
            return Ok(None);
        }
        Ok(Some(EventSource::new(response)))
    }
}

/// Whether the error is temporary, so that reconnecting may succeed.
pub fn passes(error: &Error) -> bool {
    matches!(
        error.code(),
        Code::NetworkError | Code::ResourceExhausted | Code::RateLimited | Code::InternalError
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_of_the_service_or_the_network_pass() {
        let of = |code: &str| {
            let body = format!(r#"{{"error":{{"code":"{code}","message":"m"}}}}"#);
            Error::of_answer(500, body.as_bytes(), None, None)
        };
        for code in ["RESOURCE_EXHAUSTED", "RATE_LIMITED", "INTERNAL_ERROR"] {
            assert!(passes(&of(code)), "{code}");
        }
        assert!(passes(&Error::network("interrupted")));
        for code in [
            "SANDBOX_NOT_FOUND",
            "EXECUTION_NOT_FOUND",
            "UNAUTHORIZED",
            "INVALID_STATE",
            "DISK_FULL",
            "BURNT",
        ] {
            assert!(!passes(&of(code)), "{code}");
        }
        assert!(!passes(&Error::configuration("no key")) && !passes(&Error::unknown(200, "?", None)));
    }
}
