//! The files that `COPY --from` copies: those of a stage, an image, a template or a snapshot.
//!
//! A sandbox above their file system copies what the sources name into a directory of its own, and the agent packs this directory. The
//! archive becomes a context on the disk, from which the files are copied like those of the build context. The sandbox is the account's
//! own, and its archive is read within the same bounds as a context. The file on the disk is deleted when the value is dropped.

use std::sync::Arc;

use api::wildcard::has_wildcards;
use dockerfile::{Copy, CopySource, PlanStep, Run, Work};
use engine::{FileOp, FileResponse, ProcessEnd};
use rules::AutoResume;
use tempfile::NamedTempFile;
use tokio::io::AsyncWriteExt;

use crate::build::step::StepSandbox;
use crate::context::index::EntryKind;
use crate::context::spool::Spool;
use crate::context::{Context, Hashes};
use crate::copy::search::Search;
use crate::copy::{CopyTarget, Selection};
use crate::error::{BuildError, Ended};
use crate::interruptible::interruptible;

/// Where the sandbox copies the files. It is terminated after that.
const DIRECTORY: &str = "/.sandboxd-copy";
/// Copies what each pattern names: the content of a directory to `NUMBER`, and a file to `NUMBER-file/NAME`. Links that a pattern names
/// are followed.
const SCRIPT: &str = r#"set -eu
shopt -s dotglob nullglob
IFS=
mkdir -m 755 -- "$0"
number=0
for pattern in "$@"; do
  case $pattern in
    *[*?[]*) found=($pattern) ;;
    *) found=("$pattern") ;;
  esac
  [ ${#found[@]} -gt 0 ] || { echo "nothing is at $pattern" >&2; exit 1; }
  for path in "${found[@]}"; do
    number=$((number + 1))
    if [ -d "$path" ]; then
      mkdir -m 755 -- "$0/$number"
      cp -a -- "${path%/}/." "$0/$number/"
    elif [ -e "$path" ]; then
      mkdir -m 755 -- "$0/$number-file"
      cp -pL -- "$path" "$0/$number-file/"
    else
      echo "nothing is at $path" >&2
      exit 1
    fi
  done
done
"#;
/// The free space of the host is checked again after as many bytes.
const BYTES_PER_CHECK: u64 = 64 << 20;
/// For the headers of the archive.
const OVERHEAD_BYTES: u64 = 64 << 20;

/// Files of another file system, as a context.
pub struct ForeignFiles {
    pub context: Arc<Context>,
    /// The step, with the files as its sources.
    pub step: PlanStep,
    pub target: CopyTarget,
    _archive: NamedTempFile,
}

impl ForeignFiles {
    /// Copies the files out of a sandbox above their file system. The archive is in the spool, and not larger than the disk that the
    /// files are for: files with holes could fill any disk.
    pub async fn read(
        spool: &Spool,
        sandbox: &StepSandbox<'_>,
        (step, copy): (&PlanStep, &Copy),
        disk_mb: u32,
    ) -> Result<Self, Ended> {
        let patterns = copy.sources.iter().filter_map(|source| match source {
            CopySource::Path(path) => Some(format!("/{}", path.trim_start_matches('/')).replace("[^", "[!")),
            CopySource::Inline { .. } => None,
        });
        let words = ["/bin/bash", "-c", SCRIPT, DIRECTORY].map(str::to_owned).into_iter();
        let run = Run {
            argv: words.chain(patterns).collect(),
            env: Arc::default(),
            workdir: "/".to_owned(),
            user: None,
        };
        match sandbox.process(&run, None).await? {
            ProcessEnd::Exited(0) => {}
            _ => return Err(BuildError::new("the files of --from cannot be copied").into()),
        }
        let archive = pack(spool, sandbox, Room::of_disk(disk_mb)).await?;
        let (path, copy) = (archive.path().to_owned(), copy.clone());
        let read = interruptible(move |stopped| {
            let context = Context::read(path, Hashes::Skip, stopped)?;
            let copy = Copy { from: None, sources: sources(&context), ..copy };
            let is_stopped = || stopped.is_cancelled();
            let found = Selection::find(&context, &copy, &mut Search::new(&is_stopped));
            Ok(found.map(|found| (context, copy, found.target)))
        });
        let read = read.await.map_err(|error| BuildError::new(format!("--from: {error}")))?;
        let (context, copy, target) = read?;
        let step = PlanStep { work: Work::Copy(copy), ..step.clone() };
        Ok(Self { context: Arc::new(context), step, target, _archive: archive })
    }
}

/// How many bytes an archive may still take.
struct Room {
    left: u64,
    disk_mb: u32,
}

impl Room {
    fn of_disk(disk_mb: u32) -> Self {
        Self { left: (u64::from(disk_mb) << 20) + OVERHEAD_BYTES, disk_mb }
    }

    fn take(&mut self, bytes: u64) -> Result<(), BuildError> {
        let too_large = || {
            BuildError::new(format!("the files of --from are larger than the disk with {} MB", self.disk_mb))
        };
        self.left = self.left.checked_sub(bytes).ok_or_else(too_large)?;
        Ok(())
    }
}

/// Writes the directory of the sandbox into a file.
async fn pack(spool: &Spool, sandbox: &StepSandbox<'_>, mut room: Room) -> Result<NamedTempFile, Ended> {
    let archive = spool.new_file()?;
    let mut file = tokio::fs::File::from_std(archive.reopen()?);
    let op = FileOp::Pack { path: DIRECTORY.as_bytes().to_vec() };
    let mut packing = sandbox.handle().file_op(AutoResume::Allowed, &op).await?;
    if packing.next_response().await? != FileResponse::Packing {
        return Err(BuildError::new("the files of --from cannot be read").into());
    }
    let (mut bytes, mut checked) = (0, None);
    while let Some(piece) = packing.bytes().await? {
        room.take(piece.len() as u64)?;
        if checked != Some(bytes / BYTES_PER_CHECK) {
            checked = Some(bytes / BYTES_PER_CHECK);
            spool.check()?;
        }
        bytes += piece.len() as u64;
        file.write_all(&piece).await?;
    }
    file.flush().await?;
    Ok(archive)
}

/// What the script has copied, in its order.
fn sources(context: &Context) -> Vec<CopySource> {
    let mut sources = Vec::new();
    for number in 1_u32.. {
        if let Some(entry) = context.get(&number.to_string())
            && entry.kind == EntryKind::Directory
        {
            sources.push(CopySource::Path(number.to_string()));
            continue;
        }
        let directory = format!("{number}-file");
        let Some(rank) = context.index.below(&directory).next() else { break };
        let path = context.index.path(rank);
        // The only file in it. A pattern is compared with all paths, so it is used only for a name that looks like one.
        let path = if has_wildcards(path) { format!("{directory}/*") } else { path.to_owned() };
        sources.push(CopySource::Path(path));
    }
    sources
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::context::tests::archive;

    #[test]
    fn an_archive_is_not_larger_than_the_disk() {
        let mut room = Room::of_disk(1024);
        room.take(1 << 30).unwrap();
        room.take(OVERHEAD_BYTES).unwrap();
        assert!(room.take(1).unwrap_err().message.contains("1024 MB"));
    }

    #[test]
    fn sources_are_numbered() {
        let file = archive(&[
            ("1/a", "a"),
            ("2-file/b", "b"),
            ("3/c/d", "d"),
            ("4-file/[b]", "b"),
            ("9-file/x", "x"),
        ]);
        let token = tokio_util::sync::CancellationToken::new();
        let context = Context::read(file.path().to_owned(), Hashes::Skip, &token).unwrap();
        let paths = ["1", "2-file/b", "3", "4-file/*"].map(|path| CopySource::Path(path.to_owned()));
        assert_eq!(sources(&context), paths);
    }

    /// The names below the directory that the script makes, or its error.
    fn copied(patterns: &[&str]) -> Result<Vec<String>, String> {
        let root = tempfile::tempdir().unwrap();
        for directory in ["tree/deep", "out"] {
            std::fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        for file in ["tree/.hidden", "tree/deep/two", "a b", "one.js", "two.js"] {
            std::fs::write(root.path().join(file), "x").unwrap();
        }
        std::os::unix::fs::symlink("a b", root.path().join("link")).unwrap();
        let absolute = patterns.iter().map(|pattern| format!("{}/{pattern}", root.path().display()));
        let target = root.path().join("target");
        // starts: bash
        // starts: bash, cp
        let run = Command::new("bash").arg("-c").arg(SCRIPT).arg(&target).args(absolute).output().unwrap();
        if !run.status.success() {
            return Err(String::from_utf8_lossy(&run.stderr).into_owned());
        }
        let list = "cd \"$0\"; shopt -s globstar dotglob; printf '%s\\n' **";
        // starts: bash
        // starts: bash
        let mut listing = Command::new("bash");
        let listed = listing.env("LC_ALL", "C").arg("-c").arg(list).arg(&target).output().unwrap();
        Ok(String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect())
    }

    #[test]
    fn the_script_copies_what_patterns_name() {
        assert_eq!(copied(&["tree"]).unwrap(), ["1", "1/.hidden", "1/deep", "1/deep/two"]);
        assert_eq!(copied(&["*.js"]).unwrap(), ["1-file", "1-file/one.js", "2-file", "2-file/two.js"]);
        let several = copied(&["a b", "tree/d*", "link"]).unwrap();
        assert_eq!(several, ["1-file", "1-file/a b", "2", "2/two", "3-file", "3-file/link"]);
        for missing in ["none", "*.py"] {
            assert!(copied(&[missing]).unwrap_err().contains("nothing is at"), "{missing}");
        }
    }
}
