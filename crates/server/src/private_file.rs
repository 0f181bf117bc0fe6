//! Files in the data directory that only root can read. They are written as a whole: after a crash, also of the host, the file has the
//! old content or the new one. A draft that a crash has left is replaced by the next write.

use std::path::Path;

/// Replaces the file by one with this text and a line end. Blocks.
pub fn write(path: &Path, text: &str) -> std::io::Result<()> {
    base::replace_file(path, format!("{text}\n").as_bytes(), 0o600)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_private_and_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        std::fs::write(dir.path().join("a.json.new"), "of a crash").unwrap();
        for text in ["longer", "new"] {
            write(&path, text).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{text}\n"));
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
