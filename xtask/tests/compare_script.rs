//! `./dev bench --compare` with programs that only write down how they are called: its arguments, the worktree of the other commit, and
//! the order of the blocks.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Stands for `./dev build`: makes a bench program that appends its tree and its arguments to a log.
const DEV: &str = r#"#!/bin/bash
cd "$(dirname "$0")" && mkdir -p target/release
cat >target/release/bench <<'TEXT'
#!/bin/bash
cd "$(dirname "$0")/../.."
case $1 in
  root-fs) echo /images/root ;;
  compare-blocks) echo "ratios of $2" ;;
  broken) exit 1 ;;
  *) echo "$(cat side) ${*:1:$#-1} $SANDBOXD_TEST_ROOTFS $([ "$SANDBOXD_AGENT" = "$PWD/target/bin/sandbox-agent" ] && echo own)" >>"$LOG" ;;
esac
TEXT
chmod +x target/release/bench
"#;

fn git(dir: &Path, words: &[&str]) {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
    assert!(Command::new("git").args(identity).args(words).current_dir(dir).status().unwrap().success());
}

/// A repository with the tags `old` and `older`, and a build of its working tree.
fn repository() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    git(dir.path(), &["init", "--quiet"]);
    fs::write(dir.path().join("dev"), DEV).unwrap();
    fs::write(dir.path().join(".gitignore"), "target\nlog\n").unwrap();
    assert!(Command::new("chmod").args(["+x", "dev"]).current_dir(dir.path()).status().unwrap().success());
    for side in ["older", "old", "new"] {
        fs::write(dir.path().join("side"), side).unwrap();
        git(dir.path(), &["add", "."]);
        git(dir.path(), &["commit", "--quiet", "-m", side]);
        git(dir.path(), &["tag", side]);
    }
    assert!(Command::new("bash").arg("dev").current_dir(dir.path()).status().unwrap().success());
    dir
}

fn compare(dir: &Path, words: &str) -> Output {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dev.d").canonicalize().unwrap();
    let script = format!(
        "set -euo pipefail; ROOT=$PWD; say() {{ echo \"dev: $*\" >&2; }}; die() {{ say \"$@\"; exit 1; }}; need_root() {{ :; }}; \
         setup() {{ :; }}; build_all() {{ :; }}; . {0}/upgrade.sh; . {0}/compare.sh; COMPARED_BLOCKS='1 2'; cmd_compare {words}",
        scripts.display()
    );
    // starts: bash
    Command::new("bash")
        .args(["-c", &script])
        .current_dir(dir)
        .env("LOG", dir.join("log"))
        .env_remove("SANDBOXD_TEST_ROOTFS")
        .output()
        .unwrap()
}

#[test]
fn blocks_of_both_commits_alternate() {
    let dir = repository();
    for (commit, words) in
        [("old", "churn --compare old execute"), ("older", "--compare older churn execute --full")]
    {
        let output = compare(dir.path(), words);
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{messages}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ratios of target/bench-compare\n");
        let called = fs::read_to_string(dir.path().join("log")).unwrap();
        let flags = if words.ends_with("--full") { " --full" } else { "" };
        let line = |side: &str| format!("{side} churn execute{flags} --json /images/root own\n");
        assert_eq!(called, [line("new"), line(commit), line(commit), line("new")].concat(), "{messages}");
        fs::remove_file(dir.path().join("log")).unwrap();
    }
}

#[test]
fn wrong_arguments_are_refused_before_anything_is_built() {
    let dir = repository();
    for (words, message) in [
        ("execute --compare", "--compare needs a COMMIT"),
        ("--compare old", "--compare needs the names of benches"),
        ("--compare none execute", "bench: there is no commit none"),
        ("--compare old execute --json f", "--json cannot be combined with --compare"),
        ("--compare old execute --with-docker", "--with-docker cannot be combined"),
    ] {
        let output = compare(dir.path(), words);
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && messages.contains(message), "{words}: {messages}");
        assert!(!dir.path().join("target/previous").exists(), "{words}");
    }
    let output = compare(dir.path(), "--compare old broken");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && messages.contains("a block failed; its output is in"), "{messages}");
}
