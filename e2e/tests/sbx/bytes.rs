//! Input, output and file names pass through `sbx` byte for byte.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Output, Stdio};

use e2e::service::Service;
use e2e::wait_until;

use crate::{TestUser, code, text};

const RANDOM_BYTES: usize = 100_000_000;
/// Less than the service stores.
const STORED_BYTES: usize = 10_000_000;

impl TestUser {
    fn run_with_input(&self, words: &[&str], input: &[u8]) -> Output {
        let mut command = self.sbx();
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // It may end before it has read everything.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        output
    }

    /// Runs sbx with arguments that need not be UTF-8.
    fn run_bytes(&self, words: &[&[u8]]) -> Output {
        self.sbx().args(words.iter().map(|word| OsStr::from_bytes(word))).output().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_printed_unchanged() {
    let user = TestUser::new().await;
    let id = user.stdout(&["create", Service::image(), "--idle", "0"]);
    let id = id.trim();
    let long = "x".repeat(200_000);
    for (command, expected) in [
        ("head -c 200000 /dev/zero | tr '\\0' x", long.as_str()),
        (r"printf 'a\rb\r\nc\n\r\r\n\n'", "a\rb\r\nc\n\r\r\n\n"),
        ("printf 'no end'", "no end"),
        (r"printf '50%%\r100%%\r'", "50%\r100%\r"),
    ] {
        assert!(user.stdout(&["exec", id, "--", command]) == expected, "exec {command}");
        let buffered = user.stdout(&["exec", "--buffered", id, "--", command]);
        assert!(buffered == expected, "exec --buffered {command}");
        assert!(user.stdout(&["run", Service::image(), "--", command]) == expected, "run {command}");
        let execution = user.stdout(&["exec", "--detach", id, "--", command]);
        let followed = user.stdout(&["logs", "-f", id, execution.trim()]);
        assert!(followed == expected, "logs -f {command}");
        assert!(user.stdout(&["logs", id, execution.trim()]) == expected, "logs {command}");
        let errors = user.run(&["exec", id, "--", &format!("{{ {command}; }} >&2")]);
        assert!(text(&errors.stderr) == expected, "{command} to standard error");
    }
    // Also what is not UTF-8, on both streams.
    let image = Service::image();
    let command = r"printf '\377a\r\n\200'; printf 'e\376' >&2; exit 3";
    for words in
        [&["exec", id][..], &["exec", "--buffered", id], &["run", image], &["run", "--buffered", image]]
    {
        let output = user.run(&[words, &["--", command]].concat());
        let expected = (3, &b"\xffa\r\n\x80"[..], &b"e\xfe"[..]);
        assert_eq!((code(&output), &output.stdout[..], &output.stderr[..]), expected, "{words:?}");
    }
    let execution = user.stdout(&["exec", "--detach", id, "--", r"printf '\377\n\342'"]);
    for words in [&["logs", "-f"][..], &["logs"]] {
        let output = user.run(&[words, &[id, execution.trim()]].concat());
        assert_eq!((code(&output), &output.stdout[..]), (0, &b"\xff\n\xe2"[..]), "{words:?}");
    }
    // JSON output has one event per line.
    let lines = user.stdout(&["--json", "exec", id, "--", r"printf 'a\r\nb'"]);
    assert!(lines.contains(r#""data":"a""#) && lines.contains(r#""data":"b""#), "{lines}");
}

#[tokio::test(flavor = "multi_thread")]
async fn input_of_any_bytes_and_length_is_passed() {
    let user = TestUser::new().await;
    let id = user.stdout(&["create", Service::image(), "--idle", "0"]);
    let id = id.trim();
    let image = Service::image();
    let sum = "od -An -tx1 -v | tr -d ' \\n'";
    for words in [&["exec", "-i", id, "--", sum][..], &["run", "-i", image, "--", sum]] {
        assert_eq!(text(&user.run_with_input(words, b"\xff\x00\xfe\r\n").stdout), "ff00fe0d0a", "{words:?}");
    }
    // Text and binary.
    for byte in [b'x', 0xff] {
        let output =
            user.run_with_input(&["exec", "-i", id, "--", "sleep 1; wc -c; exit 4"], &vec![byte; 20_000_000]);
        assert_eq!((text(&output.stdout).trim(), code(&output)), ("20000000", 4), "{}", text(&output.stderr));
    }
    // Many short lines.
    let output = user.run_with_input(&["exec", "-i", id, "--", "wc -l"], &b"\n".repeat(10_000_000));
    assert_eq!(text(&output.stdout).trim(), "10000000", "{}", text(&output.stderr));
    // A command that does not read all input.
    let output = user.run_with_input(&["exec", "-i", id, "--", "head -c 3; exit 5"], &vec![0xff; 20_000_000]);
    assert_eq!((output.stdout.len(), code(&output)), (3, 5), "{}", text(&output.stderr));
    let detached = user.run_with_input(&["exec", "-i", "--detach", id, "--", "wc -c"], &[0xff; 7]);
    let execution = text(&detached.stdout);
    assert_eq!(user.stdout(&["logs", "-f", id, execution.trim()]).trim(), "7");
    let refused = user.run_with_input(&["exec", "-i", "--buffered", id, "--", "cat"], b"\xff");
    assert!(
        code(&refused) == 125 && text(&refused.stderr).contains("--buffered"),
        "{}",
        text(&refused.stderr)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_sandbox_is_reported_while_input_is_sent() {
    let user = TestUser::new().await;
    let id = user.stdout(&["create", Service::image(), "--timeout", "10s", "--idle", "0"]);
    let words = ["exec", "-i", id.trim(), "--", "echo begun; sleep 100"];
    let output = user.run_with_input(&words, &vec![0; 20_000_000]);
    let stderr = text(&output.stderr);
    assert_eq!((code(&output), text(&output.stdout).as_str()), (137, "begun\n"), "{stderr}");
    assert!(!stderr.contains("standard input"), "{stderr}");
}

fn random() -> Vec<u8> {
    let mut random = vec![0; RANDOM_BYTES];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut random).unwrap();
    random
}

/// Compares what sbx printed with what the file has.
fn check_random(output: &Output, expected: &[u8], what: &str) {
    assert_eq!((code(output), text(&output.stderr).as_str()), (0, ""), "{what}");
    assert!(output.stdout == expected, "{what}: {} bytes, or others", output.stdout.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_megabytes_of_random_bytes_are_printed_unchanged() {
    let user = TestUser::new().await;
    let id = user.stdout(&["create", Service::image(), "--timeout", "1h", "--idle", "0"]);
    let (id, image, random) = (id.trim(), Service::image(), random());
    let local = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(local.path(), &random).unwrap();
    let local = local.path().to_str().unwrap();
    user.stdout(&["cp", local, &format!("{id}:/tmp/random")]);
    let volume = format!("{local}:/tmp/random:ro");
    // Too large to be searched for changes, so there is no note about them.
    let unmarked = format!("{local}:/tmp/random");
    for words in [
        &["exec", id][..],
        &["exec", "--timeout", "600s", id],
        &["run", "-v", &volume, image],
        &["run", "-v", &unmarked, "--timeout", "600s", image],
    ] {
        let output = user.run(&[words, &["--", "cat /tmp/random"]].concat());
        check_random(&output, &random, &words.join(" "));
    }
    let execution = user.stdout(&["exec", "--detach", "--reader-timeout", "2m", id, "--", "cat /tmp/random"]);
    check_random(&user.run(&["logs", "-f", id, execution.trim()]), &random, "logs -f");
    // What is stored, in several responses.
    let command = format!("head -c {STORED_BYTES} /tmp/random");
    let execution = user.stdout(&["exec", "--detach", id, "--", &command]);
    wait_until("the command has ended", async || {
        let all = user.json(&["logs", "--list", "--json", id]);
        !all.as_array().unwrap().iter().any(|view| view["state"] == "running")
    })
    .await;
    check_random(&user.run(&["logs", id, execution.trim()]), &random[..STORED_BYTES], "logs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_megabytes_pass_in_both_directions() {
    let user = TestUser::new().await;
    let id = user.stdout(&["create", Service::image(), "--timeout", "1h", "--idle", "0"]);
    let (id, image, random) = (id.trim(), Service::image(), random());
    for words in [&["exec", "-i", id][..], &["run", "-i", "--timeout", "600s", image]] {
        let output = user.run_with_input(&[words, &["cat"]].concat(), &random);
        check_random(&output, &random, &words.join(" "));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_may_last_longer_than_the_response_timeout() {
    let user = TestUser::new().await;
    assert_eq!(user.stdout(&["run", "--timeout", "6m", Service::image(), "--", "echo long"]), "long\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn file_names_may_be_any_bytes() {
    let user = TestUser::new().await;
    let id = user.create();
    let local = tempfile::tempdir().unwrap();
    let dir = local.path().as_os_str().as_bytes();
    let at = |name: &[u8]| [dir, b"/", name].concat();
    let inside = |name: &[u8]| [id.as_bytes(), b":", name].concat();
    std::fs::create_dir(OsStr::from_bytes(&at(b"dd\xfe"))).unwrap();
    std::fs::write(OsStr::from_bytes(&at(b"dd\xfe/a\xff")), "content").unwrap();
    let output = |words: &[&[u8]]| {
        let output = user.run_bytes(words);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    output(&[b"cp", &at(b"dd\xfe/a\xff"), &inside(b"")]);
    output(&[b"cp", &at(b"dd\xfe"), &inside(b"")]);
    assert_eq!(output(&[b"cp", &inside(b"dd\xfe/a\xff"), b"-"]), "content");
    output(&[b"cp", &inside(b"a\xff"), &at(b"back\xfd")]);
    assert_eq!(std::fs::read(OsStr::from_bytes(&at(b"back\xfd"))).unwrap(), b"content");
    let volume = [&at(b"dd\xfe")[..], b":/workspace"].concat();
    let image = Service::image().as_bytes();
    assert_eq!(output(&[b"run", b"-v", &volume, image, b"--", b"cat a*"]), "content");
}
