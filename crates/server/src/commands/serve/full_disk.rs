//! What a start on a full disk says.

use store::StoreError;

use crate::config::Config;

/// The file system of the data directory needs this much for a start: for the files of a new installation, and for commits.
const START_MB: u64 = 64;

/// Adds to the error of a start on a full disk what to do about it.
pub fn explain(error: anyhow::Error, config: &Config) -> anyhow::Error {
    let is_full = |cause: &(dyn std::error::Error + 'static)| {
        base::is_disk_full(cause) || cause.downcast_ref().is_some_and(StoreError::is_disk_full)
    };
    if !error.chain().any(is_full) {
        return error;
    }
    let dir = config.data_dir.display();
    error.context(format!(
        "the file system of {dir} is full; free at least {START_MB} MB and start again, sandboxes run on meanwhile"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_on_a_full_disk_says_how_much_to_free() {
        let config = Config::default();
        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        let errors = [anyhow::Error::from(full()), StoreError::failed("cannot commit", full()).into()];
        for error in errors {
            let text = format!("{:#}", explain(error.context("cannot begin"), &config));
            assert!(text.contains("is full; free at least 64 MB") && text.contains("cannot begin"), "{text}");
        }
        let other = anyhow::Error::msg("the disk is full of surprises");
        assert_eq!(format!("{:#}", explain(other, &config)), "the disk is full of surprises");
    }
}
