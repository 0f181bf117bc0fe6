//! Follows symbolic links of a context, within the context: a link to an absolute path begins at its root.

use std::collections::VecDeque;

use crate::context::Context;
use crate::context::index::EntryKind;
use crate::copy::search::Search;
use crate::error::BuildError;

/// As the kernel.
const MAX_LINKS: usize = 40;
/// Each name is looked up in the index. The target of a link can have thousands of names.
const STEPS_PER_NAME: u64 = 64;

/// The path of what a path names when all links in it are followed; `None` after too many. It may name nothing. `""` is the root.
pub fn followed(
    context: &Context,
    path: &str,
    search: &mut Search<'_>,
) -> Result<Option<String>, BuildError> {
    let mut rest: VecDeque<String> = path.split('/').map(str::to_owned).collect();
    let (mut followed, mut links) = (Vec::<String>::new(), 0);
    while let Some(name) = rest.pop_front() {
        match name.as_str() {
            "" | "." => continue,
            ".." => {
                followed.pop();
                continue;
            }
            _ => followed.push(name),
        }
        let path = followed.join("/");
        search.spend(STEPS_PER_NAME + path.len() as u64)?;
        let entry = context.get(&path);
        let Some(EntryKind::Link { target }) = entry.map(|entry| entry.kind) else { continue };
        links += 1;
        if links > MAX_LINKS {
            return Ok(None);
        }
        followed.pop();
        if target.starts_with('/') {
            followed.clear();
        }
        for name in target.split('/').rev() {
            rest.push_front(name.to_owned());
        }
    }
    Ok(Some(followed.join("/")))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::context::Hashes;
    use crate::copy::search::MAX_EFFORT;

    /// A context with links and the file `real/x`.
    fn context(links: &[(&str, &str)]) -> Context {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, target) in links {
            let mut header = tar::Header::new_ustar();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            archive.append_link(&mut header, path, target).unwrap();
        }
        let mut header = tar::Header::new_ustar();
        header.set_size(1);
        archive.append_data(&mut header, "real/x", &b"x"[..]).unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&archive.into_inner().unwrap()).unwrap();
        let token = CancellationToken::new();
        Context::read(file.path().to_owned(), Hashes::Skip, &token).unwrap()
    }

    #[test]
    fn links_are_followed_within_the_context() {
        let context = context(&[
            ("d/file", "../real/x"),
            ("d/dir", "/real"),
            ("d/out", "../../../etc/passwd"),
            ("d/loop", "loop"),
            ("d/chain", "file"),
        ]);
        let mut search = Search::new(&|| false);
        for (path, expected) in [
            ("real/x", Some("real/x")),
            ("d/file", Some("real/x")),
            ("d/chain", Some("real/x")),
            ("d/dir/x", Some("real/x")),
            ("d/dir/../d/file", Some("real/x")),
            ("d/out", Some("etc/passwd")),
            ("d/loop", None),
            ("none/x", Some("none/x")),
        ] {
            assert_eq!(followed(&context, path, &mut search).unwrap().as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn long_targets_are_work_that_is_bounded() {
        let target = format!("{}a", "x/../".repeat(400));
        let context = context(&[("a", &target)]);
        let mut search = Search::new(&|| false);
        search.spend(MAX_EFFORT - (2 << 20)).unwrap();
        // Each looks up 16,000 names.
        let refused = (0..3).find_map(|_| followed(&context, "a", &mut search).err());
        assert!(refused.unwrap().message.contains("too many comparisons"));
    }
}
