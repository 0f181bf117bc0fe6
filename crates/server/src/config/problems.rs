//! What is wrong with a configuration, one line for each error.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

/// One error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line of the file, if the error is at one.
    pub line: Option<usize>,
    /// Names the key, its value and what is allowed.
    pub message: String,
}

/// All errors that were found, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems {
    file: Option<PathBuf>,
    list: Vec<Problem>,
}

impl Problems {
    /// `Ok` if there is none.
    pub fn check(list: Vec<Problem>) -> Result<(), Self> {
        if list.is_empty() { Ok(()) } else { Err(Self::from_list(list)) }
    }

    /// Of errors that are known to exist.
    pub fn from_list(list: Vec<Problem>) -> Self {
        Self { file: None, list }
    }

    /// The errors of all checks, not only of the first that fails.
    pub fn of(checks: impl IntoIterator<Item = anyhow::Result<()>>) -> Result<(), Self> {
        let errors = checks.into_iter().filter_map(Result::err);
        Self::check(errors.map(|error| Problem { line: None, message: format!("{error:#}") }).collect())
    }

    /// The errors of all parts.
    pub fn of_parts(parts: impl IntoIterator<Item = Result<(), Self>>) -> Result<(), Self> {
        Self::check(parts.into_iter().filter_map(Result::err).flatten().collect())
    }

    /// An error that is at no line of the file. Of an error with causes, all are shown.
    pub fn one(message: impl fmt::Display) -> Self {
        Problem { line: None, message: format!("{message:#}") }.into()
    }

    #[must_use]
    pub fn in_file(mut self, file: &Path) -> Self {
        self.file = Some(file.to_owned());
        self
    }

    /// Gives each error without a line the one that `line_of` finds for its message.
    #[must_use]
    pub fn at_lines(mut self, line_of: impl Fn(&str) -> Option<usize>) -> Self {
        for problem in &mut self.list {
            problem.line = problem.line.or_else(|| line_of(&problem.message));
        }
        self.list.sort_by_key(|problem| problem.line);
        self
    }

    /// Puts a word in front of each message.
    #[must_use]
    pub fn with_label(mut self, label: &str) -> Self {
        for problem in &mut self.list {
            problem.message = format!("{label}: {}", problem.message);
        }
        self
    }

    /// Each error as `FILE:LINE: MESSAGE`, as editors read it.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.list.iter().map(move |problem| {
            let file = self.file.as_deref().map(Path::display);
            match (file, problem.line) {
                (Some(file), Some(line)) => format!("{file}:{line}: {}", problem.message),
                (Some(file), None) => format!("{file}: {}", problem.message),
                (None, Some(line)) => format!("line {line}: {}", problem.message),
                (None, None) => problem.message.clone(),
            }
        })
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self { file: None, list: vec![problem] }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.list.len() > 1 {
            writeln!(f, "the configuration has {} errors:", self.list.len())?;
        }
        f.write_str(&self.lines().collect::<Vec<_>>().join("\n"))
    }
}

impl Error for Problems {}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}
