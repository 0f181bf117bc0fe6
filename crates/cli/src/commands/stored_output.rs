//! The stored output of a detached command, in the order in which it was written. Called by `logs`.
//!
//! The service returns the two streams of a finished output separately. Its events have the order, so they are read up to the end that the
//! output had at first: a command that goes on printing does not keep sbx.

use std::collections::VecDeque;
use std::io::{self, Write};

use anyhow::{Context, Result};
use bytes::Bytes;
use futures_util::TryStreamExt;
use sandboxd_client::{Detached, Output};

use crate::output::{self, note};

const BUFFER: usize = 64 << 10;

/// A stream of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    Stdout,
    Stderr,
}

/// Prints what is stored before `end`.
pub async fn print_stored(execution: &Detached, end: &str) -> Result<()> {
    let mut out = io::BufWriter::with_capacity(BUFFER, io::stdout());
    read_stored(execution, end, |channel, bytes| match channel {
        Channel::Stdout => Ok(out.write_all(bytes)?),
        Channel::Stderr => {
            // Keeps the order if both streams are the same file.
            flush(&mut out)?;
            Ok(io::stderr().write_all(bytes)?)
        }
    })
    .await?;
    flush(&mut out)
}

fn flush(out: &mut io::BufWriter<io::Stdout>) -> Result<()> {
    out.flush()?;
    // `io::stdout` buffers incomplete lines.
    Ok(io::stdout().flush()?)
}

/// Passes what is stored before `end`, an output offset, to `take`, and says if some output was dropped.
pub async fn read_stored(
    execution: &Detached,
    end: &str,
    mut take: impl FnMut(Channel, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut events = execution.follow_bytes();
    let mut is_dropped = false;
    while !is_reached(events.offset().as_deref(), end) {
        let event: Output<Bytes> =
            events.try_next().await?.context("the output ended before the command did")?;
        match event {
            Output::Stdout(bytes) => take(Channel::Stdout, &bytes)?,
            Output::Stderr(bytes) => take(Channel::Stderr, &bytes)?,
            Output::Dropped(_) if !is_dropped => {
                is_dropped = true;
                note("sbx: part of the output was dropped");
            }
            Output::Dropped(_) => {}
            Output::Done(_) => break,
        }
    }
    Ok(())
}

/// Whether an output offset is not before another one. No offset is that of the beginning.
fn is_reached(offset: Option<&str>, end: &str) -> bool {
    match (position(offset.unwrap_or("0.0")), position(end)) {
        (Some(at), Some(end)) => at.0 >= end.0 && at.1 >= end.1,
        // Not numbers: the offset of the last event, which only the end of a command has.
        _ => offset == Some(end),
    }
}

/// The bytes of both streams before an offset.
fn position(offset: &str) -> Option<(u64, u64)> {
    let (stdout, stderr) = offset.split_once('.')?;
    Some((stdout.parse().ok()?, stderr.parse().ok()?))
}

/// The last lines of an output, in the order in which they began. An incomplete line counts as one.
pub struct Tail {
    most: usize,
    lines: VecDeque<(Channel, Vec<u8>)>,
    /// Streams whose newest line has not ended.
    open: Vec<Channel>,
}

impl Tail {
    /// Keeps at most this number of lines.
    pub fn new(most: usize) -> Self {
        Self { most, lines: VecDeque::new(), open: Vec::new() }
    }

    /// Adds what a stream printed next.
    pub fn add(&mut self, channel: Channel, bytes: &[u8]) -> Result<()> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.open.contains(&channel) {
                // If it is not found, other lines have replaced it.
                let newest = self.lines.iter_mut().rev().find(|(of, line)| *of == channel && !is_whole(line));
                if let Some((_, line)) = newest {
                    line.extend_from_slice(part);
                }
                if is_whole(part) {
                    self.open.retain(|open| *open != channel);
                }
                continue;
            }
            self.lines.push_back((channel, part.to_vec()));
            if self.lines.len() > self.most {
                self.lines.pop_front();
            }
            if !is_whole(part) {
                self.open.push(channel);
            }
        }
        Ok(())
    }

    /// Prints the lines to the streams that they were printed to.
    pub fn print(self) -> Result<()> {
        for (channel, line) in self.lines {
            match channel {
                Channel::Stdout => output::bytes(&line)?,
                Channel::Stderr => io::stderr().write_all(&line)?,
            }
        }
        Ok(())
    }
}

fn is_whole(line: &[u8]) -> bool {
    line.ends_with(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_reached_with_both_streams() {
        for (offset, end, expected) in [
            (None, "0.0", true),
            (None, "1.0", false),
            (Some("5.0"), "5.3", false),
            (Some("5.3"), "5.3", true),
            (Some("9.3"), "5.3", true),
            (Some("end"), "5.3", false),
            (Some("end"), "end", true),
        ] {
            assert_eq!(is_reached(offset, end), expected, "{offset:?} {end}");
        }
    }

    fn tail(most: usize, printed: &[(Channel, &str)]) -> Vec<(Channel, String)> {
        let mut tail = Tail::new(most);
        for (channel, text) in printed {
            tail.add(*channel, text.as_bytes()).unwrap();
        }
        tail.lines.into_iter().map(|(channel, line)| (channel, String::from_utf8(line).unwrap())).collect()
    }

    #[test]
    fn the_last_lines_are_those_of_both_streams_in_order() {
        use Channel::{Stderr, Stdout};
        let printed = [(Stdout, "out1\n"), (Stderr, "err1\n"), (Stdout, "out2\nout3\n"), (Stderr, "err2")];
        let of = |channel, text: &str| (channel, text.to_owned());
        assert_eq!(tail(2, &printed), [of(Stdout, "out3\n"), of(Stderr, "err2")]);
        assert_eq!(tail(4, &printed)[0], of(Stderr, "err1\n"));
        assert_eq!(tail(9, &printed).len(), 5);
        assert_eq!(tail(0, &printed), []);
    }

    #[test]
    fn a_line_that_comes_in_parts_is_one() {
        use Channel::{Stderr, Stdout};
        let printed = [(Stdout, "a"), (Stderr, "x\n"), (Stdout, "b\n"), (Stdout, "c\n")];
        let of = |channel, text: &str| (channel, text.to_owned());
        assert_eq!(tail(3, &printed), [of(Stdout, "ab\n"), of(Stderr, "x\n"), of(Stdout, "c\n")]);
        // The rest of a line that is not among the last ones is not a line.
        assert_eq!(tail(1, &printed[..3]), [of(Stderr, "x\n")]);
    }
}
