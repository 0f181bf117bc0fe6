//! What commands read and write goes through `sbx` byte for byte, and so do names of files.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Output, Stdio};

use e2e::service::Service;

use crate::{Person, code, text};

impl Person {
    fn fed(&self, words: &[&str], input: &[u8]) -> Output {
        let mut command = self.sbx();
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // It may end before it has read all.
        let feeding = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        feeding.join().unwrap();
        output
    }

    /// With names that are bytes.
    fn run_bytes(&self, words: &[&[u8]]) -> Output {
        self.sbx().args(words.iter().map(|word| OsStr::from_bytes(word))).output().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_printed_as_it_was_written() {
    let person = Person::new().await;
    let id = person.says(&["create", Service::image(), "--idle", "0"]);
    let id = id.trim();
    let long = "x".repeat(200_000);
    for (command, expected) in [
        ("head -c 200000 /dev/zero | tr '\\0' x", long.as_str()),
        (r"printf 'a\rb\r\nc\n\r\r\n\n'", "a\rb\r\nc\n\r\r\n\n"),
        ("printf 'no end'", "no end"),
        (r"printf '50%%\r100%%\r'", "50%\r100%\r"),
    ] {
        assert!(person.says(&["exec", id, "--", command]) == expected, "exec {command}");
        let whole = person.says(&["exec", "--buffered", id, "--", command]);
        assert!(whole == expected, "exec --buffered {command}");
        assert!(person.says(&["run", Service::image(), "--", command]) == expected, "run {command}");
        let execution = person.says(&["exec", "--detach", id, "--", command]);
        let followed = person.says(&["logs", "-f", id, execution.trim()]);
        assert!(followed == expected, "logs -f {command}");
        assert!(person.says(&["logs", id, execution.trim()]) == expected, "logs {command}");
        let errors = person.run(&["exec", id, "--", &format!("{{ {command}; }} >&2")]);
        assert!(text(&errors.stderr) == expected, "{command} to standard error");
    }
    // For programs it is a line each, as before.
    let lines = person.says(&["--json", "exec", id, "--", r"printf 'a\r\nb'"]);
    assert!(lines.contains(r#""data":"a""#) && lines.contains(r#""data":"b""#), "{lines}");
}

#[tokio::test(flavor = "multi_thread")]
async fn input_is_fed_whatever_its_bytes_and_however_many() {
    let person = Person::new().await;
    let id = person.says(&["create", Service::image(), "--idle", "0"]);
    let id = id.trim();
    let image = Service::image();
    let sum = "od -An -tx1 -v | tr -d ' \\n'";
    for words in [&["exec", "-i", id, "--", sum][..], &["run", "-i", image, "--", sum]] {
        assert_eq!(text(&person.fed(words, b"\xff\x00\xfe\r\n").stdout), "ff00fe0d0a", "{words:?}");
    }
    // More than a request holds: text, and none.
    for byte in [b'x', 0xff] {
        let output = person.fed(&["exec", "-i", id, "--", "sleep 1; wc -c; exit 4"], &vec![byte; 20_000_000]);
        assert_eq!((text(&output.stdout).trim(), code(&output)), ("20000000", 4), "{}", text(&output.stderr));
    }
    // Text that is longer as JSON than a request.
    let output = person.fed(&["exec", "-i", id, "--", "wc -l"], &b"\n".repeat(10_000_000));
    assert_eq!(text(&output.stdout).trim(), "10000000", "{}", text(&output.stderr));
    // One that does not want it all.
    let output = person.fed(&["exec", "-i", id, "--", "head -c 3; exit 5"], &vec![0xff; 20_000_000]);
    assert_eq!((output.stdout.len(), code(&output)), (9, 5), "{}", text(&output.stderr));
    let detached = person.fed(&["exec", "-i", "--detach", id, "--", "wc -c"], &[0xff; 7]);
    let execution = text(&detached.stdout);
    assert_eq!(person.says(&["logs", "-f", id, execution.trim()]).trim(), "7");
    let refused = person.fed(&["exec", "-i", "--buffered", id, "--", "cat"], b"\xff");
    assert!(
        code(&refused) == 125 && text(&refused.stderr).contains("--buffered"),
        "{}",
        text(&refused.stderr)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_may_take_longer_than_an_answer_is_waited_for() {
    let person = Person::new().await;
    assert_eq!(person.says(&["run", "--timeout", "6m", Service::image(), "--", "echo long"]), "long\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_bytes() {
    let person = Person::new().await;
    let id = person.create();
    let local = tempfile::tempdir().unwrap();
    let dir = local.path().as_os_str().as_bytes();
    let at = |name: &[u8]| [dir, b"/", name].concat();
    let inside = |name: &[u8]| [id.as_bytes(), b":", name].concat();
    std::fs::create_dir(OsStr::from_bytes(&at(b"dd\xfe"))).unwrap();
    std::fs::write(OsStr::from_bytes(&at(b"dd\xfe/a\xff")), "content").unwrap();
    let works = |words: &[&[u8]]| {
        let output = person.run_bytes(words);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    works(&[b"cp", &at(b"dd\xfe/a\xff"), &inside(b"")]);
    works(&[b"cp", &at(b"dd\xfe"), &inside(b"")]);
    assert_eq!(works(&[b"cp", &inside(b"dd\xfe/a\xff"), b"-"]), "content");
    works(&[b"cp", &inside(b"a\xff"), &at(b"back\xfd")]);
    assert_eq!(std::fs::read(OsStr::from_bytes(&at(b"back\xfd"))).unwrap(), b"content");
    let volume = [&at(b"dd\xfe")[..], b":/workspace"].concat();
    let image = Service::image().as_bytes();
    assert_eq!(works(&[b"run", b"-v", &volume, image, b"--", b"cat a*"]), "content");
}
