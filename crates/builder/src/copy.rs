//! Which entries of the context a `COPY` or `ADD` copies, and their names in the destination.

use std::collections::BTreeMap;

use dockerfile::{Copy, Source};

use crate::context::{Context, Entry, EntryKind, clean};
use crate::error::BuildError;
use crate::format::Format;

/// What a `COPY` copies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// By the path below the destination. Without a directory, there is one file, whose name is the last part of its path.
    pub files: BTreeMap<String, Content>,
    /// Whether the destination is a directory, because of a directory or of several files among the sources.
    pub needs_directory: bool,
}

/// The content of an entry of the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Entry(Entry),
    Inline(String),
    /// A source of `ADD` whose entries are unpacked.
    Archive(Entry, Format),
}

/// Finds the sources of a copy.
pub fn select(context: &Context, copy: &Copy) -> Result<Selection, BuildError> {
    let mut selection = Selection::default();
    for source in &copy.sources {
        match source {
            Source::Inline { name, content } => {
                selection.files.insert(name.clone(), Content::Inline(content.clone()));
            }
            Source::Path(pattern) => select_path(context, pattern, copy.extracts, &mut selection)?,
        }
    }
    selection.needs_directory |= selection.files.len() > 1;
    Ok(selection)
}

fn select_path(
    context: &Context,
    pattern: &str,
    extracts: bool,
    selection: &mut Selection,
) -> Result<(), BuildError> {
    let outside = |error: crate::BuilderError| BuildError::new(error.to_string());
    let path = clean(pattern).map_err(outside)?;
    let found: Vec<String> = if path.is_empty() {
        vec![path]
    } else if has_wildcards(&path) {
        matching(context, &path)?
    } else {
        context.get(&path).map(|_| path.clone()).into_iter().collect()
    };
    if found.is_empty() {
        return Err(BuildError::new(format!("the build context has nothing at '{pattern}'")));
    }
    for path in found {
        let entry = context.get(&path);
        match entry.filter(|entry| entry.kind != EntryKind::Directory) {
            Some(entry) => {
                let name = path.rsplit('/').next().unwrap_or(&path);
                let format = if extracts { format_of(context, name, entry) } else { None };
                let content = match format {
                    Some(format) => Content::Archive(entry.clone(), format),
                    None => Content::Entry(entry.clone()),
                };
                selection.needs_directory |= format.is_some();
                selection.files.insert(name.to_owned(), content);
            }
            None => {
                selection.needs_directory = true;
                let skipped = if path.is_empty() { 0 } else { path.len() + 1 };
                for (below, entry) in context.below(&path) {
                    selection.files.insert(below[skipped..].to_owned(), Content::Entry(entry.clone()));
                }
            }
        }
    }
    Ok(())
}

fn format_of(context: &Context, name: &str, entry: &Entry) -> Option<Format> {
    let EntryKind::File { offset, size, .. } = entry.kind else { return None };
    // If it cannot be read, the copy fails.
    Format::of(context, name, offset, size).ok().flatten()
}

fn has_wildcards(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

fn matching(context: &Context, path: &str) -> Result<Vec<String>, BuildError> {
    let pattern = glob::Pattern::new(path)
        .map_err(|error| BuildError::new(format!("'{path}' is not a valid pattern: {}", error.msg)))?;
    let options = glob::MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: false,
    };
    Ok(context.paths().filter(|found| pattern.matches_with(found, options)).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::tests::archive;

    fn selected(sources: &[&str]) -> Result<(Vec<String>, bool), BuildError> {
        let file = archive(&[
            ("package.json", "{}"),
            ("package-lock.json", "{}"),
            ("src/a.js", "a"),
            ("src/deep/b.js", "b"),
            (".env", "x"),
        ]);
        let context = Context::read(file.path().to_owned()).unwrap();
        let copy = Copy {
            sources: sources.iter().map(|source| Source::Path((*source).to_owned())).collect(),
            destination: "/app/".to_owned(),
            owner: None,
            mode: None,
            extracts: false,
        };
        let selection = select(&context, &copy)?;
        Ok((selection.files.into_keys().collect(), selection.needs_directory))
    }

    #[test]
    fn directories_are_copied_by_their_content() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(selected(&["package.json"]), Ok((names(&["package.json"]), false)));
        assert_eq!(selected(&["package*.json"]), Ok((names(&["package-lock.json", "package.json"]), true)));
        assert_eq!(selected(&["src"]), Ok((names(&["a.js", "deep", "deep/b.js"]), true)));
        assert_eq!(selected(&["src/*"]), Ok((names(&["a.js", "b.js"]), true)));
        assert_eq!(selected(&["./src/deep/../a.js"]), Ok((names(&["a.js"]), false)));
        assert_eq!(selected(&["/src/deep/"]), Ok((names(&["b.js"]), true)));
        let (all, _) = selected(&["."]).unwrap();
        assert_eq!(all.len(), 7);
    }

    #[test]
    fn missing_sources_are_errors() {
        for (source, part) in
            [("none", "nothing at 'none'"), ("*.py", "nothing"), ("../x", "outside"), ("[", "pattern")]
        {
            let error = selected(&[source]).unwrap_err();
            assert!(error.message.contains(part), "{source}: {error}");
        }
    }
}
