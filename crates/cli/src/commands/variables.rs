//! The environment variables of a command line: those of `--env-file`, and those of `-e`, which override them.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::command_line::env_variable;

/// The variables of the files and of the words of `-e`, in this order: a later one overrides an earlier one with its name.
pub fn variables(files: &[PathBuf], words: &[String]) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for file in files {
        let context = || format!("--env-file {}", file.display());
        let text = std::fs::read_to_string(file).with_context(context)?;
        all.extend(file_variables(&text, |name| std::env::var(name).ok()).with_context(context)?);
    }
    for word in words {
        all.extend(env_variable(word)?);
    }
    Ok(all)
}

/// The variables of a file as Docker reads it: `NAME=VALUE` without quotes or escapes, or `NAME` for the value in this environment, which
/// is left out if it is not set.
fn file_variables(text: &str, own: impl Fn(&str) -> Option<String>) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (line, own(line)),
        };
        let exported = line.split_once(char::is_whitespace).filter(|(word, _)| *word == "export");
        ensure!(exported.is_none(), "line {}: remove 'export': no shell reads the file", at + 1);
        let is_name = !name.is_empty() && !name.contains(char::is_whitespace);
        ensure!(is_name, "line {}: expected NAME=VALUE or NAME", at + 1);
        found.extend(value.map(|value| (name.to_owned(), value)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn pairs(all: &[(String, String)]) -> Vec<(&str, &str)> {
        all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    #[test]
    fn a_file_is_read_as_docker_reads_it() {
        let own = |name: &str| (name == "MINE").then(|| "own".to_owned());
        let text = "\u{feff}# comment\n\nA=1\n  B=\"x y\"\r\nMINE\nUNSET\nC=a=#b\nD=\n\t# indented\n";
        let found = file_variables(text, own).unwrap();
        let expected = [("A", "1"), ("B", "\"x y\""), ("MINE", "own"), ("C", "a=#b"), ("D", "")];
        assert_eq!(pairs(&found), expected);
        for (text, line) in [("=1", "line 1"), ("A=1\nB C=1", "line 2"), ("\nNAME ", "line 2")] {
            let error = file_variables(text, own).unwrap_err().to_string();
            assert!(error.contains(line), "{text:?}: {error}");
        }
        let error = file_variables("A=1\nexport BAD=1\n", own).unwrap_err().to_string();
        assert!(error.starts_with("line 2: remove 'export'"), "{error}");
        assert_eq!(pairs(&file_variables("export=1\n", own).unwrap()), [("export", "1")]);
    }

    #[test]
    fn words_come_after_files() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "A=file\nB=file").unwrap();
        let found =
            variables(&[file.path().to_owned()], &["A=word".to_owned(), "SBX_NOT_SET".to_owned()]).unwrap();
        assert_eq!(pairs(&found), [("A", "file"), ("B", "file"), ("A", "word")]);
        let error = variables(&[PathBuf::from("/nope/env")], &[]).unwrap_err();
        assert!(format!("{error:#}").contains("--env-file /nope/env"), "{error:#}");
    }
}
