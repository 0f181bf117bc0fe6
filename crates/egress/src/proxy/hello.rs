//! The server name of a TLS ClientHello, which may be spread over many records.
//!
//! rustls has a parser for this. It refuses some valid hellos of old clients (no signature algorithms before TLS 1.2, some
//! record versions), and only the name matters here: the server checks the rest. Tests compare the two parsers.

use std::borrow::Cow;

/// The result of parsing a ClientHello.
#[derive(Debug, PartialEq, Eq)]
pub enum Hello<'a> {
    /// At least this many bytes are needed in total.
    NeedMore(usize),
    Named(Cow<'a, [u8]>),
    Unnamed,
    Malformed,
}

const RECORD_HEAD: usize = 5;
const MESSAGE_HEAD: usize = 4;
const HANDSHAKE: u8 = 22;
pub const CLIENT_HELLO: u8 = 1;
/// Maximum length of a record, with the excess that old servers accept.
const RECORD_MAX: usize = (1 << 14) + 2048;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// Parses a ClientHello at the start of a connection.
pub fn hello(bytes: &[u8]) -> Hello<'_> {
    match message(bytes) {
        Gathered::NeedMore(length) => Hello::NeedMore(length),
        Gathered::Malformed => Hello::Malformed,
        Gathered::Whole(Cow::Borrowed(body), _) => match server_name(body) {
            Some(Some(name)) => Hello::Named(Cow::Borrowed(name)),
            Some(None) => Hello::Unnamed,
            None => Hello::Malformed,
        },
        Gathered::Whole(Cow::Owned(body), _) => match server_name(&body) {
            Some(Some(name)) => Hello::Named(Cow::Owned(name.to_vec())),
            Some(None) => Hello::Unnamed,
            None => Hello::Malformed,
        },
    }
}

/// The number of bytes that belong to the ClientHello; data behind it follows.
pub fn hello_bytes(bytes: &[u8]) -> usize {
    match message(bytes) {
        Gathered::Whole(_, length) => length,
        Gathered::NeedMore(_) | Gathered::Malformed => bytes.len(),
    }
}

enum Gathered<'a> {
    NeedMore(usize),
    Malformed,
    /// The body of the ClientHello, and the length of its records.
    Whole(Cow<'a, [u8]>, usize),
}

/// Extracts the first handshake message from its records.
fn message(bytes: &[u8]) -> Gathered<'_> {
    let mut rest = bytes;
    let mut fragments = 0;
    let mut gathered: Cow<'_, [u8]> = Cow::Borrowed(&[]);
    loop {
        let message_length = match message_length(&gathered) {
            Some(message_length) => message_length,
            None => return Gathered::Malformed,
        };
        let missing = message_length - gathered.len();
        if missing == 0 {
            break;
        }
        let Some((head, after)) = rest.split_first_chunk::<RECORD_HEAD>() else {
            return match rest {
                [kind, ..] if *kind != HANDSHAKE => Gathered::Malformed,
                [_, major, ..] if *major != 3 => Gathered::Malformed,
                _ => Gathered::NeedMore(bytes.len() - rest.len() + RECORD_HEAD + missing),
            };
        };
        let [kind, major, _, high, low] = *head;
        let length = usize::from(u16::from_be_bytes([high, low]));
        // A ClientHello ends with its record: nothing may follow before the server has answered.
        let too_long = gathered.len() >= MESSAGE_HEAD && length > missing;
        if kind != HANDSHAKE || major != 3 || length == 0 || length > RECORD_MAX || too_long {
            return Gathered::Malformed;
        }
        let fragment = &after[..length.min(after.len())];
        fragments += 1;
        if fragments == 1 {
            gathered = Cow::Borrowed(fragment);
        } else {
            gathered.to_mut().extend_from_slice(fragment);
        }
        rest = &after[fragment.len()..];
        if fragment.len() < length {
            return need_more(bytes.len(), &gathered, length - fragment.len());
        }
    }
    Gathered::Whole(body_of(gathered), bytes.len() - rest.len())
}

/// The input ends inside a record that has `open` more bytes.
fn need_more<'a>(have: usize, gathered: &[u8], open: usize) -> Gathered<'a> {
    match message_length(gathered).map(|message_length| message_length - gathered.len()) {
        None => Gathered::Malformed,
        Some(missing) if missing <= open => {
            let known = gathered.len() >= MESSAGE_HEAD;
            if known && missing < open { Gathered::Malformed } else { Gathered::NeedMore(have + missing) }
        }
        Some(missing) => Gathered::NeedMore(have + RECORD_HEAD + missing),
    }
}

/// The length of the message with its header, if known. `None` if it is not a ClientHello, or exceeds its length.
fn message_length(gathered: &[u8]) -> Option<usize> {
    if gathered.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
        return None;
    }
    let message_length = match gathered {
        [_, a, b, c, ..] => MESSAGE_HEAD + u32::from_be_bytes([0, *a, *b, *c]) as usize,
        _ => MESSAGE_HEAD,
    };
    (gathered.len() <= message_length).then_some(message_length)
}

fn body_of(gathered: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    match gathered {
        Cow::Borrowed(message) => Cow::Borrowed(&message[MESSAGE_HEAD..]),
        Cow::Owned(mut message) => {
            message.drain(..MESSAGE_HEAD);
            Cow::Owned(message)
        }
    }
}

/// `None` if the ClientHello is invalid.
fn server_name(body: &[u8]) -> Option<Option<&[u8]>> {
    let mut fields = Fields(body);
    let [3, _] = fields.take(2)? else { return None };
    fields.take(32)?;
    (fields.counted_by_one()?.len() <= 32).then_some(())?;
    let suites = fields.counted_by_two()?;
    (!suites.is_empty() && suites.len().is_multiple_of(2)).then_some(())?;
    (!fields.counted_by_one()?.is_empty()).then_some(())?;
    if fields.0.is_empty() {
        return Some(None);
    }
    let mut extensions = Fields(fields.counted_by_two()?);
    fields.end()?;
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let content = extensions.counted_by_two()?;
        if kind == SERVER_NAME {
            let name = only_host_name(content)?;
            // Servers differ in which of two they use, so both are refused.
            found.replace(name).is_none().then_some(())?;
        }
    }
    Some(found)
}

fn only_host_name(content: &[u8]) -> Option<&[u8]> {
    let mut content = Fields(content);
    let mut list = Fields(content.counted_by_two()?);
    content.end()?;
    let [HOST_NAME] = list.take(1)? else { return None };
    let name = list.counted_by_two()?;
    list.end()?;
    Some(name)
}

/// The unread rest. Each step is `None` if there is not enough.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*bytes))
    }

    fn counted_by_one(&mut self) -> Option<&'a [u8]> {
        let length = *self.take(1)?.first()?;
        self.take(usize::from(length))
    }

    fn counted_by_two(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.take(usize::from(length))
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests;
