//! Which entries of the context a `COPY` or `ADD` copies, and their names in the destination.
//!
//! A source that is a symbolic link is what it leads to in the context, and a link below a directory stays a link.
//!
//! A selection refers to the index of the context: many copies of a large context cost no memory. It is made when the key of its step
//! is computed, and again when the step runs.

pub mod archive;
pub mod links;
pub mod search;

use std::collections::BTreeMap;

use api::wildcard::{Pattern, has_wildcards};
use dockerfile::{Copy, CopySource};

use crate::context::format::Format;
use crate::context::index::{ContextEntry, EntryKind, MAX_ENTRIES};
use crate::context::{Context, clean};
use crate::copy::links::followed;
use crate::copy::search::Search;
use crate::error::BuildError;

/// Says which files clients leave out of a context.
const IGNORE_FILE: &str = ".dockerignore";
/// Each file of a selection is compared with others and hashed.
const STEPS_PER_FILE: u64 = 16;

/// What a `COPY` copies.
#[derive(Debug, Default)]
pub struct Selection {
    /// By the names below the destination.
    files: Vec<Selected>,
    /// The entries to which followed links lead, by the links. Apart from `files`, which would be half as large again.
    led_to: BTreeMap<u32, u32>,
    pub target: CopyTarget,
}

/// What the destination of a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyTarget {
    /// One file, whose name is the last part of the source's, unless the destination has another name for it.
    #[default]
    File,
    /// A directory, because of a directory or of several files among the sources.
    Directory,
}

#[derive(Debug, Clone, Copy)]
struct Selected {
    /// Of the entry in the index, or of the source in the copy.
    number: u32,
    /// Bytes at the start of the path that are not in the name.
    skipped: u16,
    kind: SelectedKind,
}

#[derive(Debug, Clone, Copy)]
enum SelectedKind {
    Entry,
    /// A link, which stands for the entry that it leads to.
    Followed,
    Archive(Format),
    Inline,
}

/// The content of an entry of the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopiedContent<'a> {
    Entry(ContextEntry<'a>),
    Inline(&'a str),
    /// A source of `ADD` whose entries are unpacked.
    Archive(ContextEntry<'a>, Format),
}

impl Selection {
    /// Finds the sources of a copy. Blocks.
    pub fn find(context: &Context, copy: &Copy, search: &mut Search<'_>) -> Result<Self, BuildError> {
        let mut selection = Self::default();
        for (number, source) in (0..).zip(&copy.sources) {
            match source {
                CopySource::Inline { .. } => {
                    let inline = Selected { number, skipped: 0, kind: SelectedKind::Inline };
                    selection.push(inline, context, copy)?;
                }
                CopySource::Path(pattern) => selection.add_pattern(context, copy, pattern, search)?,
            }
        }
        selection.settle(context, copy)?;
        if selection.files.len() > 1 {
            selection.target = CopyTarget::Directory;
        }
        selection.files.shrink_to_fit();
        Ok(selection)
    }

    fn add_pattern(
        &mut self,
        context: &Context,
        copy: &Copy,
        pattern: &str,
        search: &mut Search<'_>,
    ) -> Result<(), BuildError> {
        let path = clean(pattern).map_err(|error| BuildError::new(error.to_string()))?;
        let mut found = 0;
        if path.is_empty() {
            found += 1;
            self.add_below(context, copy, "", search)?;
        } else if has_wildcards(&path) {
            let pattern = Pattern::new(&path)
                .map_err(|reason| BuildError::new(format!("'{path}' is not a valid pattern: {reason}")))?;
            for rank in context.index.below("") {
                if search.matches(&pattern, context.index.path(rank))? {
                    found += 1;
                    self.add(context, copy, rank, search)?;
                }
            }
        } else if let Some(rank) = context.index.find(&path) {
            found += 1;
            self.add(context, copy, rank, search)?;
        } else if let Some(rank) =
            followed(context, &path, search)?.and_then(|path| context.index.find(&path))
        {
            found += 1;
            self.add(context, copy, rank, search)?;
        }
        if found == 0 {
            // The client applied it before the upload.
            let hint = match context.index.find(IGNORE_FILE) {
                Some(_) => "; its .dockerignore may exclude it",
                None => "",
            };
            return Err(BuildError::new(format!("the build context has nothing at '{pattern}'{hint}")));
        }
        Ok(())
    }

    fn add(
        &mut self,
        context: &Context,
        copy: &Copy,
        rank: u32,
        search: &mut Search<'_>,
    ) -> Result<(), BuildError> {
        let (path, entry) = (context.index.path(rank), context.index.entry(rank));
        if entry.kind == EntryKind::Directory {
            return self.add_below(context, copy, path, search);
        }
        search.spend(STEPS_PER_FILE)?;
        let name = path.rsplit('/').next().unwrap_or(path);
        let skipped = length(path.len() - name.len());
        // A link that leads to nothing stays one.
        if matches!(entry.kind, EntryKind::Link { .. })
            && let Some(target) = followed(context, path, search)?
            && let Some(found) = context.index.find(&target)
        {
            if context.index.entry(found).kind == EntryKind::Directory {
                return self.add_below(context, copy, &target, search);
            }
            self.led_to.insert(rank, found);
            let link = Selected { number: rank, skipped, kind: SelectedKind::Followed };
            return self.push(link, context, copy);
        }
        let format = if copy.extracts { format_of(context, name, entry) } else { None };
        if format.is_some() {
            self.target = CopyTarget::Directory;
        }
        let kind = format.map_or(SelectedKind::Entry, SelectedKind::Archive);
        self.push(Selected { number: rank, skipped, kind }, context, copy)
    }

    /// Adds the content of a directory. `""` is the root.
    fn add_below(
        &mut self,
        context: &Context,
        copy: &Copy,
        directory: &str,
        search: &mut Search<'_>,
    ) -> Result<(), BuildError> {
        self.target = CopyTarget::Directory;
        let skipped = if directory.is_empty() { 0 } else { length(directory.len() + 1) };
        for number in context.index.below(directory) {
            search.spend(STEPS_PER_FILE)?;
            self.push(Selected { number, skipped, kind: SelectedKind::Entry }, context, copy)?;
        }
        Ok(())
    }

    fn push(&mut self, selected: Selected, context: &Context, copy: &Copy) -> Result<(), BuildError> {
        if self.files.len() >= 2 * MAX_ENTRIES {
            self.settle(context, copy)?;
        }
        self.files.push(selected);
        Ok(())
    }

    /// Sorts the files. Of several with the same name, the last one stays.
    fn settle(&mut self, context: &Context, copy: &Copy) -> Result<(), BuildError> {
        self.files.sort_by(|one, two| one.name(context, copy).cmp(two.name(context, copy)));
        self.files.dedup_by(|later, kept| {
            let is_same = later.name(context, copy) == kept.name(context, copy);
            if is_same {
                *kept = *later;
            }
            is_same
        });
        if self.files.len() > MAX_ENTRIES {
            return Err(BuildError::new(format!("the sources have more than {MAX_ENTRIES} files together")));
        }
        Ok(())
    }

    /// The names and the contents.
    pub fn files<'a>(
        &'a self,
        context: &'a Context,
        copy: &'a Copy,
    ) -> impl ExactSizeIterator<Item = (&'a str, CopiedContent<'a>)> {
        self.files.iter().map(move |selected| {
            let content = match selected.kind {
                SelectedKind::Entry => CopiedContent::Entry(context.index.entry(selected.number)),
                SelectedKind::Followed => {
                    let entry = self.led_to.get(&selected.number).unwrap_or(&selected.number);
                    CopiedContent::Entry(context.index.entry(*entry))
                }
                SelectedKind::Archive(format) => {
                    CopiedContent::Archive(context.index.entry(selected.number), format)
                }
                SelectedKind::Inline => match copy.sources.get(selected.number as usize) {
                    Some(CopySource::Inline { content, .. }) => CopiedContent::Inline(content),
                    _ => CopiedContent::Inline(""),
                },
            };
            (selected.name(context, copy), content)
        })
    }
}

impl Selected {
    fn name<'a>(&self, context: &'a Context, copy: &'a Copy) -> &'a str {
        match (self.kind, copy.sources.get(self.number as usize)) {
            (SelectedKind::Inline, Some(CopySource::Inline { name, .. })) => name,
            (SelectedKind::Inline, _) => "",
            _ => &context.index.path(self.number)[self.skipped.into()..],
        }
    }
}

/// Of a path, which has at most [`crate::context::index::MAX_PATH`] bytes.
fn length(bytes: usize) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

fn format_of(context: &Context, name: &str, entry: ContextEntry<'_>) -> Option<Format> {
    let EntryKind::File { offset, size, .. } = entry.kind else { return None };
    // If it cannot be read, the copy fails.
    Format::of(context, name, offset, size).ok().flatten()
}

#[cfg(test)]
mod tests;
