//! Which files a sandbox has created or changed since an upload, without writing anything here: those that a merge would copy. Called by
//! `record`. The archive is not trusted; its names may be any bytes.

use std::io::{self, ErrorKind, Read};
use std::path::PathBuf;

use tar::{Archive, EntryType};

use super::bounded::{Allowance, BoundedReader};
use super::merge::relative;
use super::state::{DigestReader, EntryState, SentEntries};
use super::tree::pass;

/// The names of the changed files and links in an archive, sorted. `None` if the archive is longer than `most` bytes.
pub fn changed_in_archive(
    archive: &mut impl Read,
    sent: &SentEntries,
    most: u64,
) -> io::Result<Option<Vec<PathBuf>>> {
    let mut limited = archive.take(most);
    match changed_entries(&mut limited, sent) {
        _ if limited.limit() == 0 => Ok(None),
        changed => changed.map(Some),
    }
}

/// The name of the only file that was sent if its content has changed. `None` if it is longer than `most` bytes.
pub fn changed_file(from: &mut impl Read, sent: &SentEntries, most: u64) -> io::Result<Option<Vec<PathBuf>>> {
    let mut limited = DigestReader::new(from.take(most));
    if io::copy(&mut limited, &mut io::sink())? == most {
        return Ok(None);
    }
    let inside = EntryState::File(limited.content());
    Ok(Some(sent.iter().filter(|(_, sent)| sent.state != inside).map(|(name, _)| name.clone()).collect()))
}

fn changed_entries(archive: &mut impl Read, sent: &SentEntries) -> io::Result<Vec<PathBuf>> {
    let allowance = Allowance::new();
    let mut archive = Archive::new(BoundedReader::new(archive, &allowance));
    let mut entries = archive.entries()?;
    let (mut before, mut changed) = (0, Vec::new());
    while let (Some(entry), _) = allowance.head(before, || entries.next()) {
        let mut entry = entry?;
        let name = relative(&entry.path()?).filter(|name| !name.as_os_str().is_empty());
        let inside = match entry.header().entry_type() {
            EntryType::Symlink => Some(EntryState::Link(
                entry.link_name()?.map(|target| target.into_owned()).unwrap_or_default(),
            )),
            EntryType::Regular | EntryType::Continuous => {
                let size = entry.size();
                let mut content = DigestReader::new(&mut entry);
                if io::copy(&mut content, &mut io::sink())? != size {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                Some(EntryState::File(content.content()))
            }
            _ => None,
        };
        if let (Some(name), Some(inside)) = (name, inside)
            && sent.get(&name).is_none_or(|sent| sent.state != inside)
        {
            changed.push(name);
        }
        before = pass(&mut entry)?;
    }
    // Reads the padding after the archive, up to the end of the stream.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    changed.sort();
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::files::archive;

    #[test]
    fn only_new_and_changed_files_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("d")).unwrap();
        for name in ["same", "changed", "deleted", "d/same"] {
            std::fs::write(at(name), "sent").unwrap();
        }
        std::os::unix::fs::symlink("same", at("link")).unwrap();
        let sent = archive::pack_recorded(dir.path(), &mut io::sink()).unwrap();
        let changes = |most: u64| {
            let mut packed = Vec::new();
            archive::pack(dir.path(), &mut packed).unwrap();
            changed_in_archive(&mut packed.as_slice(), &sent, most).unwrap()
        };
        assert_eq!(changes(1 << 20), Some(Vec::new()));
        std::fs::write(at("changed"), "SENT").unwrap();
        std::fs::remove_file(at("deleted")).unwrap();
        std::fs::write(at("d/new"), "").unwrap();
        std::fs::remove_file(at("link")).unwrap();
        std::os::unix::fs::symlink("changed", at("link")).unwrap();
        assert_eq!(changes(1 << 20), Some(["changed", "d/new", "link"].map(PathBuf::from).to_vec()));
        assert_eq!(changes(1024), None);
    }

    #[test]
    fn a_file_is_compared_by_its_content() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "sent").unwrap();
        let state = EntryState::of(file.path()).unwrap();
        let sent =
            SentEntries::from([(PathBuf::from("f"), crate::files::state::Sent { state, mode: 0o644 })]);
        let changes = |content: &str| changed_file(&mut content.as_bytes(), &sent, 8).unwrap();
        assert_eq!((changes("sent"), changes("too long")), (Some(Vec::new()), None));
        assert_eq!(changes("SENT").unwrap(), [Path::new("f")]);
    }
}
