//! The files of a fake sandbox: an in-memory tree without links, owners and times. Commands and file operations share it. It
//! outlives the sandbox's processes.

use std::collections::BTreeMap;
use std::io::{self, Read};

use guest_proto::{FileErrorKind, FileKind, FileStat, Tally};

/// Why a file operation fails.
pub type Failure = (FileErrorKind, String);

#[derive(Clone)]
enum Entry {
    Directory { mode: u32 },
    File { mode: u32, bytes: Vec<u8> },
}

/// All entries by their absolute paths without `.`, `..` and doubled slashes.
#[derive(Clone)]
pub struct Disk {
    entries: BTreeMap<String, Entry>,
}

impl Default for Disk {
    fn default() -> Self {
        let directory = |path: &str| (path.to_owned(), Entry::Directory { mode: 0o755 });
        Self { entries: ["/", "/tmp", "/workspace"].map(directory).into() }
    }
}

impl Disk {
    pub fn is_directory(&self, path: &str) -> bool {
        matches!(self.entries.get(&normal(path)), Some(Entry::Directory { .. }))
    }

    /// Creates a directory and its parents.
    pub fn make_all(&mut self, path: &str) {
        let mut at = String::new();
        for name in normal(path).split('/').filter(|name| !name.is_empty()) {
            at = format!("{at}/{name}");
            self.entries.entry(at.clone()).or_insert(Entry::Directory { mode: 0o755 });
        }
    }

    pub fn read(&self, path: &str) -> Result<&[u8], Failure> {
        match self.entries.get(&normal(path)) {
            Some(Entry::File { bytes, .. }) => Ok(bytes),
            Some(Entry::Directory { .. }) => {
                Err((FileErrorKind::NotAFile, format!("'{path}' is a directory, not a file")))
            }
            None => Err(missing(path)),
        }
    }

    pub fn stat(&self, path: &str) -> Result<FileStat<'static>, Failure> {
        self.entries.get(&normal(path)).map(stat).ok_or_else(|| missing(path))
    }

    /// The entries of a directory by name.
    pub fn list(&self, path: &str) -> Result<Vec<(String, FileStat<'static>)>, Failure> {
        self.expect_directory(path)?;
        let dir = normal(path);
        let children = self.entries.iter().filter(|(path, _)| *path != "/" && parent(path) == dir);
        Ok(children.map(|(path, entry)| (name(path).to_owned(), stat(entry))).collect())
    }

    pub fn write(
        &mut self,
        path: &str,
        mode: Option<u32>,
        parents: bool,
        bytes: Vec<u8>,
    ) -> Result<FileStat<'static>, Failure> {
        let path = self.path_for_new(path, parents)?;
        if self.is_directory(&path) {
            return Err((FileErrorKind::NotAFile, format!("'{path}' is a directory, not a file")));
        }
        let entry = Entry::File { mode: mode.unwrap_or(0o644), bytes };
        let stat = stat(&entry);
        self.entries.insert(path, entry);
        Ok(stat)
    }

    pub fn make_dir(
        &mut self,
        path: &str,
        mode: Option<u32>,
        recursive: bool,
    ) -> Result<FileStat<'static>, Failure> {
        let at = self.path_for_new(path, recursive)?;
        match self.entries.get(&at) {
            Some(entry @ Entry::Directory { .. }) if recursive => return Ok(stat(entry)),
            Some(_) => return Err((FileErrorKind::Exists, format!("'{path}' exists"))),
            None => {}
        }
        let entry = Entry::Directory { mode: mode.unwrap_or(0o755) };
        let stat = stat(&entry);
        self.entries.insert(at, entry);
        Ok(stat)
    }

    pub fn delete(&mut self, path: &str, recursive: bool) -> Result<Tally, Failure> {
        let at = normal(path);
        self.stat(path)?;
        let below = self.below(&at);
        if !below.is_empty() && !recursive {
            return Err((FileErrorKind::NotEmpty, format!("the directory '{path}' is not empty")));
        }
        let mut tally = Tally::default();
        for path in below.into_iter().chain([at]) {
            match self.entries.remove(&path) {
                Some(Entry::Directory { .. }) => tally.directories += 1,
                Some(Entry::File { bytes, .. }) => {
                    tally.files += 1;
                    tally.bytes += bytes.len() as u64;
                }
                None => {}
            }
        }
        Ok(tally)
    }

    pub fn rename(&mut self, from: &str, to: &str, overwrite: bool) -> Result<FileStat<'static>, Failure> {
        self.stat(from)?;
        let (old, new) = (normal(from), self.path_for_new(to, false)?);
        if self.entries.contains_key(&new) && !overwrite {
            return Err((FileErrorKind::Exists, format!("'{to}' exists")));
        }
        for path in self.below(&old).into_iter().chain([old.clone()]) {
            if let Some(entry) = self.entries.remove(&path) {
                self.entries.insert(format!("{new}{}", &path[old.len()..]), entry);
            }
        }
        self.stat(to)
    }

    /// A directory as a tar archive.
    pub fn pack(&self, path: &str) -> Result<Vec<u8>, Failure> {
        self.expect_directory(path)?;
        let dir = normal(path);
        let mut archive = tar::Builder::new(Vec::new());
        let mut append = |path: &str, kind, mode, bytes: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_size(bytes.len() as u64);
            archive.append_data(&mut header, path[dir.len()..].trim_start_matches('/'), bytes)
        };
        for path in self.below(&dir) {
            let appended = match &self.entries[&path] {
                Entry::Directory { mode } => append(&path, tar::EntryType::Directory, *mode, &[]),
                Entry::File { mode, bytes } => append(&path, tar::EntryType::Regular, *mode, bytes),
            };
            appended.map_err(failed)?;
        }
        archive.into_inner().map_err(failed)
    }

    /// Extracts a tar archive into a directory, which is created if it does not exist.
    pub fn unpack(&mut self, path: &str, archive: &[u8]) -> Result<Tally, Failure> {
        self.make_all(path);
        let mut tally = Tally::default();
        for entry in tar::Archive::new(archive).entries().map_err(invalid)? {
            let mut entry = entry.map_err(invalid)?;
            let inside = entry.path().map_err(invalid)?.to_string_lossy().into_owned();
            let (at, mode) = (format!("{path}/{inside}"), entry.header().mode().ok());
            if entry.header().entry_type().is_dir() {
                self.make_all(&at);
                tally.directories += 1;
                continue;
            }
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).map_err(invalid)?;
            tally.files += 1;
            tally.bytes += bytes.len() as u64;
            self.write(&at, mode, true, bytes)?;
        }
        Ok(tally)
    }

    fn expect_directory(&self, path: &str) -> Result<(), Failure> {
        self.stat(path)?;
        if self.is_directory(path) {
            return Ok(());
        }
        Err((FileErrorKind::NotADirectory, format!("'{path}' is not a directory")))
    }

    /// The path of a new entry. Its directory exists or is created.
    fn path_for_new(&mut self, path: &str, parents: bool) -> Result<String, Failure> {
        let at = normal(path);
        let above = parent(&at).to_owned();
        if parents {
            self.make_all(&above);
        }
        self.expect_directory(&above).map(|()| at)
    }

    /// All entries below a directory. Directories come before their content.
    fn below(&self, dir: &str) -> Vec<String> {
        let prefix = if dir == "/" { dir.to_owned() } else { format!("{dir}/") };
        self.entries.keys().filter(|path| path.starts_with(&prefix) && *path != dir).cloned().collect()
    }
}

/// A path without `.`, `..` and doubled slashes.
fn normal(path: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    format!("/{}", names.join("/"))
}

fn parent(path: &str) -> &str {
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(at) => &path[..at],
    }
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

fn stat(entry: &Entry) -> FileStat<'static> {
    let (kind, mode, size) = match entry {
        Entry::Directory { mode } => (FileKind::Directory, *mode, 4096),
        Entry::File { mode, bytes } => (FileKind::File, *mode, bytes.len() as u64),
    };
    FileStat { kind, mode, size, modified_ns: 1_000_000_000, inode: 1, target: None }
}

fn missing(path: &str) -> Failure {
    (FileErrorKind::NotFound, format!("there is no '{path}'"))
}

#[expect(clippy::needless_pass_by_value, reason = "map_err hands its error over")]
fn failed(error: io::Error) -> Failure {
    (FileErrorKind::Failed, error.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "map_err hands its error over")]
fn invalid(error: io::Error) -> Failure {
    (FileErrorKind::Invalid, error.to_string())
}
