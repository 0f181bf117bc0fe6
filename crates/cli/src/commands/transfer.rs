//! Copies files and directories between this machine and sandboxes. Called by `cp`. A failure leaves complete files.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use base::SetSome;
use futures_util::{StreamExt, TryStreamExt};
use sandboxd_client::{
    Client, Code, FileBody, FileEntry, FileStream, Files, Sandbox, SandboxId, SandboxName, Write,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::named_sandbox::find_sandbox;
use super::owner::NewOwner;
use crate::failure::NoDirectory;
use crate::progress::ProgressLine;

/// The length of the first header of a tar archive.
const ARCHIVE_HEAD: u64 = 512;
/// Where such a header says what it is.
const TAR_MAGIC: (usize, &[u8]) = (257, b"ustar");
/// All bits of a mode that a file may have in a sandbox. Files that come from one have only those of permissions.
pub const MODE_BITS: u32 = 0o7777;

/// A source or destination.
pub enum Location {
    Here(PathBuf),
    Inside(Sandbox, PathBuf),
    /// Standard input or output.
    Stream,
}

impl Location {
    /// The location that a word names: `SANDBOX:PATH`, `-`, or a local path.
    pub async fn find(client: &Client, word: &OsStr) -> Result<Self> {
        Ok(match Word::parse(word) {
            Word::Stream => Self::Stream,
            Word::Here => Self::Here(word.into()),
            Word::Inside(sandbox, path) => {
                ensure!(
                    !begins_at_home(path),
                    "'~' is not replaced in a path of a sandbox: sbx exec {sandbox} 'echo ~' prints the directory that it stands for; './~' is a file of this name"
                );
                Self::Inside(find_sandbox(client, sandbox).await?, path.into())
            }
        })
    }
}

/// What a word names.
#[derive(Debug, PartialEq, Eq)]
enum Word<'a> {
    Stream,
    Here,
    /// The id or the name of a sandbox, and a path in it.
    Inside(&'a str, &'a OsStr),
}

impl<'a> Word<'a> {
    /// A local path with a colon needs a slash before it, such as that of a leading `./`.
    fn parse(word: &'a OsStr) -> Self {
        if word == "-" {
            return Self::Stream;
        }
        let bytes = word.as_bytes();
        let Some(colon) = bytes.iter().position(|byte| *byte == b':') else { return Self::Here };
        let Ok(sandbox) = std::str::from_utf8(&bytes[..colon]) else { return Self::Here };
        // What begins like an id is meant as one.
        if !sandbox.starts_with(SandboxId::PREFIX) && sandbox.parse::<SandboxName>().is_err() {
            return Self::Here;
        }
        let path = &bytes[colon + 1..];
        Self::Inside(sandbox, OsStr::from_bytes(if path.is_empty() { b"." } else { path }))
    }
}

/// Whether a shell would replace the beginning of the path by a home directory.
fn begins_at_home(path: &OsStr) -> bool {
    path == "~" || path.as_bytes().starts_with(b"~/")
}

/// What was copied.
#[derive(Debug, Default)]
pub struct Copied {
    pub files: u64,
    pub bytes: u64,
}

/// An opened source.
pub enum CopySource {
    File {
        name: Option<OsString>,
        size: Option<u64>,
        mode: Option<u32>,
        content: CopyContent,
    },
    /// Without a name, only its contents are copied.
    Directory {
        name: Option<OsString>,
        content: CopyContent,
    },
}

/// Where the content of a file or directory is read from.
pub enum CopyContent {
    Here(PathBuf),
    Stdin,
    Inside(Files, PathBuf),
    /// A file with its metadata.
    FileInside(Files, PathBuf, Box<FileEntry>),
}

impl CopySource {
    /// Opens a location to copy from. It fails if nothing is there.
    pub async fn find(location: Location) -> Result<Self> {
        match location {
            Location::Stream => {
                Ok(Self::File { name: None, size: None, mode: None, content: CopyContent::Stdin })
            }
            Location::Here(path) => {
                let found = std::fs::metadata(&path).with_context(|| path.display().to_string())?;
                if found.is_dir() {
                    let name = name(&path);
                    return Ok(Self::Directory { name, content: CopyContent::Here(path) });
                }
                let size = found.is_file().then_some(found.len());
                let (name, mode) = (name(&path), Some(found.permissions().mode() & MODE_BITS));
                Ok(Self::File { name, size, mode, content: CopyContent::Here(path) })
            }
            Location::Inside(sandbox, path) => {
                let files = sandbox.files();
                let found = files.stat_target(&path).await?;
                let name = name(&path);
                if found.is_directory {
                    return Ok(Self::Directory { name, content: CopyContent::Inside(files, path) });
                }
                let mode = u32::from_str_radix(&found.mode, 8).ok().map(|mode| mode & MODE_BITS);
                let size = Some(found.size_bytes);
                Ok(Self::File {
                    name,
                    size,
                    mode,
                    content: CopyContent::FileInside(files, path, Box::new(found)),
                })
            }
        }
    }

    /// Name and size for the progress bar.
    pub fn name_and_size(&self) -> (Cow<'_, str>, Option<u64>) {
        let (name, unnamed, size) = match self {
            Self::File { name, size, .. } => (name, "-", *size),
            Self::Directory { name, .. } => (name, ".", None),
        };
        (name.as_ref().map_or(unnamed.into(), |name| name.to_string_lossy()), size)
    }

    /// Copies to the destination. `owner`: who gets the copy in a sandbox, if not root.
    pub async fn copy(self, to: Location, owner: Option<&str>, progress: &ProgressLine) -> Result<Copied> {
        let (path, source) = match (to, self) {
            (Location::Inside(sandbox, path), source) => {
                let owner = owner.map(|owner| NewOwner::new(&sandbox, owner));
                return source.copy_inside(&sandbox.files(), path, owner.as_ref(), progress).await;
            }
            (_, _) if owner.is_some() => {
                bail!("--chown gives copies in a sandbox to a user of it; this copy is not in one")
            }
            (Location::Stream, source) => return source.print(progress).await,
            (Location::Here(path), source) => (path, source),
        };
        match source {
            Self::File { name, content, .. } => {
                let path = here(path, name.as_deref());
                check_directory(&path)?;
                content.into_file(&path, progress).await
            }
            Self::Directory { name, content } => {
                let path = here(path, name.as_deref());
                ensure!(!path.exists() || path.is_dir(), "{} is not a directory", path.display());
                let CopyContent::Inside(files, from) = content else { return no_sandbox_path() };
                let stream = files.pack(from).stream().await?.on_progress(progress.callback());
                let unpacked = stream.unpack_to(path).await?;
                Ok(Copied { files: unpacked.files, bytes: unpacked.bytes })
            }
        }
    }

    /// Copies into a sandbox.
    async fn copy_inside(
        self,
        files: &Files,
        path: PathBuf,
        owner: Option<&NewOwner>,
        progress: &ProgressLine,
    ) -> Result<Copied> {
        let (placed, copied) = match self {
            Self::File { content: CopyContent::Stdin, .. } => {
                let copied = copy_stdin(files, &path, owner, progress).await?;
                (vec![path], copied)
            }
            Self::File { name, mode, content, .. } => {
                let path = inside(files, path, name.as_deref()).await?;
                let mut write = files.write(&path, content.body(progress).await?);
                write = write.set_some(mode, Write::mode);
                let written = write.await.map_err(|error| NoDirectory::explain(error, &path))?;
                (vec![path], Copied { files: 1, bytes: written.size_bytes })
            }
            Self::Directory { name, content } => {
                let path = inside(files, path, name.as_deref()).await?;
                let placed = match (owner, name) {
                    // What was in the directory before keeps its owner.
                    (Some(_), None) if files.exists(&path).await? => {
                        content.names().await?.into_iter().map(|name| path.join(name)).collect()
                    }
                    _ => vec![path.clone()],
                };
                let unpacked = files.unpack(&path, content.archive(progress).await?).await?;
                (placed, Copied { files: unpacked.files, bytes: unpacked.bytes })
            }
        };
        if let Some(owner) = owner {
            owner.own(&placed).await?;
        }
        Ok(copied)
    }

    /// Copies to standard output.
    async fn print(self, progress: &ProgressLine) -> Result<Copied> {
        match self {
            Self::File { content: CopyContent::FileInside(files, from, _), .. } => {
                print(files.read(from).stream().await?.on_progress(progress.callback())).await
            }
            Self::Directory { name, content: CopyContent::Inside(files, from) } => {
                let archive = files.pack(&from).stream().await?.on_progress(progress.callback());
                match name {
                    Some(name) => print(archive.below(name, &files.stat_target(&from).await?)).await,
                    None => print(archive).await,
                }
            }
            _ => no_sandbox_path(),
        }
    }
}

fn no_sandbox_path<T>() -> Result<T> {
    bail!("neither path is in a sandbox; write SANDBOX:PATH")
}

impl CopyContent {
    /// The content of a file as a request body.
    async fn body(self, progress: &ProgressLine) -> Result<FileBody> {
        let body = match self {
            Self::Here(path) => FileBody::file(path),
            Self::Stdin => FileBody::reader(tokio::io::stdin()),
            Self::Inside(files, path) | Self::FileInside(files, path, _) => {
                relay(files.read(path).stream().await?)
            }
        };
        Ok(body.on_progress(progress.callback()))
    }

    /// The content of a directory as a tar archive.
    async fn archive(self, progress: &ProgressLine) -> Result<FileBody> {
        let body = match self {
            Self::Here(path) => FileBody::directory(path),
            Self::Stdin => FileBody::reader(tokio::io::stdin()),
            Self::Inside(files, path) | Self::FileInside(files, path, _) => {
                relay(files.pack(path).stream().await?)
            }
        };
        Ok(body.on_progress(progress.callback()))
    }

    /// The names in a directory.
    async fn names(&self) -> Result<Vec<OsString>> {
        match self {
            Self::Here(path) => local_names(path),
            Self::Inside(files, path) | Self::FileInside(files, path, _) => {
                let entries: Vec<FileEntry> = files.list(path).stream().try_collect().await?;
                Ok(entries.into_iter().map(|entry| entry.name.into()).collect())
            }
            Self::Stdin => Ok(Vec::new()),
        }
    }

    async fn into_file(self, path: &Path, progress: &ProgressLine) -> Result<Copied> {
        let Self::FileInside(files, from, found) = self else { return no_sandbox_path() };
        let stream = files.read(from).stream().await?.on_progress(progress.callback());
        let bytes = stream.to_copy(path, &found).await?;
        Ok(Copied { files: 1, bytes })
    }
}

/// Unpacks standard input into a directory, if one exists or a slash says that one is meant, and writes it to a file otherwise.
async fn copy_stdin(
    files: &Files,
    path: &Path,
    owner: Option<&NewOwner>,
    progress: &ProgressLine,
) -> Result<Copied> {
    let found = match files.stat_target(path).await {
        Ok(found) => Some(found.is_directory),
        Err(error) if error.code() == Code::FileNotFound => None,
        Err(error) => return Err(error.into()),
    };
    if found.unwrap_or(ends_with_slash(path)) {
        ensure!(
            owner.is_none(),
            "--chown is for files and directories, and this is an archive; 'sbx exec SANDBOX chown -R USER PATH' changes owners later"
        );
        let unpacked = files.unpack(path, CopyContent::Stdin.archive(progress).await?).await?;
        return Ok(Copied { files: unpacked.files, bytes: unpacked.bytes });
    }
    let (mut stdin, mut head) = (tokio::io::stdin(), Vec::new());
    (&mut stdin).take(ARCHIVE_HEAD).read_to_end(&mut head).await?;
    let path_text = path.display();
    ensure!(
        found.is_some() || !is_archive(&head) || is_archive_name(path),
        "standard input is a tar archive, and the directory {path_text} does not exist in the sandbox: {path_text}/ creates it, \
         and a name with .tar stores the archive as a file"
    );
    let body = FileBody::reader(io::Cursor::new(head).chain(stdin)).on_progress(progress.callback());
    let written = files.write(path, body).await.map_err(|error| NoDirectory::explain(error, path))?;
    Ok(Copied { files: 1, bytes: written.size_bytes })
}

/// Whether this is the beginning of a tar archive.
fn is_archive(head: &[u8]) -> bool {
    head.get(TAR_MAGIC.0..).is_some_and(|rest| rest.starts_with(TAR_MAGIC.1))
}

/// Whether a file with this name is meant to be an archive, such as `a.tar` or `a.tar.gz`.
fn is_archive_name(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(".tar"))
}

/// Streams a response body of one sandbox as the request body of another.
fn relay(stream: FileStream) -> FileBody {
    FileBody::stream(stream.map_err(io::Error::other))
}

async fn print(mut stream: FileStream) -> Result<Copied> {
    let mut out = tokio::io::stdout();
    let mut bytes = 0;
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        bytes += piece.len() as u64;
        out.write_all(&piece).await?;
    }
    out.flush().await?;
    Ok(Copied { files: 1, bytes })
}

/// The last component of a path; `None` if only the contents of a directory are meant.
fn name(path: &Path) -> Option<OsString> {
    let path = path.as_os_str().as_bytes();
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let last = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
    if matches!(&last(path)[..], b"." | b"..") {
        return None;
    }
    Some(OsString::from_vec(last(&path[..end]))).filter(|name| !name.is_empty())
}

/// Whether a trailing slash marks the path as a directory.
fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

/// The destination in the sandbox: inside an existing directory, otherwise the path itself.
async fn inside(files: &Files, path: PathBuf, name: Option<&OsStr>) -> Result<PathBuf> {
    let Some(name) = name else { return Ok(path) };
    let is_directory = match files.stat_target(&path).await {
        Ok(FileEntry { is_directory, .. }) => is_directory,
        Err(error) if error.code() == Code::FileNotFound => ends_with_slash(&path),
        Err(error) => return Err(error.into()),
    };
    Ok(match path.as_os_str() {
        here if is_directory && here == "." => name.into(),
        _ if is_directory => path.join(name),
        _ => path,
    })
}

/// The names in a directory of this machine.
pub fn local_names(path: &Path) -> Result<Vec<OsString>> {
    let named = || path.display().to_string();
    let entries = std::fs::read_dir(path).with_context(named)?;
    entries.map(|entry| Ok(entry.with_context(named)?.file_name())).collect()
}

/// Fails if the directory of a local path does not exist, before anything is read.
fn check_directory(path: &Path) -> Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    if let Some(dir) = dir.filter(|dir| !dir.exists()) {
        bail!("{}: the directory {} does not exist here", path.display(), dir.display());
    }
    Ok(())
}

fn here(path: PathBuf, name: Option<&OsStr>) -> PathBuf {
    match name {
        Some(name) if path.is_dir() || ends_with_slash(&path) => path.join(name),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_last_component() {
        let names = ["a", "/a/b", "a/", "/", ".", "a/.", "..", "a/.b"].map(|path| name(Path::new(path)));
        let expected = [Some("a"), Some("b"), Some("a"), None, None, None, None, Some(".b")];
        assert_eq!(names, expected.map(|name| name.map(OsString::from)));
    }

    #[test]
    fn a_missing_local_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none/x");
        let error = check_directory(&path).unwrap_err().to_string();
        assert!(error.ends_with("/none does not exist here") && error.contains("/none/x: "), "{error}");
        for path in [dir.path().join("x"), "x".into(), "/".into()] {
            assert!(check_directory(&path).is_ok(), "{path:?}");
        }
        std::fs::write(dir.path().join("a"), "").unwrap();
        assert_eq!(local_names(dir.path()).unwrap(), ["a"]);
        assert!(local_names(&path).is_err());
    }

    #[test]
    fn a_home_directory_is_not_meant_by_a_file_name() {
        let begins = |path: &str| begins_at_home(path.as_ref());
        assert!(begins("~") && begins("~/") && begins("~/a"));
        assert!(!begins("~a") && !begins("./~/a") && !begins("/~"));
    }

    #[test]
    fn archives_are_known_by_their_header() {
        let mut head = vec![0; 512];
        assert!(!is_archive(&head) && !is_archive(b"text") && !is_archive(b""));
        head[257..262].copy_from_slice(b"ustar");
        assert!(is_archive(&head));
        let is_meant = |path: &str| is_archive_name(Path::new(path));
        assert!(is_meant("/a/b.tar") && is_meant("b.tar.gz") && !is_meant("/a.tar/b") && !is_meant("/"));
    }

    #[test]
    fn words_name_locations() {
        let odd = OsStr::from_bytes(b"sb_aaaaaaaa:a/\xff");
        assert_eq!(Word::parse(odd), Word::Inside("sb_aaaaaaaa", OsStr::from_bytes(b"a/\xff")));
        assert_eq!(Word::parse(OsStr::from_bytes(b"\xff:x")), Word::Here);
        let inside = |sandbox, path: &'static str| Word::Inside(sandbox, path.as_ref());
        for (word, expected) in [
            ("-", Word::Stream),
            ("a", Word::Here),
            ("a:b", inside("a", "b")),
            ("web-1.x:/srv:7", inside("web-1.x", "/srv:7")),
            ("./a:b", Word::Here),
            ("/a:b", Word::Here),
            ("a/b:c", Word::Here),
            (".a:b", Word::Here),
            (":b", Word::Here),
            ("./sb_aaaaaaaa:x", Word::Here),
            ("sb_aaaaaaaa:/x", inside("sb_aaaaaaaa", "/x")),
            ("sb_aaaaaaaa:", inside("sb_aaaaaaaa", ".")),
            // The client refuses it, as it is no id.
            ("sb_:/x", inside("sb_", "/x")),
        ] {
            assert_eq!(Word::parse(word.as_ref()), expected, "{word}");
        }
    }
}
