//! The patterns of images that `sandboxd image allow` has added to those of the configuration: a file in the data directory. The running
//! daemon reads it for each image that a client names, so that a change has an effect at once.

use std::error::Error;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use rules::{AddedPattern, ImagePattern};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use base::lock_file;

const FILE: &str = "allowed-images.json";
const LOCK: &str = "allowed-images.lock";
const PATTERNS: usize = 10_000;
const FILE_BYTES: u64 = 16 << 20;

/// Why the patterns cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum AllowedImagesError {
    #[error("cannot {action} {}", path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is malformed", path.display())]
    Malformed { path: PathBuf, source: Box<dyn Error + Send + Sync> },
    #[error("there are {PATTERNS} patterns already; remove some")]
    TooMany,
}

type Result<T> = std::result::Result<T, AllowedImagesError>;

/// The patterns of a data directory.
#[derive(Debug, Clone)]
pub struct AllowedImages {
    dir: PathBuf,
}

/// A pattern as the file has it.
#[derive(Serialize, Deserialize)]
struct StoredPattern {
    pattern: String,
    account: Option<String>,
}

/// Whether a change had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    Yes,
    /// The pattern was there already, or was not there.
    No,
}

impl AllowedImages {
    pub fn in_dir(data_dir: &Path) -> Self {
        Self { dir: data_dir.to_owned() }
    }

    /// All patterns, in the order in which they were added. Blocks.
    pub fn read(&self) -> Result<Vec<AddedPattern>> {
        let path = self.dir.join(FILE);
        let mut text = Vec::new();
        match File::open(&path).and_then(|file| file.take(FILE_BYTES).read_to_end(&mut text)) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(AllowedImagesError::File { action: "read", path, source }),
        }
        let malformed = |source| AllowedImagesError::Malformed { path: path.clone(), source };
        let entries: Vec<StoredPattern> =
            serde_json::from_slice(&text).map_err(|error| malformed(error.into()))?;
        let parsed = entries.into_iter().map(|StoredPattern { pattern, account }| {
            let pattern = ImagePattern::parse(&pattern).map_err(|error| malformed(error.into()))?;
            Ok(AddedPattern { pattern, account })
        });
        parsed.collect()
    }

    /// Adds a pattern.
    pub fn allow(&self, added: AddedPattern) -> Result<Changed> {
        self.change(|patterns| {
            if patterns.contains(&added) {
                return Ok(Changed::No);
            }
            if patterns.len() >= PATTERNS {
                return Err(AllowedImagesError::TooMany);
            }
            patterns.push(added);
            Ok(Changed::Yes)
        })
    }

    /// Removes a pattern.
    pub fn disallow(&self, removed: &AddedPattern) -> Result<Changed> {
        self.change(|patterns| {
            let before = patterns.len();
            patterns.retain(|pattern| pattern != removed);
            Ok(if patterns.len() < before { Changed::Yes } else { Changed::No })
        })
    }

    /// One change at a time, by any process.
    fn change(&self, change: impl FnOnce(&mut Vec<AddedPattern>) -> Result<Changed>) -> Result<Changed> {
        let path = self.dir.join(LOCK);
        let locked = lock_file(&path).and_then(|file| {
            flock(&file, FlockOperation::LockExclusive)?;
            Ok(file)
        });
        let _lock = locked.map_err(|source| AllowedImagesError::File { action: "lock", path, source })?;
        let mut patterns = self.read()?;
        let changed = change(&mut patterns)?;
        if changed == Changed::Yes {
            self.write(&patterns)?;
        }
        Ok(changed)
    }

    fn write(&self, patterns: &[AddedPattern]) -> Result<()> {
        let entry = |added: &AddedPattern| StoredPattern {
            pattern: added.pattern.to_string(),
            account: added.account.clone(),
        };
        let entries: Vec<StoredPattern> = patterns.iter().map(entry).collect();
        let path = self.dir.join(FILE);
        let text = serde_json::to_vec_pretty(&entries).map_err(io::Error::from);
        let written = text.and_then(|text| base::replace_file(&path, &text, 0o644));
        written.map_err(|source| AllowedImagesError::File { action: "write", path, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(pattern: &str, account: Option<&str>) -> AddedPattern {
        let pattern = ImagePattern::parse(pattern).unwrap();
        AddedPattern { pattern, account: account.map(str::to_owned) }
    }

    #[test]
    fn patterns_are_added_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let images = AllowedImages::in_dir(dir.path());
        assert_eq!(images.read().unwrap(), []);
        assert_eq!(images.allow(added("python", None)).unwrap(), Changed::Yes);
        assert_eq!(images.allow(added("ghcr.io/acme/*", Some("acme"))).unwrap(), Changed::Yes);
        // Another form of the same pattern.
        assert_eq!(images.allow(added("docker.io/library/python", None)).unwrap(), Changed::No);
        let other = AllowedImages::in_dir(dir.path());
        assert_eq!(other.read().unwrap(), [added("python", None), added("ghcr.io/acme/*", Some("acme"))]);
        // A pattern for one account is another one than the same for all.
        assert_eq!(images.disallow(&added("python", Some("acme"))).unwrap(), Changed::No);
        assert_eq!(images.disallow(&added("python", None)).unwrap(), Changed::Yes);
        assert_eq!(other.read().unwrap(), [added("ghcr.io/acme/*", Some("acme"))]);
    }

    #[test]
    fn a_malformed_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["{", r#"[{"pattern": "*/x", "account": null}]"#] {
            std::fs::write(dir.path().join(FILE), text).unwrap();
            let error = AllowedImages::in_dir(dir.path()).read().unwrap_err();
            assert!(error.to_string().contains(FILE), "{error:#}");
        }
    }
}
