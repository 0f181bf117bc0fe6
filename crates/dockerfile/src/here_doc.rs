//! Here-documents of `RUN` that are not all of it, such as `RUN python3 - <<EOF`. The parser knows only those that are, so the
//! whole command becomes the content of one. The shell reads the inner ones itself.

use crate::words::{join_lines, split};
use crate::{DockerfileError, MAX_HERE_DOCUMENTS, MAX_INSTRUCTIONS};

/// A text for the parser, and the line of the original text for each of its lines.
pub struct Prepared {
    pub text: String,
    lines: Vec<usize>,
}

impl Prepared {
    /// The original line of a line of the text, both from 1 on.
    pub fn line(&self, line: usize) -> usize {
        self.lines.get(line.saturating_sub(1)).or(self.lines.last()).copied().unwrap_or(1)
    }

    fn push(&mut self, text: &str, line: usize) {
        self.text.push_str(text);
        self.text.push('\n');
        self.lines.push(line);
    }
}

/// Wraps the commands with inner here-documents. Each document is searched to the end of the text, so their number is bounded here.
pub fn prepare(text: &str, escape: char) -> Result<Prepared, DockerfileError> {
    let lines: Vec<&str> = text.lines().collect();
    let outer = unused_word(text);
    let mut prepared = Prepared { text: String::with_capacity(text.len()), lines: Vec::new() };
    let (mut at, mut instructions, mut documents) = (0, 0, 0);
    while at < lines.len() {
        let end = at + logical_length(&lines[at..], escape);
        let command = lines[at..end].join("\n");
        let ends = delimiters(&command, escape);
        instructions += usize::from(is_instruction(&command));
        documents += ends.len();
        check_number("instructions", instructions, MAX_INSTRUCTIONS)?;
        check_number("here-documents", documents, MAX_HERE_DOCUMENTS)?;
        let mut last = end;
        for delimiter in &ends {
            last += lines[last..].iter().position(|line| delimiter.ends(line)).map_or(0, |found| found + 1);
        }
        match run_arguments(&command) {
            Some((options, arguments)) if !ends.is_empty() && !is_one_document(arguments, escape) => {
                prepared.push(&format!("RUN {options}<<'{outer}'"), at + 1);
                // The shell would take comments between continued lines for a part of the command.
                prepared.push(&join_lines(arguments, escape), at + 1);
                for (number, line) in lines.iter().enumerate().take(last).skip(end) {
                    prepared.push(line, number + 1);
                }
                prepared.push(&outer, last);
            }
            // Also the content of the documents, which must not be taken for instructions.
            _ => {
                for (number, line) in lines.iter().enumerate().take(last).skip(at) {
                    prepared.push(line, number + 1);
                }
            }
        }
        at = last;
    }
    Ok(prepared)
}

/// Whether the document is the command.
fn is_one_document(arguments: &str, escape: char) -> bool {
    arguments.starts_with("<<") && split(arguments, escape).len() == 1
}

fn is_instruction(command: &str) -> bool {
    let command = command.trim_start();
    !command.is_empty() && !command.starts_with('#')
}

fn check_number(what: &str, number: usize, most: usize) -> Result<(), DockerfileError> {
    if number <= most {
        return Ok(());
    }
    Err(DockerfileError::new(1, format!("the Dockerfile has more than {most} {what}")))
}

/// The number of lines of the instruction at the start, without its here-documents.
pub fn logical_length(lines: &[&str], escape: char) -> usize {
    let mut length = 0;
    for line in lines {
        length += 1;
        let text = line.trim();
        let is_skipped = length > 1 && (text.is_empty() || text.starts_with('#'));
        if !is_skipped && (text.starts_with('#') || !text.ends_with(escape)) {
            break;
        }
    }
    length
}

/// The options of a `RUN`, with a space behind them, and the rest.
fn run_arguments(command: &str) -> Option<(String, &str)> {
    let command = command.trim_start();
    let keyword = command.get(..3)?;
    let mut rest = command.get(3..)?;
    if !keyword.eq_ignore_ascii_case("run") || !rest.starts_with(char::is_whitespace) {
        return None;
    }
    let mut options = String::new();
    loop {
        rest = rest.trim_start();
        if !rest.starts_with("--") {
            return Some((options, rest));
        }
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        options.push_str(&rest[..end]);
        options.push(' ');
        rest = &rest[end..];
    }
}

struct Delimiter {
    word: String,
    strips_tabs: bool,
}

impl Delimiter {
    fn ends(&self, line: &str) -> bool {
        let line = if self.strips_tabs { line.trim_start_matches('\t') } else { line };
        line == self.word
    }
}

/// The delimiters of the here-documents that an instruction begins. Only `RUN`, `COPY` and `ADD` can have some.
fn delimiters(command: &str, escape: char) -> Vec<Delimiter> {
    let keyword = command.split_whitespace().next().unwrap_or_default();
    if !["run", "copy", "add"].iter().any(|known| keyword.eq_ignore_ascii_case(known)) {
        return Vec::new();
    }
    split(command, escape).into_iter().filter_map(delimiter).collect()
}

/// `<<EOF`, `<<-EOF`, `<<"EOF"`, `3<<EOF`.
fn delimiter(word: &str) -> Option<Delimiter> {
    let rest = word.trim_start_matches(|character: char| character.is_ascii_digit()).strip_prefix("<<")?;
    let (strips_tabs, rest) = match rest.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    // The word may have something directly behind it, such as `;`.
    let quoted = |quote: char| rest.strip_prefix(quote).and_then(|rest| rest.split(quote).next());
    let name = quoted('"').or_else(|| quoted('\'')).unwrap_or_else(|| {
        let end = rest.find([';', '|', '&', ')', '>', '<']).unwrap_or(rest.len());
        &rest[..end]
    });
    (!name.is_empty() && !name.contains('<')).then(|| Delimiter { word: name.to_owned(), strips_tabs })
}

fn unused_word(text: &str) -> String {
    let mut word = "SANDBOXD_RUN".to_owned();
    while text.contains(&word) {
        word.push('_');
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inner_document_becomes_part_of_the_command() {
        let text = "FROM a\nRUN --network=default python3 - <<'PY' \\\n  && echo done\nRUN x\nPY\nUSER b\n";
        let prepared = prepare(text, '\\').unwrap();
        assert_eq!(
            prepared.text,
            "FROM a\nRUN --network=default <<'SANDBOXD_RUN'\npython3 - <<'PY'   && echo done\nRUN x\nPY\nSANDBOXD_RUN\nUSER b\n"
        );
        assert_eq!([1, 2, 4, 7].map(|line| prepared.line(line)), [1, 2, 4, 6]);
    }

    #[test]
    fn a_document_that_is_not_all_of_the_command_is_for_the_shell() {
        for command in ["<<'EOF' bash\nx\nEOF", "<<A <<B\nx\nA\ny\nB"] {
            let prepared = prepare(&format!("FROM a\nRUN {command}\nUSER b\n"), '\\').unwrap();
            let wrapped = format!("FROM a\nRUN <<'SANDBOXD_RUN'\n{command}\nSANDBOXD_RUN\nUSER b\n");
            assert_eq!(prepared.text, wrapped);
        }
    }

    #[test]
    fn other_texts_stay() {
        for text in [
            "FROM a\nRUN <<EOF\nRUN cat <<X\nEOF\nRUN b\n",
            "FROM a\nCOPY <<one <<-two /d/\n1\none\n\t2\n\ttwo\nUSER b\n",
            "RUN a << b\nRUN '<<x'\n",
            "# RUN a <<b\nENV x=<<y\n",
            "RUN a \\\n",
        ] {
            assert_eq!(prepare(text, '\\').unwrap().text, text);
        }
    }

    #[test]
    fn instructions_and_documents_are_bounded() {
        let refused = |text: &str| prepare(text, '\\').err().map(|error| error.message);
        let comments = "# a\n\n".repeat(1000);
        assert_eq!(refused(&format!("{comments}{}", "RUN a\n".repeat(256))), None);
        assert!(refused(&"RUN a\n".repeat(257)).unwrap().contains("256 instructions"));
        assert!(refused(&format!("RUN {}", "<<A ".repeat(257))).unwrap().contains("256 here-documents"));
    }
}
