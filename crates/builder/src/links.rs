//! Follows symbolic links of a context, within the context: a link to an absolute path begins at its root.

use std::collections::VecDeque;

use crate::context::Context;
use crate::index::EntryKind;

/// As the kernel.
const MAX_LINKS: usize = 40;

/// The path of what a path names when all links in it are followed; `None` after too many. It may name nothing. `""` is the root.
pub fn followed(context: &Context, path: &str) -> Option<String> {
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
        let entry = context.get(&followed.join("/"));
        let Some(EntryKind::Link { target }) = entry.map(|entry| entry.kind) else { continue };
        links += 1;
        if links > MAX_LINKS {
            return None;
        }
        followed.pop();
        if target.starts_with('/') {
            followed.clear();
        }
        for name in target.split('/').rev() {
            rest.push_front(name.to_owned());
        }
    }
    Some(followed.join("/"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::context::Hashes;

    #[test]
    fn links_are_followed_within_the_context() {
        let mut archive = tar::Builder::new(Vec::new());
        let links = [
            ("d/file", "../real/x"),
            ("d/dir", "/real"),
            ("d/out", "../../../etc/passwd"),
            ("d/loop", "loop"),
            ("d/chain", "file"),
        ];
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
        let context = Context::read(file.path().to_owned(), Hashes::Skip, &token).unwrap();
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
            assert_eq!(followed(&context, path).as_deref(), expected, "{path}");
        }
    }
}
