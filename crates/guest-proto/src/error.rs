//! Errors in received bytes, or in a message to be sent.
//!
//! The receiver cannot recover from any of them: it ends the link.

/// An invalid frame or message, or a violation of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtoError {
    /// The length exceeds the maximum of a frame.
    #[error("a frame has {len} bytes; at most {max} are allowed")]
    TooLong { len: usize, max: usize },
    /// The body is not the encoding of any message.
    #[error("the body of a frame is malformed: {reason}")]
    Malformed { reason: &'static str },
    /// The body is longer than its message.
    #[error("a frame has {extra} bytes after its message")]
    Trailing { extra: usize },
    /// The value of a field is invalid.
    #[error("{field} {reason}")]
    Invalid { field: &'static str, reason: &'static str },
    /// A field has too many elements or bytes.
    #[error("{field} has {got} elements or bytes; at most {max} are allowed")]
    TooMany { field: &'static str, got: usize, max: usize },
    /// More bytes were sent than granted, or more were granted than allowed.
    #[error("{what} of {got} bytes exceeds the open window of {allowed}")]
    Credit { what: &'static str, got: usize, allowed: usize },
    /// The two sides have no version in common.
    #[error("the peer supports protocol versions {their_min} to {theirs}, this side {ours_min} to {ours}")]
    Version { theirs: u16, their_min: u16, ours: u16, ours_min: u16 },
}

/// Fails if bytes follow the message.
pub(crate) fn expect_no_rest(rest: &[u8]) -> Result<(), ProtoError> {
    if rest.is_empty() { Ok(()) } else { Err(ProtoError::Trailing { extra: rest.len() }) }
}

/// Converts an error of the encoding.
pub(crate) fn malformed(error: &postcard::Error) -> ProtoError {
    use postcard::Error;
    let reason = match error {
        Error::DeserializeUnexpectedEnd => "it ends too early",
        Error::DeserializeBadVarint => "a number is too long",
        Error::DeserializeBadBool => "a bool is neither 0 nor 1",
        Error::DeserializeBadUtf8 => "a text is not UTF-8",
        Error::DeserializeBadOption => "an option is neither 0 nor 1",
        Error::DeserializeBadEnum => "there is no such variant",
        Error::SerdeDeCustom => "a kind is unknown or a list too long",
        _ => "it cannot be read",
    };
    ProtoError::Malformed { reason }
}
