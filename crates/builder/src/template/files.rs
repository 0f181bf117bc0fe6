//! The files of a template: a directory with its build context, as long as it is built, and its log.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use api::TemplateId;

use crate::context::spool::{self, StoredContext};
use crate::error::BuilderError;
use crate::log::BuildLog;
use crate::template::Template;

const CONTEXT: &str = "context.tar";
const LOG: &str = "log";

/// Where the context of a build is.
pub fn context_of(dir: &Path, id: &TemplateId) -> PathBuf {
    dir.join(id.as_str()).join(CONTEXT)
}

/// The log of a template: for reading if its build is over, otherwise to be continued.
pub fn log_of(dir: &Path, template: &Template) -> Result<BuildLog, BuilderError> {
    let path = dir.join(template.id.as_str()).join(LOG);
    if template.state.is_final() {
        return Ok(BuildLog::of_finished(&path));
    }
    std::fs::create_dir_all(dir.join(template.id.as_str()))?;
    Ok(BuildLog::open(&path)?)
}

/// The directory of a template, with its context and an empty log.
pub fn make(
    dir: &Path,
    template: &Template,
    stored: Option<&StoredContext>,
) -> Result<BuildLog, BuilderError> {
    let own = dir.join(template.id.as_str());
    std::fs::create_dir(&own)?;
    if let Some(stored) = stored {
        stored.link_to(&own.join(CONTEXT))?;
    }
    let log = log_of(dir, template)?;
    base::sync_dir(&own)?;
    base::sync_dir(dir)?;
    Ok(log)
}

/// Removes what belongs to no known template. Blocks.
pub fn remove_unknown(dir: &Path, known: &BTreeSet<String>) -> Result<(), BuilderError> {
    for found in std::fs::read_dir(dir)? {
        let found = found?;
        let name = found.file_name().to_string_lossy().into_owned();
        if name.starts_with(spool::PREFIX) {
            std::fs::remove_file(found.path())?;
        } else if name.parse::<TemplateId>().is_ok() && !known.contains(&name) {
            std::fs::remove_dir_all(found.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use api::TemplateState;

    use super::*;
    use crate::template::tests::template;

    #[test]
    fn what_belongs_to_no_template_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let [known, unknown] = [1, 2].map(|number| template(number, 1, TemplateState::Building));
        for template in [&known, &unknown] {
            make(dir.path(), template, None).unwrap().note("one");
        }
        let upload = dir.path().join(format!("{}1", spool::PREFIX));
        std::fs::write(&upload, "unfinished").unwrap();
        std::fs::write(dir.path().join("notes.txt"), "of the operator").unwrap();
        remove_unknown(dir.path(), &BTreeSet::from([known.id.to_string()])).unwrap();
        let mut left: Vec<String> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|found| found.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected = vec!["notes.txt".to_owned(), known.id.to_string()];
        expected.sort();
        assert_eq!(left, expected);
    }

    #[test]
    fn the_log_of_a_build_is_continued_and_that_of_a_template_only_read() {
        let dir = tempfile::tempdir().unwrap();
        let build = template(1, 1, TemplateState::Building);
        let log = make(dir.path(), &build, None).unwrap();
        log.note("one");
        let bytes = log.file_bytes();
        drop(log);
        let continued = log_of(dir.path(), &build).unwrap();
        assert_eq!(continued.file_bytes(), bytes);
        continued.note("two");
        let ready = template(1, 1, TemplateState::Ready);
        let read = log_of(dir.path(), &ready).unwrap();
        let complete = read.file_bytes();
        read.note("after its end");
        assert!(complete > bytes && read.file_bytes() == complete);
        // A template whose log was removed has an empty one, without a directory.
        let without = template(2, 1, TemplateState::Ready);
        assert_eq!(log_of(dir.path(), &without).unwrap().file_bytes(), 0);
        assert!(!dir.path().join(without.id.as_str()).exists());
    }

    #[test]
    fn a_directory_that_exists_is_not_used_for_another_build() {
        let dir = tempfile::tempdir().unwrap();
        let build = template(1, 1, TemplateState::Queued);
        make(dir.path(), &build, None).unwrap();
        assert!(make(dir.path(), &build, None).is_err());
        assert!(!context_of(dir.path(), &build.id).exists());
    }
}
