//! The forms in which streams have the output of a command.

use bytes::Bytes;

use super::encoded::decoded;
use crate::Result;
use crate::sse::Event;

/// How a stream is requested, and what its events become.
pub struct OutputForm<T> {
    /// The query of the request.
    pub query: &'static str,
    /// What the event has.
    pub read: fn(Event) -> Result<T>,
    /// Bytes of a line end that is not part of an item.
    pub omitted: u64,
}

/// Lines without their ends.
pub const LINES: OutputForm<String> = OutputForm { query: "", read: |event| Ok(line(event)), omitted: 1 };
/// Lines with their ends.
pub const LINES_WITH_ENDS: OutputForm<String> =
    OutputForm { query: "?lineEnds=true", read: |event| Ok(line_with_end(event)), omitted: 0 };
/// The exact bytes. An earlier version of the service ignores the encoding and sends lines.
pub const BYTES: OutputForm<Bytes> =
    OutputForm { query: "?lineEnds=true&encoding=base64", read: exact, omitted: 0 };

/// The line: a line feed within an event stands for a carriage return of the command.
fn line(event: Event) -> String {
    if event.data.contains('\n') { event.data.replace('\n', "\r") } else { event.data }
}

fn exact(event: Event) -> Result<Bytes> {
    match event.encoding {
        Some(_) => decoded(&event.data),
        None => Ok(line_with_end(event).into()),
    }
}

fn line_with_end(mut event: Event) -> String {
    let end = event.end.take();
    let mut line = line(event);
    line.push_str(match end.as_deref() {
        Some("none") => "",
        Some("crlf") => "\r\n",
        _ => "\n",
    });
    line
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::sse::Parser;

    fn events(stream: &str) -> VecDeque<Event> {
        let mut events = VecDeque::new();
        Parser::new().push(stream.as_bytes(), &mut events).unwrap();
        events
    }

    #[test]
    fn bytes_are_read_from_base64_and_from_the_lines_of_an_earlier_service() {
        let stream = "event: stdout\ndata: /w0K\nencoding: base64\n\n\
                      event: stdout\ndata: a\ndata: b\nend: crlf\n\nevent: stdout\ndata: c\nend: none\n\n";
        let all: Vec<Bytes> = events(stream).into_iter().map(|event| (BYTES.read)(event).unwrap()).collect();
        assert_eq!(all, [&b"\xff\r\n"[..], b"a\rb\r\n", b"c"]);
        let damaged = events("event: stdout\ndata: !\nencoding: base64\n\n").remove(0).unwrap();
        assert!((BYTES.read)(damaged).is_err());
    }
}
