//! Standard output of the commands that print lists and reports. A reader that stops early, such as `head`, is no failure.

use std::io::{self, ErrorKind, Write};

/// Prints text, as far as somebody reads it.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}
