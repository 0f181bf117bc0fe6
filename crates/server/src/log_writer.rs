//! Standard error as the output of the log. A line that cannot be written is lost, and counted: the service goes on when the reader of
//! its log ends.
//!
//! An error would reach `tracing-subscriber`, which prints it with `eprintln!`, and that panics on the same standard error.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

static LOST: AtomicU64 = AtomicU64::new(0);

/// Lines that could not be written since the start of this process.
pub fn lost_lines() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// The output of the log.
pub fn stderr() -> LogWriter<io::Stderr> {
    LogWriter(io::stderr())
}

/// Writes lines, and never fails.
pub struct LogWriter<W>(W);

impl<W: Write> Write for LogWriter<W> {
    /// The log passes one line in each call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.0.write_all(line).is_err() {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // Nothing is buffered; a failure loses no line.
        let _ = self.0.flush();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_line_without_a_reader_is_lost_and_counted() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut log = LogWriter(writer);
        log.write_all(b"read\n").unwrap();
        let mut read = [0; 5];
        reader.read_exact(&mut read).unwrap();
        assert_eq!((&read, lost_lines()), (b"read\n", 0));
        drop(reader);
        for lost in 1..=2 {
            log.write_all(b"lost\n").unwrap();
            log.flush().unwrap();
            assert_eq!(lost_lines(), lost);
        }
    }
}
