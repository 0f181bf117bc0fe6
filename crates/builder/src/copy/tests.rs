use std::io::Write;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::context::Hashes;
use crate::context::tests::archive;
use crate::context::tests::bombs;

fn copy(sources: &[&str], extracts: bool) -> Copy {
    Copy {
        from: None,
        sources: sources.iter().map(|source| CopySource::Path((*source).to_owned())).collect(),
        destination: "/app/".to_owned(),
        owner: None,
        mode: None,
        extracts,
    }
}

fn context(content: &[u8]) -> (Context, tempfile::NamedTempFile) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content).unwrap();
    let read = Context::read(file.path().to_owned(), Hashes::Compute, &CancellationToken::new());
    (read.unwrap(), file)
}

fn find(context: &Context, copy: &Copy) -> Result<Selection, BuildError> {
    Selection::find(context, copy, &mut Search::new(&|| false))
}

fn selected(sources: &[&str]) -> Result<(Vec<String>, CopyTarget), BuildError> {
    let file = archive(&[
        ("package.json", "{}"),
        ("package-lock.json", "{}"),
        ("src/a.js", "a"),
        ("src/deep/b.js", "b"),
        (".env", "x"),
    ]);
    let (context, _file) = context(&std::fs::read(file.path()).unwrap());
    let copy = copy(sources, false);
    let selection = find(&context, &copy)?;
    let names = selection.files(&context, &copy).map(|(name, _)| name.to_owned()).collect();
    Ok((names, selection.target))
}

#[test]
fn directories_are_copied_by_their_content() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    for (sources, files, target) in [
        (&["package.json"][..], &["package.json"][..], CopyTarget::File),
        (&["package*.json"], &["package-lock.json", "package.json"], CopyTarget::Directory),
        (&["src"], &["a.js", "deep", "deep/b.js"], CopyTarget::Directory),
        (&["src/*"], &["a.js", "b.js"], CopyTarget::Directory),
        (&["./src/deep/../a.js"], &["a.js"], CopyTarget::File),
        (&["/src/deep/"], &["b.js"], CopyTarget::Directory),
        (
            &["src", "src/deep/b.js", "src/a.js"],
            &["a.js", "b.js", "deep", "deep/b.js"],
            CopyTarget::Directory,
        ),
    ] {
        assert_eq!(selected(sources), Ok((names(files), target)), "{sources:?}");
    }
    let (all, _) = selected(&["."]).unwrap();
    assert_eq!(all.len(), 7);
}

#[test]
fn missing_sources_are_errors() {
    for (source, part) in
        [("none", "nothing at 'none'"), ("*.py", "nothing"), ("../x", "outside"), ("[", "pattern")]
    {
        let error = selected(&[source]).unwrap_err();
        assert!(error.message.contains(part), "{source}: {error}");
    }
}

#[test]
fn of_several_sources_with_the_same_name_the_last_one_is_copied() {
    let file = archive(&[("one/file", "1"), ("two/file", "22")]);
    let (context, _file) = context(&std::fs::read(file.path()).unwrap());
    let size = |sources: &[&str]| {
        let copy = copy(sources, false);
        let selection = find(&context, &copy).unwrap();
        let (_, content) = selection.files(&context, &copy).next().unwrap();
        match content {
            CopiedContent::Entry(ContextEntry { kind: EntryKind::File { size, .. }, .. }) => size,
            _ => panic!("no file"),
        }
    };
    assert_eq!((size(&["one/file", "two/file"]), size(&["two/file", "one/file"])), (2, 1));
}

#[test]
fn patterns_with_many_stars_are_compared_in_bounded_time() {
    let content = bombs::files(100, |at| format!("{}{at}", "a".repeat(200)));
    let (context, _file) = context(&content);
    for stars in [8, 14, 40] {
        let copy = copy(&[&("*a".repeat(stars) + "b")], false);
        let begin = Instant::now();
        assert!(find(&context, &copy).unwrap_err().message.contains("nothing at"));
        assert!(begin.elapsed() < Duration::from_secs(20), "{stars} stars took {:?}", begin.elapsed());
    }
    // The worst of all: long names and a long pattern, many times.
    let (context, _file) = self::context(&bombs::files(2000, |at| format!("{}{at}", "a".repeat(4000))));
    let pattern = format!("*{}b", "a".repeat(2000));
    let begin = Instant::now();
    let error = find(&context, &copy(&vec![pattern.as_str(); 4000], false)).unwrap_err();
    assert!(error.message.contains("too many comparisons"), "{error}");
    println!("{:?}", begin.elapsed());
    let stopped = Selection::find(&context, &copy(&[&pattern], false), &mut Search::new(&|| true));
    assert!(stopped.unwrap_err().message.contains("stopped"));
}

#[test]
fn planning_beside_the_largest_index_takes_less_than_32_mb() {
    let content = bombs::largest_index();
    let mut read = None;
    let index = measure(|| read = Some(context(&content))).bytes_current;
    let (context, _file) = read.unwrap();
    let used = measure(|| drop(find(&context, &copy(&["."; 40], false)).unwrap())).bytes_max;
    println!("{index} bytes for the index, {used} for the files");
    assert!(u64::try_from(index).unwrap() + used <= 32_000_000, "{index} + {used} bytes");
}

#[test]
fn the_files_of_many_copies_take_little_memory() {
    let (context, _file) = context(&bombs::files(150_000, |at| format!("directory/{at}")));
    let many = copy(&["."; 40], false);
    let used = measure(|| {
        let selection = find(&context, &many).unwrap();
        assert_eq!(selection.files(&context, &many).len(), 150_001);
    });
    assert!(used.bytes_max <= 16_000_000, "{} bytes", used.bytes_max);
    // Each directory of a path has everything below it once more.
    let (context, _file) = self::context(&bombs::files(600, |at| format!("{}{at}", "d/".repeat(600))));
    let used = measure(|| {
        let error = find(&context, &copy(&["**"], false)).unwrap_err();
        assert!(error.message.contains("more than 200000 files"), "{error}");
    });
    assert!(used.bytes_max <= 16_000_000, "{} bytes", used.bytes_max);
}

#[test]
fn sources_that_are_links_are_followed() {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, target) in [("links/file", "../real"), ("links/dir", "../tree"), ("links/broken", "nowhere")] {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        archive.append_link(&mut header, path, target).unwrap();
    }
    for path in ["real", "tree/one"] {
        let mut header = tar::Header::new_ustar();
        header.set_size(1);
        archive.append_data(&mut header, path, &b"x"[..]).unwrap();
    }
    let (context, _file) = context(&archive.into_inner().unwrap());
    let is_file = |content: CopiedContent<'_>| {
        matches!(content, CopiedContent::Entry(ContextEntry { kind: EntryKind::File { .. }, .. }))
    };
    let found = |source: &str| {
        let copy = copy(&[source], false);
        let selection = find(&context, &copy).unwrap();
        let files = selection.files(&context, &copy);
        files.map(|(name, content)| (name.to_owned(), is_file(content))).collect::<Vec<_>>()
    };
    let file = |name: &str| (name.to_owned(), true);
    let link = |name: &str| (name.to_owned(), false);
    assert_eq!(found("links/file"), [file("file")]);
    assert_eq!(found("links/f*"), [file("file")]);
    assert_eq!(found("links/dir"), [file("one")]);
    assert_eq!(found("links/dir/one"), [file("one")]);
    assert_eq!(found("links/broken"), [link("broken")]);
    assert_eq!(found("links"), [link("broken"), link("dir"), link("file")]);
}

#[test]
fn a_missing_source_of_a_context_with_an_ignore_file_may_be_excluded() {
    let message = |names: &[(&str, &str)]| {
        let file = archive(names);
        let (context, _file) = context(&std::fs::read(file.path()).unwrap());
        find(&context, &copy(&["secret.txt"], false)).unwrap_err().message
    };
    let nothing = "the build context has nothing at 'secret.txt'";
    assert_eq!(message(&[("a", "")]), nothing);
    let excluded = format!("{nothing}; its .dockerignore may exclude it");
    assert_eq!(message(&[("a", ""), (".dockerignore", "secret.txt")]), excluded);
}
