//! Puts the entries of an archive below a directory. Called by programs that write archives to a pipe or a file, such as `sbx cp`.

use std::io::{self, Read, Write};
use std::path::Path;
use std::time::UNIX_EPOCH;

use api::FileEntry;
use tar::{Archive, Builder, Entry, EntryType, Header};

use super::bounded::{Allowance, BoundedReader};
use super::pieces::rewritten;
use super::placement::Attributes;
use super::read::FileStream;
use super::state::PERMISSIONS;
use super::tree::pass;
use crate::Error;

impl FileStream {
    /// The archive with `name` as the first component of all names, and with an entry for that directory, which `entry` describes. The
    /// length is unknown then. Entries that are neither files, directories nor symbolic links are omitted.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # let dir = tempfile::tempdir()?;
    /// # let local = dir.path();
    /// let files = sandbox.files();
    /// files.write("project/main.py", "print(1)").parents().await?;
    /// let entry = files.stat("project").await?;
    /// files.pack("project").stream().await?.below("project", &entry).unpack_to(local).await?;
    /// assert!(local.join("project/main.py").exists());
    /// # Ok(()) });
    /// ```
    pub fn below(self, name: impl AsRef<Path>, entry: &FileEntry) -> Self {
        let (name, attributes) = (name.as_ref().to_owned(), Attributes::of(entry));
        let request_id = self.request_id().map(str::to_owned);
        let fault = |error: io::Error| Error::network("the archive cannot be read").caused_by(error);
        let pieces =
            rewritten(self.into_pieces(), move |from, to| put_below(from, to, &name, attributes), fault);
        Self::of_pieces(pieces, request_id)
    }
}

fn put_below(
    from: &mut impl Read,
    to: &mut impl Write,
    name: &Path,
    attributes: Attributes,
) -> io::Result<()> {
    let mut builder = Builder::new(to);
    let since = attributes.modified.and_then(|modified| modified.duration_since(UNIX_EPOCH).ok());
    let modified_s = since.map_or(0, |since| since.as_secs());
    let mut top = header(EntryType::Directory, attributes.mode, modified_s, 0);
    // As tar and Docker do, the name of a directory ends with a slash.
    builder.append_data(&mut top, name.join(""), io::empty())?;
    let allowance = Allowance::new();
    let mut archive = Archive::new(BoundedReader::new(from, &allowance));
    let mut entries = archive.entries()?;
    let mut before = 0;
    while let (Some(entry), _) = allowance.head(before, || entries.next()) {
        let mut entry = entry?;
        append(&mut builder, name, &mut entry)?;
        before = pass(&mut entry)?;
    }
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    builder.finish()
}

fn append<R: Read>(
    builder: &mut Builder<impl Write>,
    name: &Path,
    entry: &mut Entry<'_, R>,
) -> io::Result<()> {
    let path = name.join(entry.path()?);
    let (mode, modified_s) = (entry.header().mode()?, entry.header().mtime().unwrap_or(0));
    let kind = match entry.header().entry_type() {
        EntryType::Continuous => EntryType::Regular,
        kind => kind,
    };
    let mut head = header(kind, mode, modified_s, entry.size());
    match kind {
        EntryType::Directory => builder.append_data(&mut head, path, io::empty()),
        EntryType::Symlink => builder.append_link(&mut head, path, entry.link_name()?.unwrap_or_default()),
        EntryType::Regular => builder.append_data(&mut head, path, entry),
        _ => Ok(()),
    }
}

fn header(kind: EntryType, mode: u32, modified_s: u64, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode & PERMISSIONS);
    header.set_mtime(modified_s);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::archive::pack;

    #[test]
    fn names_get_a_first_component() {
        let from = tempfile::tempdir().unwrap();
        std::fs::create_dir(from.path().join("sub")).unwrap();
        let long = "x".repeat(200);
        std::fs::write(from.path().join("sub").join(&long), "content").unwrap();
        std::os::unix::fs::symlink("sub", from.path().join("link")).unwrap();
        let (mut archive, mut moved) = (Vec::new(), Vec::new());
        pack(from.path(), &mut archive).unwrap();
        put_below(&mut archive.as_slice(), &mut moved, Path::new("d"), Attributes::new(0o750, 7)).unwrap();
        let to = tempfile::tempdir().unwrap();
        let mut moved = Archive::new(moved.as_slice());
        moved.unpack(to.path()).unwrap();
        let content = std::fs::read_to_string(to.path().join("d/sub").join(long)).unwrap();
        assert_eq!(content, "content");
        assert_eq!(to.path().join("d/link").read_link().unwrap(), Path::new("sub"));
    }

    #[test]
    fn half_an_archive_is_an_error() {
        let from = tempfile::tempdir().unwrap();
        std::fs::write(from.path().join("file"), vec![1; 10_000]).unwrap();
        let mut archive = Vec::new();
        pack(from.path(), &mut archive).unwrap();
        let half = &mut &archive[..5000];
        assert!(put_below(half, &mut Vec::new(), Path::new("d"), Attributes::new(0o755, 0)).is_err());
    }
}
