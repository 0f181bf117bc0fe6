//! The text of an error for a log line.

use std::error::Error;

/// The messages of an error and its sources, each once: many messages include that of their source.
pub fn chain_text(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut error = error;
    while let Some(source) = error.source() {
        let message = source.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        error = source;
    }
    text
}
