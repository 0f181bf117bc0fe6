use std::io::Write;

use super::*;

/// Writes an archive: names that end in `/` are directories.
pub fn archive(files: &[(&str, &str)]) -> tempfile::NamedTempFile {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_mtime(1);
        if name.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_mode(0o750);
        }
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&archive.into_inner().unwrap()).unwrap();
    file
}

#[test]
fn entries_are_found_by_clean_paths() {
    let file = archive(&[("./src/main.rs", "fn main"), ("README", "hello"), ("empty/", "")]);
    let context = Context::read(file.path().to_owned()).unwrap();
    assert_eq!(context.paths().collect::<Vec<_>>(), ["README", "empty", "src", "src/main.rs"]);
    assert_eq!(context.text("./src/../README", 100).unwrap(), "hello");
    assert_eq!(context.get("empty").unwrap().mode, 0o750);
    assert_eq!(context.below("src").count(), 1);
    assert_eq!(context.below("").count(), 4);
    for (path, part) in [("src", "no file"), ("none", "no file"), ("../x", "outside")] {
        assert!(context.text(path, 100).unwrap_err().to_string().contains(part), "{path}");
    }
    assert!(context.text("README", 4).unwrap_err().to_string().contains("at most 4"));
}

#[test]
fn other_files_are_refused() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[7; 2048]).unwrap();
    let error = Context::read(file.path().to_owned()).unwrap_err();
    assert!(error.to_string().contains("not a valid tar archive"), "{error}");
    // Cut within a file.
    let whole = archive(&[("big", &"x".repeat(4096))]);
    whole.as_file().set_len(2048).unwrap();
    assert!(Context::read(whole.path().to_owned()).is_err());
}

#[test]
fn hard_links_are_files_with_the_same_content() {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(2);
    archive.append_data(&mut header, "a", &b"xy"[..]).unwrap();
    let mut link = tar::Header::new_ustar();
    link.set_entry_type(tar::EntryType::Link);
    link.set_size(0);
    archive.append_link(&mut link, "b", "a").unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&archive.into_inner().unwrap()).unwrap();
    let context = Context::read(file.path().to_owned()).unwrap();
    assert_eq!(context.get("a").unwrap().kind, context.get("b").unwrap().kind);
}
