//! Writes a directory as a tar whose bytes depend only on its content, not on the order of the file system. Sockets
//! and mount points are left out; links are not followed.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};

const BUFFER_BYTES: usize = 128 * 1024;

/// What a directory represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectoryForm {
    /// A root file system.
    Root,
    /// The upper directory of an overlay: its whiteouts become whiteouts of a layer's tar.
    Upper,
}

pub(super) fn write_tar(dir: &Path, form: DirectoryForm, out: impl Write) -> io::Result<()> {
    let mut walk = Walk {
        root: dir,
        form,
        device: dir.metadata()?.dev(),
        links: HashMap::new(),
        tar: Builder::new(BufWriter::with_capacity(BUFFER_BYTES, out)),
    };
    let mut todo = vec![PathBuf::new()];
    while let Some(path) = todo.pop() {
        let mut children = walk.entry(&path)?;
        children.sort_by(|a, b| b.as_os_str().as_bytes().cmp(a.as_os_str().as_bytes()));
        todo.append(&mut children);
    }
    walk.tar.into_inner()?.flush()
}

struct Walk<'a, W: Write> {
    root: &'a Path,
    form: DirectoryForm,
    device: u64,
    /// The first path of each file with several names.
    links: HashMap<u64, PathBuf>,
    tar: Builder<W>,
}

impl<W: Write> Walk<'_, W> {
    /// Writes one entry and returns the entries of a directory.
    fn entry(&mut self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let full = self.root.join(path);
        let meta = if path.as_os_str().is_empty() { full.metadata()? } else { full.symlink_metadata()? };
        let kind = meta.file_type();
        let path_in_tar = Path::new(".").join(path);
        let mut header = header(&meta);
        if kind.is_socket() {
            return Ok(vec![]);
        }
        if kind.is_dir() {
            self.attributes(&full)?;
            header.set_entry_type(EntryType::Directory);
            self.tar.append_data(&mut header, &path_in_tar, io::empty())?;
            if self.form == DirectoryForm::Upper && is_opaque(&full)? {
                self.whiteout(&path_in_tar.join(".wh..wh..opq"))?;
            }
            return if meta.dev() == self.device { children(&full, path) } else { Ok(vec![]) };
        }
        // The whiteouts of an overlay are links to one device node.
        if meta.nlink() > 1 && !kind.is_char_device() {
            if let Some(first) = self.links.get(&meta.ino()) {
                header.set_entry_type(EntryType::Link);
                self.tar.append_link(&mut header, &path_in_tar, first)?;
                return Ok(vec![]);
            }
            self.links.insert(meta.ino(), path_in_tar.clone());
        }
        if kind.is_file() {
            self.attributes(&full)?;
            header.set_size(meta.len());
            let nofollow = i32::try_from(OFlags::NOFOLLOW.bits()).map_err(io::Error::other)?;
            let file = OpenOptions::new().read(true).custom_flags(nofollow).open(&full)?;
            self.tar.append_data(&mut header, &path_in_tar, ExactLength { file, left: meta.len() })?;
        } else if kind.is_symlink() {
            header.set_entry_type(EntryType::Symlink);
            self.tar.append_link(&mut header, &path_in_tar, full.read_link()?)?;
        } else if self.form == DirectoryForm::Upper && kind.is_char_device() && meta.rdev() == 0 {
            let mut name = OsString::from(".wh.");
            name.push(path_in_tar.file_name().unwrap_or_default());
            self.whiteout(&path_in_tar.with_file_name(name))?;
        } else {
            // Devices are included, so that unpacking refuses them by name.
            header.set_entry_type(match kind {
                kind if kind.is_fifo() => EntryType::Fifo,
                kind if kind.is_char_device() => EntryType::Char,
                _ => EntryType::Block,
            });
            self.tar.append_data(&mut header, &path_in_tar, io::empty())?;
        }
        Ok(vec![])
    }

    fn whiteout(&mut self, name: &Path) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(0);
        self.tar.append_data(&mut header, name, io::empty())
    }

    fn attributes(&mut self, full: &Path) -> io::Result<()> {
        let mut attributes = Vec::new();
        for name in attribute_names(full)? {
            if name.starts_with("user.") || name == "security.capability" {
                let mut value = vec![0; 65_536];
                let n = rustix::fs::lgetxattr(full, name.as_str(), value.as_mut_slice())?;
                value.truncate(n);
                attributes.push((format!("SCHILY.xattr.{name}"), value));
            }
        }
        attributes.sort();
        self.tar.append_pax_extensions(attributes.iter().map(|(key, value)| (key.as_str(), value.as_slice())))
    }
}

fn children(full: &Path, path: &Path) -> io::Result<Vec<PathBuf>> {
    std::fs::read_dir(full)?.map(|entry| Ok(path.join(entry?.file_name()))).collect()
}

fn header(meta: &Metadata) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(meta.mode() & 0o7777);
    header.set_uid(meta.uid().into());
    header.set_gid(meta.gid().into());
    header.set_mtime(u64::try_from(meta.mtime()).unwrap_or(0));
    header.set_size(0);
    header
}

fn is_opaque(dir: &Path) -> io::Result<bool> {
    let mut value = [0_u8; 1];
    match rustix::fs::lgetxattr(dir, "trusted.overlay.opaque", &mut value[..]) {
        Ok(n) => Ok(n == 1 && value == *b"y"),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

fn attribute_names(full: &Path) -> io::Result<Vec<String>> {
    let mut names = vec![0; 65_536];
    match rustix::fs::llistxattr(full, names.as_mut_slice()) {
        Ok(n) => names.truncate(n),
        Err(Errno::NOTSUP) => names.clear(),
        Err(e) => return Err(e.into()),
    }
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    Ok(names.split(|b| *b == 0).filter(|name| !name.is_empty()).map(text).collect())
}

/// Reads exactly the size in the header. A file that shrank is an error, one that grew is truncated.
struct ExactLength {
    file: File,
    left: u64,
}

impl Read for ExactLength {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let n = self.file.read(&mut buffer[..want])?;
        if n == 0 && want > 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file shrank while it was copied"));
        }
        self.left -= n as u64;
        Ok(n)
    }
}
