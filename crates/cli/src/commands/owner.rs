//! Gives copies in a sandbox to a user, because copies belong to root at first. Called by `cp` and `run`. A failure leaves the copies where they
//! are, some of them with their new owner.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use sandboxd_client::Sandbox;

use super::command_line::quoted;
use crate::cli::BUFFERED_MAX;

/// The most bytes of paths in one command, of which the service accepts 64 KiB.
const MOST_BYTES: usize = 32 << 10;

/// The user who gets copies in a sandbox.
pub struct NewOwner {
    sandbox: Sandbox,
    /// As `chown` takes it.
    owner: String,
}

impl NewOwner {
    /// `owner`: as [`crate::cli::owner`] returns it.
    pub fn new(sandbox: &Sandbox, owner: &str) -> Self {
        Self { sandbox: sandbox.clone(), owner: owner.to_owned() }
    }

    /// Gives the paths to the owner, with all that is in them. Symbolic links are not followed.
    pub async fn own(&self, paths: &[PathBuf]) -> Result<()> {
        for command in commands("chown -hR", &self.owner, paths) {
            self.run(command).await?;
        }
        Ok(())
    }

    /// Gives a directory to the owner, but not what is in it.
    pub async fn own_directory(&self, path: &Path) -> Result<()> {
        for command in commands("chown", &self.owner, &[path.to_owned()]) {
            self.run(command).await?;
        }
        Ok(())
    }

    async fn run(&self, command: String) -> Result<()> {
        let result = self.sandbox.execute(command).timeout(BUFFERED_MAX).await?;
        let owner = self.owner.trim_end_matches(':');
        ensure!(
            result.exit_code == Some(0),
            "the files are in the sandbox, but cannot be given to {owner}: {}",
            result.stderr.trim_end()
        );
        Ok(())
    }
}

/// The command lines that give all paths to the owner.
fn commands(program: &str, owner: &str, paths: &[PathBuf]) -> Vec<String> {
    let begin = format!("{program} -- {}", quoted(owner));
    let mut commands: Vec<String> = Vec::new();
    for path in paths {
        let path = quoted_path(path);
        match commands.last_mut() {
            Some(command) if command.len() + path.len() < MOST_BYTES => *command += &format!(" {path}"),
            _ => commands.push(format!("{begin} {path}")),
        }
    }
    commands
}

/// The path for bash, which may be any bytes.
fn quoted_path(path: &Path) -> String {
    match path.to_str() {
        Some(path) => quoted(path),
        None => {
            let octal: String =
                path.as_os_str().as_bytes().iter().map(|byte| format!("\\{byte:03o}")).collect();
            format!("$'{octal}'")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn paths_are_given_to_an_owner_as_they_are() {
        let odd = Path::new(OsStr::from_bytes(b"a\xff")).to_owned();
        let all = commands("chown -hR", "app:", &["/w/it's".into(), "-x".into(), odd]);
        assert_eq!(all, [r"chown -hR -- app: '/w/it'\''s' -x $'\141\377'"]);
        assert!(commands("chown", "app:", &[]).is_empty());
    }

    #[test]
    fn a_command_is_not_too_long() {
        let paths: Vec<PathBuf> = (0..1000).map(|number| format!("/w/{number:0100}").into()).collect();
        let all = commands("chown -hR", "1000:1000", &paths);
        assert!(all.len() > 1 && all.iter().all(|command| command.len() < MOST_BYTES));
        let words: usize = all.iter().map(|command| command.split(' ').count() - 4).sum();
        assert_eq!(words, 1000);
    }
}
