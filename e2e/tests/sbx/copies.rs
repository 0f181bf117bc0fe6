//! `sbx cp`, and what `sbx run -v` brings along.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use e2e::service::Service;

use crate::{Person, code, skipped, text};

fn write(path: &Path, content: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path.as_ref()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_directories_are_copied_as_cp_does() {
    let person = Person::new().await;
    let (id, other) = (person.create(), person.create());
    let local = tempfile::tempdir().unwrap();
    let at = |path: &str| local.path().join(path).to_str().unwrap().to_owned();
    let inside = |path: &str| format!("{id}:{path}");
    let shows = |command: &str| person.says(&["exec", &id, "--", command]);
    write(Path::new(&at("project/src/main")), "main");
    write(Path::new(&at("script")), "#!/bin/sh\necho run\n");
    std::fs::set_permissions(at("script"), PermissionsExt::from_mode(0o755)).unwrap();

    // To a name, into a directory, into one that is named as such.
    person.says(&["cp", &at("script"), &inside("renamed")]);
    person.says(&["cp", &at("script"), &inside("/workspace")]);
    person.says(&["exec", &id, "--", "mkdir taken"]);
    person.says(&["cp", &at("script"), &inside("taken/")]);
    assert_eq!(shows("./renamed; ./script; ls taken"), "run\nrun\nscript\n");
    // A directory to a new name, into one that is there, and only what is in it.
    person.says(&["cp", &at("project"), &inside("new")]);
    person.says(&["cp", &at("project"), &inside("taken")]);
    person.says(&["cp", &at("project/."), &inside("taken")]);
    assert_eq!(shows("cat new/src/main taken/project/src/main taken/src/main"), "mainmainmain");
    // And back.
    person.says(&["cp", &inside("renamed"), &at("back")]);
    assert_eq!(std::fs::metadata(at("back")).unwrap().permissions().mode() & 0o111, 0o111);
    person.says(&["cp", &inside("new"), &at("copy")]);
    person.says(&["cp", &inside("new"), &at("copy")]);
    assert_eq!((read(at("copy/src/main")), read(at("copy/new/src/main"))), ("main".into(), "main".into()));
    let said = person.json(&["cp", "--json", &inside("new"), &at("again")]);
    assert_eq!((said["files"].as_u64(), said["bytes"].as_u64()), (Some(1), Some(4)));
    // From one to another, and through standard input and output.
    person.says(&["cp", &inside("new"), &format!("{other}:moved")]);
    person.says(&["cp", &inside("renamed"), &format!("{other}:moved/")]);
    assert_eq!(person.says(&["cp", &format!("{other}:moved/src/main"), "-"]), "main");
    assert!(person.says(&["exec", &other, "--", "./moved/renamed"]).contains("run"));
    let mut piped = person.sbx().args(["cp", "-", &inside("piped")]).stdin(Stdio::piped()).spawn().unwrap();
    piped.stdin.take().unwrap().write_all(&[b'x'; 1_000_000]).unwrap();
    assert!(piped.wait().unwrap().success());
    assert_eq!(shows("wc -c < piped"), "1000000\n");
    let archive = person.run(&["cp", &inside("taken"), "-"]);
    assert!(archive.stdout.windows(5).any(|bytes| bytes == b"ustar"), "a directory is an archive there");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_copied_is_told() {
    let person = Person::new().await;
    let id = person.create();
    let wrong = |words: &[&str], parts: &[&str]| {
        let output = person.run(words);
        let said = text(&output.stderr);
        assert_eq!(code(&output), 125, "{words:?}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{words:?}: {said}");
    };
    wrong(&["cp", "a", "b"], &["neither", "SANDBOX:PATH"]);
    wrong(&["cp", "/no/such/file", &format!("{id}:a")], &["/no/such/file"]);
    wrong(&["cp", &format!("{id}:missing"), "/tmp/never"], &["FILE_NOT_FOUND", "request req_", "missing"]);
    wrong(&["cp", &format!("{id}:/etc/passwd"), "/no/such/dir/x"], &["/no/such/dir/x"]);
    wrong(&["cp", "/etc/passwd", &format!("{id}:no/such/dir/x")], &["FILE_NOT_FOUND", "mkdir -p"]);
    let missing = person.run(&["cp", "/etc/passwd", &format!("{id}:no/such/dir/x")]);
    assert!(!text(&missing.stderr).contains("parents"), "{}", text(&missing.stderr));
    wrong(&["cp", "/etc/passwd", "sb_00000000:x"], &["SANDBOX_NOT_FOUND"]);
    wrong(&["run", "-v", "/no/such/dir:/workspace", Service::image(), "--", "true"], &["/no/such/dir"]);
    assert_eq!(person.live(), [id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_the_directories_it_was_given() {
    let person = Person::new().await;
    let local = tempfile::tempdir().unwrap();
    write(&local.path().join("input"), "41");
    write(&local.path().join("sub/kept"), "kept");
    let image = Service::image();
    let dir = local.path().display();
    let work = "echo $(($(cat input) + 1)) | tee output; rm sub/kept";
    assert_eq!(person.says(&["run", "-v", &format!("{dir}:/workspace"), image, "--", work]), "42\n");
    assert!(!local.path().join("output").exists(), "it came out unasked");
    let back = format!("{dir}:/workspace:rw");
    let failed = person.run(&["run", "-v", &back, image, "--", &format!("{work}; exit 3")]);
    assert_eq!((code(&failed), text(&failed.stdout).as_str()), (3, "42\n"));
    assert_eq!(read(local.path().join("output")), "42\n");
    // Nothing of yours is deleted.
    assert!(local.path().join("sub/kept").exists());
    let file = format!("{dir}/input:/etc/my.conf");
    let both = person.says(&[
        "run",
        "-v",
        &file,
        "-v",
        &format!("{dir}:/a/b"),
        image,
        "--",
        "cat /etc/my.conf /a/b/input",
    ]);
    assert_eq!(both, "4141");
    assert_eq!(person.live(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_copy_shows_how_far_it_is() {
    let person = Person::new().await;
    let id = person.create();
    let local = tempfile::tempdir().unwrap();
    let file = local.path().join("large");
    std::fs::File::create(&file).unwrap().set_len(400 << 20).unwrap();
    let Ok(shown) = person.on_a_terminal(&format!("cp {} {id}:large", file.display())).output() else {
        return skipped("a_long_copy_shows_how_far_it_is", "the program 'script' is not installed");
    };
    let said = text(&shown.stdout);
    assert!(shown.status.success() && said.contains("large [") && said.contains("% "), "{said:?}");
    assert!(said.ends_with("\r\x1b[K"), "the line stays: {said:?}");
    let quiet = person.run(&["cp", &format!("{id}:large"), "/dev/null"]);
    assert_eq!((code(&quiet), text(&quiet.stderr)), (0, String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_in_the_way_of_a_copy_is_told_and_keeps_nothing_else_back() {
    let person = Person::new().await;
    let (local, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::os::unix::fs::symlink(outside.path(), local.path().join("link")).unwrap();
    let back = format!("{}:/workspace:rw", local.path().display());
    let work = "rm link; mkdir link; echo in > link/in; echo a > a; echo z > z; exit ";
    for (ends, expected) in [("3", 3), ("0", 125)] {
        for name in ["a", "z"] {
            let _ = std::fs::remove_file(local.path().join(name));
        }
        let output = person.run(&["run", "-v", &back, Service::image(), "--", &format!("{work}{ends}")]);
        let said = text(&output.stderr);
        assert_eq!(code(&output), expected, "{said}");
        assert!(said.contains("link`: ") && said.contains("link/in"), "{said}");
        assert_eq!(
            (read(local.path().join("a")), read(local.path().join("z"))),
            ("a\n".into(), "z\n".into())
        );
    }
    assert_eq!(outside.path().read_dir().unwrap().count(), 0);
}
