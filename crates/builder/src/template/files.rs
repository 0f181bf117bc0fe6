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
