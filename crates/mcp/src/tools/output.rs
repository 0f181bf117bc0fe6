//! A page of the output of a command, and the tail of an output.
//!
//! The page is the first part that fits into the bound. The cursor is the output offset after it. What follows is read only for the
//! result of the command and for the end of the output, which often has the error.

use std::collections::VecDeque;

use sandboxd_client::{Done, Output};

/// The bytes of a page, unless a single line is longer. The service splits lines at 64 KiB.
pub const PAGE: usize = 32 << 10;
/// The bytes of the end of an output that is longer than the page.
pub const TAIL: usize = 4 << 10;

/// The output of a command, as far as one result has room for it.
#[derive(Debug, Default)]
pub struct OutputPage {
    pub stdout: String,
    pub stderr: String,
    /// Bytes that the service dropped from the log of the command.
    pub dropped_bytes: u64,
    pub done: Option<Done>,
    /// The output offset after the page, if the output goes on.
    pub next: Option<String>,
    tail: Tail,
    /// Bytes after the page.
    pub omitted_bytes: u64,
    /// The last line, for notifications of progress.
    pub last_line: String,
}

impl OutputPage {
    /// An empty page before the whole output.
    pub fn not_read() -> Self {
        Self { next: Some(String::new()), ..Self::default() }
    }

    /// Adds an item. `before` is the offset before it.
    pub fn add(&mut self, item: Output, before: Option<&str>) {
        let (text, is_error) = match item {
            Output::Stdout(text) => (text, false),
            Output::Stderr(text) => (text, true),
            Output::Dropped(bytes) => {
                self.dropped_bytes = self.dropped_bytes.saturating_add(bytes);
                return;
            }
            Output::Done(done) => {
                self.done = Some(done);
                return;
            }
        };
        self.last_line = text.trim_end().chars().take(200).collect();
        let length = self.stdout.len() + self.stderr.len();
        if !self.is_full() && length > 0 && length + text.len() > PAGE {
            self.next = Some(before.unwrap_or_default().to_owned());
        }
        if self.is_full() {
            self.omitted_bytes = self.omitted_bytes.saturating_add(text.len() as u64);
            self.tail.add(text);
        } else if is_error {
            self.stderr.push_str(&text);
        } else {
            self.stdout.push_str(&text);
        }
    }

    /// Whether output follows the page.
    pub fn is_full(&self) -> bool {
        self.next.is_some()
    }

    /// The end of the output, if it is longer than the page.
    pub fn tail(&self) -> Option<String> {
        if self.tail.texts.is_empty() { None } else { Some(self.tail.text()) }
    }
}

/// The end of an output, in bounded memory.
#[derive(Debug)]
pub struct Tail {
    /// The most bytes of [`text`](Self::text).
    most: usize,
    texts: VecDeque<String>,
    bytes: usize,
}

impl Default for Tail {
    fn default() -> Self {
        Self::new(TAIL)
    }
}

impl Tail {
    /// An empty tail of at most this many bytes.
    pub fn new(most: usize) -> Self {
        Self { most, texts: VecDeque::new(), bytes: 0 }
    }

    /// Appends text, and drops the oldest that no longer fits.
    pub fn add(&mut self, text: String) {
        self.bytes += text.len();
        self.texts.push_back(text);
        while let Some(first) = self.texts.front()
            && self.bytes - first.len() >= self.most
        {
            self.bytes -= first.len();
            self.texts.pop_front();
        }
    }

    /// The end of what was added, at most as long as the limit.
    pub fn text(&self) -> String {
        let mut text: String = self.texts.iter().map(String::as_str).collect();
        if text.len() > self.most {
            let cut = (text.len() - self.most..text.len()).find(|index| text.is_char_boundary(*index));
            text.drain(..cut.unwrap_or(text.len()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(index: usize) -> Output {
        Output::Stdout(format!("{index:099}\n"))
    }

    #[test]
    fn a_long_output_is_a_page_a_cursor_and_a_tail() {
        let mut page = OutputPage::default();
        for index in 0..1000 {
            let before = format!("at{index}");
            page.add(line(index), (index > 0).then_some(before.as_str()));
        }
        let lines = PAGE / 100;
        assert_eq!(page.stdout.lines().count(), lines);
        assert_eq!(page.next.as_deref(), Some(format!("at{lines}").as_str()));
        assert_eq!(page.omitted_bytes, ((1000 - lines) * 100) as u64);
        let tail = page.tail().unwrap();
        assert!(tail.len() <= TAIL && tail.ends_with("999\n"), "{}", tail.len());
        assert!(page.tail.texts.len() <= TAIL / 100 + 2, "the memory is bounded");
    }

    #[test]
    fn a_line_longer_than_the_page_is_whole() {
        let mut page = OutputPage::default();
        page.add(Output::Stdout("ä".repeat(PAGE)), None);
        assert!(!page.is_full() && page.tail().is_none());
        page.add(Output::Stderr("x".into()), Some("7"));
        assert_eq!((page.next.as_deref(), page.tail().as_deref()), (Some("7"), Some("x")));
        page.add(Output::Stderr("ä".repeat(TAIL)), Some("8"));
        assert!(page.tail().unwrap().len() <= TAIL);
    }
}
