//! The results of code: texts are printed, figures are shown if the terminal can, and files are written. Called by `code`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sandboxd_client::CodeResult;

use crate::figures::{Figure, Graphics};
use crate::output;

/// Where results go.
pub struct Results {
    /// The directory that the user chose.
    output: Option<PathBuf>,
    /// A directory for figures that cannot be shown, if there was one.
    temporary: Option<PathBuf>,
    /// What the terminal can show; `None` until there is a figure.
    graphics: Option<Option<Graphics>>,
    /// The number of results with files so far.
    count: usize,
}

/// A form of a result that can be a file.
#[derive(Debug, PartialEq, Eq)]
struct ResultFile {
    extension: &'static str,
    content: Vec<u8>,
}

impl ResultFile {
    /// Whether the result has no other form for people who do not see it.
    fn is_figure(&self) -> bool {
        ["png", "jpeg", "svg", "pdf"].contains(&self.extension)
    }

    fn as_figure(&self) -> Option<Figure<'_>> {
        match self.extension {
            "png" => Some(Figure::Png(&self.content)),
            "jpeg" => Some(Figure::Jpeg(&self.content)),
            _ => None,
        }
    }
}

impl Results {
    /// Writes figures to this directory, or shows them on the terminal without one.
    pub fn new(output: Option<PathBuf>) -> Self {
        Self { output, temporary: None, graphics: None, count: 0 }
    }

    /// Prints the text of a result, and shows or writes its other forms.
    pub fn show(&mut self, result: &CodeResult) -> Result<()> {
        if let Some(text) = &result.text {
            output::text(&format!("{text}\n"))?;
        }
        let forms = forms(result)?;
        if forms.is_empty() {
            return Ok(());
        }
        self.count += 1;
        let is_shown = self.show_on_terminal(&forms)?;
        if let Some(dir) = self.output.clone() {
            return self.write(&dir, forms.iter());
        }
        if is_shown || !forms.iter().any(ResultFile::is_figure) {
            return Ok(());
        }
        let dir = self.temporary()?;
        self.write(&dir, forms.iter().filter(|form| form.is_figure()))
    }

    /// Whether the terminal shows one of the forms.
    fn show_on_terminal(&mut self, forms: &[ResultFile]) -> Result<bool> {
        let mut figures = forms.iter().filter_map(ResultFile::as_figure).peekable();
        if figures.peek().is_none() {
            return Ok(false);
        }
        let graphics = *self.graphics.get_or_insert_with(Graphics::of_terminal);
        let shown = graphics.and_then(|graphics| figures.find_map(|figure| graphics.show(figure)));
        if let Some(shown) = &shown {
            output::text(shown)?;
        }
        Ok(shown.is_some())
    }

    /// A directory that stays when this program ends, because its files are all that the user gets.
    fn temporary(&mut self) -> Result<PathBuf> {
        if let Some(dir) = &self.temporary {
            return Ok(dir.clone());
        }
        let dir = tempfile::Builder::new().prefix("sbx-figures-").tempdir();
        let dir = dir.context("cannot create a directory for figures; --output DIR names one")?.keep();
        self.temporary = Some(dir.clone());
        Ok(dir)
    }

    /// Writes forms to files and prints their paths.
    fn write<'a>(&self, dir: &Path, forms: impl Iterator<Item = &'a ResultFile>) -> Result<()> {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        for form in forms {
            let path = dir.join(format!("result-{}.{}", self.count, form.extension));
            let written = fs::File::create(&path).and_then(|mut file| file.write_all(&form.content));
            written.with_context(|| format!("cannot write {}", path.display()))?;
            output::note(&path.display().to_string());
        }
        Ok(())
    }
}

/// The forms of a result that can be files.
fn forms(result: &CodeResult) -> Result<Vec<ResultFile>> {
    let texts =
        [("html", &result.html), ("svg", &result.svg), ("md", &result.markdown), ("tex", &result.latex)];
    let encoded = [("png", &result.png), ("jpeg", &result.jpeg), ("pdf", &result.pdf)];
    let texts = texts
        .into_iter()
        .filter_map(|(extension, text)| Some(ResultFile { extension, content: text.clone()?.into_bytes() }));
    let mut forms: Vec<ResultFile> = texts.collect();
    for (extension, text) in encoded {
        let Some(text) = text else { continue };
        // Jupyter breaks base64 into lines.
        let text: String = text.split_ascii_whitespace().collect();
        forms.push(ResultFile {
            extension,
            content: STANDARD.decode(text).context("a result is not base64")?,
        });
    }
    Ok(forms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(png: &str) -> CodeResult {
        CodeResult {
            text: None,
            png: Some(png.to_owned()),
            html: Some("<b>x</b>".to_owned()),
            ..CodeResult::default()
        }
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_written_to_a_directory_that_is_created() {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("new/figures");
        let mut results = Results { graphics: Some(None), ..Results::new(Some(output.clone())) };
        results.show(&result("YWJj\n")).unwrap();
        results.show(&CodeResult::default()).unwrap();
        results.show(&result("YWJj")).unwrap();
        assert_eq!(names(&output), ["result-1.html", "result-1.png", "result-2.html", "result-2.png"]);
        assert_eq!(fs::read(output.join("result-1.png")).unwrap(), b"abc");
        assert!(results.show(&result("%")).unwrap_err().to_string().contains("base64"));
    }

    #[test]
    fn figures_that_cannot_be_shown_are_kept_in_a_temporary_directory() {
        let mut results = Results { graphics: Some(None), ..Results::new(None) };
        results.show(&result("YWJj")).unwrap();
        let dir = results.temporary.clone().unwrap();
        assert_eq!(names(&dir), ["result-1.png"]);
        fs::remove_dir_all(dir).unwrap();
        // A text needs no file.
        let mut results = Results { graphics: Some(None), ..Results::new(None) };
        results.show(&CodeResult { html: Some("x".to_owned()), ..CodeResult::default() }).unwrap();
        assert_eq!(results.temporary, None);
    }

    #[test]
    fn shown_figures_are_not_written() {
        let mut results = Results { graphics: Some(Some(Graphics::Iterm2)), ..Results::new(None) };
        results.show(&result("YWJj")).unwrap();
        assert_eq!(results.temporary, None);
    }
}
