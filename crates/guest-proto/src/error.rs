//! What can be wrong with bytes that came from the other side, or with a frame that is to be sent.
//!
//! None of these can be mended by reading on: the receiver ends the link.

/// Why bytes are no frame, a frame is no message, or a message breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtoError {
    /// The length in front says more than a frame may have, or what is to be sent is longer.
    #[error("a frame of {len} bytes, allowed are {max}")]
    TooLong { len: usize, max: usize },
    /// The body is not the encoding of any message.
    #[error("the body of a frame is malformed: {reason}")]
    Malformed { reason: &'static str },
    /// The body goes on behind its message.
    #[error("{extra} bytes too many at the end of a frame")]
    Trailing { extra: usize },
    /// A field is out of its bounds.
    #[error("{field} {reason}")]
    Invalid { field: &'static str, reason: &'static str },
    /// There are more elements or bytes in a field than it may have.
    #[error("{field} has {got}, allowed are {max}")]
    TooMany { field: &'static str, got: usize, max: usize },
    /// More bytes came than were granted, or more were granted than may be open.
    #[error("{what} of {got} bytes where {allowed} were open")]
    Credit { what: &'static str, got: usize, allowed: usize },
    /// The two sides have no version in common.
    #[error("the other side speaks versions {their_min} to {theirs}, this side {ours_min} to {ours}")]
    Version { theirs: u16, their_min: u16, ours: u16, ours_min: u16 },
}

/// Nothing may be left behind a message.
pub(crate) fn whole(rest: &[u8]) -> Result<(), ProtoError> {
    if rest.is_empty() { Ok(()) } else { Err(ProtoError::Trailing { extra: rest.len() }) }
}

/// What the encoding says, in our words.
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
