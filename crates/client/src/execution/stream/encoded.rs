//! Output in base64. A service of an earlier version sends text instead, so the response says which it is.

use api::OutputEncoding;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::{Error, Result};

/// The bytes of an output, and the response that had them.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// let output = sandbox.execute("echo hi >&2").bytes().await?;
/// assert_eq!((&output.stderr[..], output.result.exit_code), (&b"hi\n"[..], Some(0)));
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputBytes<T> {
    /// The bytes of standard output.
    pub stdout: Bytes,
    /// The bytes of standard error.
    pub stderr: Bytes,
    /// The response, in which `stdout` and `stderr` are empty.
    pub result: T,
}

impl<T> OutputBytes<T> {
    pub(crate) fn new(texts: [String; 2], encoding: OutputEncoding, result: T) -> Result<Self> {
        let [stdout, stderr] = texts.map(|text| match encoding {
            OutputEncoding::Text => Ok(text.into()),
            OutputEncoding::Base64 => decoded(&text),
        });
        Ok(Self { stdout: stdout?, stderr: stderr?, result })
    }
}

/// The bytes of an output in base64.
pub fn decoded(text: &str) -> Result<Bytes> {
    match STANDARD.decode(text) {
        Ok(bytes) => Ok(bytes.into()),
        Err(error) => Err(Error::unknown(200, "the output is not base64", None).caused_by(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_decoded_as_the_response_says() {
        let texts = || ["aGk=".to_owned(), "/w==".to_owned()];
        let decoded = OutputBytes::new(texts(), OutputEncoding::Base64, 7).unwrap();
        assert_eq!((&decoded.stdout[..], &decoded.stderr[..], decoded.result), (&b"hi"[..], &b"\xff"[..], 7));
        let text = OutputBytes::new(texts(), OutputEncoding::Text, ()).unwrap();
        assert_eq!((&text.stdout[..], &text.stderr[..]), (&b"aGk="[..], &b"/w=="[..]));
        let damaged = OutputBytes::new([String::new(), "*".to_owned()], OutputEncoding::Base64, ());
        assert_eq!(damaged.unwrap_err().code(), crate::Code::Unknown);
    }
}
