//! `sbx cp` and `sbx run -v`.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;

use e2e::service::Service;

use crate::{TestUser, code, skipped, text};

fn write(path: &Path, content: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path.as_ref()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_directories_are_copied_like_cp() {
    let user = TestUser::new().await;
    let (id, other) = (user.create(), user.create());
    let local = tempfile::tempdir().unwrap();
    let at = |path: &str| local.path().join(path).to_str().unwrap().to_owned();
    let inside = |path: &str| format!("{id}:{path}");
    let inside_output = |command: &str| user.stdout(&["exec", &id, "--", command]);
    write(Path::new(&at("project/src/main")), "main");
    write(Path::new(&at("script")), "#!/bin/sh\necho run\n");
    std::fs::set_permissions(at("script"), PermissionsExt::from_mode(0o755)).unwrap();

    // To a new name, into a directory, into a directory with a trailing slash.
    user.stdout(&["cp", &at("script"), &inside("renamed")]);
    user.stdout(&["cp", &at("script"), &inside("/workspace")]);
    user.stdout(&["exec", &id, "--", "mkdir existing"]);
    user.stdout(&["cp", &at("script"), &inside("existing/")]);
    assert_eq!(inside_output("./renamed; ./script; ls existing"), "run\nrun\nscript\n");
    // A directory to a new name, into an existing directory, and only its contents.
    user.stdout(&["cp", &at("project"), &inside("new")]);
    user.stdout(&["cp", &at("project"), &inside("existing")]);
    user.stdout(&["cp", &at("project/."), &inside("existing")]);
    assert_eq!(inside_output("cat new/src/main existing/project/src/main existing/src/main"), "mainmainmain");
    // From the sandbox.
    user.stdout(&["cp", &inside("renamed"), &at("back")]);
    assert_eq!(std::fs::metadata(at("back")).unwrap().permissions().mode() & 0o111, 0o111);
    user.stdout(&["cp", &inside("new"), &at("copy")]);
    user.stdout(&["cp", &inside("new"), &at("copy")]);
    assert_eq!((read(at("copy/src/main")), read(at("copy/new/src/main"))), ("main".into(), "main".into()));
    let copied = user.json(&["cp", "--json", &inside("new"), &at("again")]);
    assert_eq!((copied["files"].as_u64(), copied["bytes"].as_u64()), (Some(1), Some(4)));
    // Between sandboxes, and through standard input and output.
    user.stdout(&["cp", &inside("new"), &format!("{other}:moved")]);
    user.stdout(&["cp", &inside("renamed"), &format!("{other}:moved/")]);
    assert_eq!(user.stdout(&["cp", &format!("{other}:moved/src/main"), "-"]), "main");
    assert!(user.stdout(&["exec", &other, "--", "./moved/renamed"]).contains("run"));
    let mut piped = user.sbx().args(["cp", "-", &inside("piped")]).stdin(Stdio::piped()).spawn().unwrap();
    piped.stdin.take().unwrap().write_all(&[b'x'; 1_000_000]).unwrap();
    assert!(piped.wait().unwrap().success());
    assert_eq!(inside_output("wc -c < piped"), "1000000\n");
    let archive = user.run(&["cp", &inside("existing"), "-"]);
    assert!(
        archive.stdout.windows(5).any(|bytes| bytes == b"ustar"),
        "a directory is written to standard output as an archive"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_copies_are_reported() {
    let user = TestUser::new().await;
    let id = user.create();
    let wrong = |words: &[&str], parts: &[&str]| {
        let output = user.run(words);
        let stderr = text(&output.stderr);
        assert_eq!(code(&output), 125, "{words:?}: {stderr}");
        assert!(parts.iter().all(|part| stderr.contains(part)), "{words:?}: {stderr}");
    };
    wrong(&["cp", "a", "b"], &["neither", "SANDBOX:PATH"]);
    wrong(&["cp", "/no/such/file", &format!("{id}:a")], &["/no/such/file"]);
    wrong(&["cp", &format!("{id}:missing"), "/tmp/never"], &["FILE_NOT_FOUND", "request req_", "missing"]);
    wrong(
        &["cp", &format!("{id}:/etc/passwd"), "/no/such/dir/x"],
        &["/no/such/dir/x", "the directory /no/such/dir does not exist here"],
    );
    wrong(&["cp", "/etc/passwd", &format!("{id}:~/")], &["'~' is not replaced", "echo ~"]);
    wrong(&["cp", "--chown", "no-such-user", "/etc/passwd", &format!("{id}:p")], &["given to no-such-user"]);
    wrong(&["cp", "--chown", "1", &format!("{id}:/etc/passwd"), "/tmp/never"], &["--chown"]);
    wrong(&["cp", "/etc/passwd", &format!("{id}:no/such/dir/x")], &["FILE_NOT_FOUND", "mkdir -p"]);
    let missing = user.run(&["cp", "/etc/passwd", &format!("{id}:no/such/dir/x")]);
    assert!(!text(&missing.stderr).contains("parents"), "{}", text(&missing.stderr));
    wrong(&["cp", "/etc/passwd", "sb_00000000:x"], &["SANDBOX_NOT_FOUND"]);
    wrong(&["run", "-v", "/no/such/dir:/workspace", Service::image(), "--", "true"], &["/no/such/dir"]);
    assert_eq!(user.live(), [id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_its_volumes() {
    let user = TestUser::new().await;
    let local = tempfile::tempdir().unwrap();
    write(&local.path().join("input"), "41");
    write(&local.path().join("sub/kept"), "kept");
    let image = Service::image();
    let dir = local.path().display();
    let work = "echo $(($(cat input) + 1)) | tee output; rm sub/kept";
    assert_eq!(user.stdout(&["run", "-v", &format!("{dir}:/workspace"), image, "--", work]), "42\n");
    assert!(!local.path().join("output").exists(), "a file was copied back without :rw");
    let back = format!("{dir}:/workspace:rw");
    let failed = user.run(&["run", "-v", &back, image, "--", &format!("{work}; exit 3")]);
    assert_eq!((code(&failed), text(&failed.stdout).as_str()), (3, "42\n"));
    assert_eq!(read(local.path().join("output")), "42\n");
    // Local files are not deleted.
    assert!(local.path().join("sub/kept").exists());
    let file = format!("{dir}/input:/etc/my.conf");
    let both = user.stdout(&[
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
    // Missing directories above a file are created, too.
    let deep = format!("{dir}/input:/opt/a/b/s");
    assert_eq!(user.stdout(&["run", "-v", &deep, image, "--", "cat /opt/a/b/s"]), "41");
    let changed = format!("{deep}:rw");
    user.stdout(&["run", "-v", &changed, image, "--", "echo 43 > /opt/a/b/s"]);
    assert_eq!(read(local.path().join("input")), "43\n");
    assert_eq!(user.live(), Vec::<String>::new());
}

/// Local changes while the command runs are not lost.
#[tokio::test(flavor = "multi_thread")]
async fn local_changes_survive_a_copy_back() {
    let user = TestUser::new().await;
    let local = tempfile::tempdir().unwrap();
    let at = |name: &str| local.path().join(name);
    for name in ["same", "edited", "deleted", "both", "changed"] {
        write(&at(name), "sent");
    }
    std::fs::hard_link(at("same"), at("second")).unwrap();
    std::fs::set_permissions(at("changed"), PermissionsExt::from_mode(0o600)).unwrap();
    let seen = || {
        let found = at("same").metadata().unwrap();
        (found.ino(), found.ctime(), found.ctime_nsec(), found.nlink())
    };
    let before = seen();
    let back = format!("{}:/workspace:rw", local.path().display());
    let work = "echo ready; sleep 5; echo -n SENT > changed; echo theirs > both";
    let mut command = user.sbx();
    command.args(["run", "-v", &back, Service::image(), "--", work]);
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    for name in ["edited", "both"] {
        write(&at(name), "mine");
    }
    std::fs::remove_file(at("deleted")).unwrap();
    let output = running.wait_with_output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(code(&output), 125, "{stderr}");
    assert!(stderr.contains("'both.from-sandbox'") && !stderr.contains("edited"), "{stderr}");
    assert_eq!(seen(), before, "a file that was not changed in the sandbox was touched");
    assert!(!at("deleted").exists(), "a deleted file came back");
    let contents = ["edited", "both", "both.from-sandbox", "changed"].map(|name| read(at(name)));
    assert_eq!(contents, ["mine", "mine", "theirs\n", "SENT"]);
    assert_eq!(at("changed").metadata().unwrap().mode() & 0o777, 0o600);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_are_not_copied_back_are_named() {
    let user = TestUser::new().await;
    let local = tempfile::tempdir().unwrap();
    for name in ["a", "same"] {
        write(&local.path().join(name), "sent");
    }
    let run = |volume: &str, work: &str| {
        let output = user.run(&["run", "-v", volume, Service::image(), "--", work]);
        (code(&output), text(&output.stderr))
    };
    let dir = local.path().display().to_string();
    let work = "echo changed > a; mkdir d; echo new > d/b; touch same";
    let (ended, stderr) = run(&format!("{dir}:/workspace"), work);
    assert_eq!(ended, 0);
    assert_eq!(
        stderr,
        "sbx: changed in /workspace and not copied back: a, d/b; ':rw' at the end of -v copies changes back\n"
    );
    assert_eq!(read(local.path().join("a")), "sent");
    for (volume, work) in [(":/workspace:ro", work), (":/workspace", "touch same; rm a"), (":/w", "rm -r /w")]
    {
        assert_eq!(run(&format!("{dir}{volume}"), work), (0, String::new()), "{volume} {work}");
    }
    let (_, stderr) = run(&format!("{dir}/a:/etc/a"), "echo changed > /etc/a");
    assert!(stderr.contains("not copied back: a;"), "{stderr}");
    let (ended, stderr) = run("no-such-volume:/data", "true");
    assert!(ended == 125 && stderr.contains("no named volumes"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copied_file_keeps_mode_and_time() {
    let user = TestUser::new().await;
    let id = user.create();
    let local = tempfile::tempdir().unwrap();
    let work = "echo secret > /srv/key; chmod 4600 /srv/key; touch -d @1000000000 /srv/key";
    user.stdout(&["exec", &id, "--", work]);
    let key = local.path().join("key");
    // A new file, and an existing one.
    for _ in 0..2 {
        user.stdout(&["cp", &format!("{id}:/srv/key"), key.to_str().unwrap()]);
        let found = key.metadata().unwrap();
        assert_eq!((found.mode() & 0o7777, found.mtime()), (0o600, 1_000_000_000));
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
    }
    assert_eq!(read(&key), "secret\n");
}

/// Into a sandbox all bits are kept; what comes from one must not become a set-user-ID program of this machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_mode_is_whole_in_a_sandbox_and_without_rights_of_others_here() {
    let user = TestUser::new().await;
    let (id, other) = (user.create(), user.create());
    let local = tempfile::tempdir().unwrap();
    let dir = local.path().join("modes");
    std::fs::create_dir(&dir).unwrap();
    for (name, mode) in [("user", 0o4755), ("group", 0o2755), ("sticky", 0o1755)] {
        write(&dir.join(name), "x");
        std::fs::set_permissions(dir.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    let modes = |id: &str, of: &str| user.stdout(&["exec", id, "--", &format!("stat -c %a {of}")]);
    user.stdout(&["cp", dir.to_str().unwrap(), &format!("{id}:/tmp")]);
    assert_eq!(modes(&id, "/tmp/modes/user /tmp/modes/group /tmp/modes/sticky"), "4755\n2755\n1755\n");
    for name in ["user", "group", "sticky"] {
        user.stdout(&["cp", dir.join(name).to_str().unwrap(), &format!("{id}:/srv/{name}")]);
        user.stdout(&["cp", &format!("{id}:/srv/{name}"), &format!("{other}:/srv/{name}")]);
    }
    let all = "/srv/user /srv/group /srv/sticky";
    assert_eq!(
        (modes(&id, all), modes(&other, all)),
        ("4755\n2755\n1755\n".into(), "4755\n2755\n1755\n".into())
    );
    let back = local.path().join("back");
    user.stdout(&["cp", &format!("{id}:/tmp/modes"), back.to_str().unwrap()]);
    for name in ["user", "group", "sticky"] {
        assert_eq!(back.join(name).metadata().unwrap().mode() & 0o7777, 0o755, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_belongs_to_whom_it_is_given() {
    let user = TestUser::new().await;
    let id = user.create();
    let local = tempfile::tempdir().unwrap();
    let dir = local.path().join("dir");
    write(&dir.join("sub/file"), "x");
    let (from, contents) = (dir.to_str().unwrap(), format!("{}/.", dir.display()));
    let owners = |of: &str| user.stdout(&["exec", &id, "--", &format!("stat -c %u:%g {of}")]);
    user.stdout(&["cp", from, &format!("{id}:/srv/root")]);
    assert_eq!(owners("/srv/root/sub/file"), "0:0\n");
    user.stdout(&["cp", "--chown", "1:2", from, &format!("{id}:/srv/given")]);
    assert_eq!(owners("/srv/given /srv/given/sub/file"), "1:2\n1:2\n");
    // Without a group it is that of the user, or has the same number.
    user.stdout(&["cp", "--chown", "daemon", &format!("{from}/sub/file"), &format!("{id}:/srv/named")]);
    user.stdout(&["cp", "--chown", "4242", &format!("{from}/sub/file"), &format!("{id}:/srv/numbered")]);
    assert_eq!(owners("/srv/named /srv/numbered"), "1:1\n4242:4242\n");
    // What was there before keeps its owner.
    user.stdout(&["exec", &id, "--", "mkdir /srv/old; touch /srv/old/before"]);
    user.stdout(&["cp", "--chown", "1:2", &contents, &format!("{id}:/srv/old")]);
    assert_eq!(owners("/srv/old /srv/old/before /srv/old/sub /srv/old/sub/file"), "0:0\n0:0\n1:2\n1:2\n");
    // Between sandboxes, too.
    let other = user.create();
    user.stdout(&["cp", "--chown", "1:2", &format!("{id}:/srv/old/."), &format!("{other}:/tmp")]);
    assert_eq!(user.stdout(&["exec", &other, "--", "stat -c %u:%g /tmp/before /tmp"]), "1:2\n0:0\n");
    let mut archive =
        user.sbx().args(["cp", "--chown", "1", "-", &format!("{id}:/srv/new/")]).spawn().unwrap();
    assert_eq!(archive.wait().unwrap().code(), Some(125), "the owner of an archive is not changed");
}

/// The user of the command could not change its files otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_belongs_to_the_user_of_the_command() {
    let user = TestUser::new().await;
    let local = tempfile::tempdir().unwrap();
    write(&local.path().join("input"), "in");
    write(&local.path().join("sub/file"), "in");
    let (dir, image) = (local.path().display().to_string(), Service::image());
    for name in ["nobody", "1000"] {
        let volume = format!("{dir}:/app:rw");
        let work =
            "touch new && echo out > input && touch sub/more && stat -c %u . input sub/file | uniq | wc -l";
        let run = user.run(&["run", "-u", name, "-v", &volume, "-w", "/app", image, "--", work]);
        assert_eq!((code(&run), text(&run.stdout).as_str()), (0, "1\n"), "{name}: {}", text(&run.stderr));
        assert_eq!(read(local.path().join("input")), "out\n");
    }
    // Files that the image has beside it keep their owner, and a file is given alone.
    let file = format!("{dir}/input:/etc/input");
    let run = user.stdout(&[
        "run",
        "-u",
        "1000",
        "-v",
        &file,
        image,
        "--",
        "stat -c %u /etc/input /etc /etc/passwd",
    ]);
    assert_eq!(run, "1000\n0\n0\n");
    let started = user.stdout(&[
        "run",
        "-d",
        "-u",
        "1000",
        "-v",
        &format!("{dir}:/app"),
        image,
        "--",
        "touch /app/started; sleep 600",
    ]);
    let found = user.stdout(&["exec", started.trim(), "sleep 1; stat -c %u /app/started"]);
    assert_eq!(found, "1000\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_no_volume_even_if_it_is_a_directory() {
    let user = TestUser::new().await;
    std::fs::create_dir(user.home.path().join("data")).unwrap();
    let run = |volume: &str| {
        let mut command = user.sbx();
        command.current_dir(user.home.path());
        command.args(["run", "-v", volume, Service::image(), "--", "ls -d /data"]).output().unwrap()
    };
    let refused = run("data:/data");
    let stderr = text(&refused.stderr);
    assert!(code(&refused) == 125 && stderr.contains("no named volumes"), "{stderr}");
    assert!(stderr.contains("-v ./data:/data"), "{stderr}");
    assert_eq!(text(&run("./data:/data").stdout), "/data\n");
}

/// As `docker cp` does.
#[tokio::test(flavor = "multi_thread")]
async fn archives_pass_through_pipes() {
    let user = TestUser::new().await;
    let id = user.create();
    user.stdout(&["exec", &id, "--", "mkdir -p /tmp/d/sub /tmp/to; echo in > /tmp/d/sub/file"]);
    let archive = user.run(&["cp", &format!("{id}:/tmp/d"), "-"]);
    assert_eq!(code(&archive), 0);
    let contents = user.run(&["cp", &format!("{id}:/tmp/d/."), "-"]);
    let pipe = |bytes: &[u8], to: &str| {
        let to = format!("{id}:{to}");
        let mut piped = user.sbx().args(["cp", "-", &to]).stdin(Stdio::piped()).spawn().unwrap();
        piped.stdin.take().unwrap().write_all(bytes).unwrap();
        assert!(piped.wait().unwrap().success(), "{to}");
    };
    // Into a directory the archive is unpacked.
    pipe(&archive.stdout, "/tmp/to");
    pipe(&contents.stdout, "/tmp/to");
    let found = user.stdout(&["exec", &id, "--", "cat /tmp/to/d/sub/file /tmp/to/sub/file"]);
    assert_eq!(found, "in\nin\n");
    // A slash creates the directory. Without it an archive is refused, as it was hardly meant to be a file.
    pipe(&archive.stdout, "/tmp/new/");
    assert_eq!(user.stdout(&["exec", &id, "--", "cat /tmp/new/d/sub/file"]), "in\n");
    let mut refused =
        user.sbx().args(["cp", "-", &format!("{id}:/tmp/none")]).stdin(Stdio::piped()).spawn().unwrap();
    // It may fail before it has read everything.
    let _ = refused.stdin.take().unwrap().write_all(&archive.stdout);
    assert_eq!(refused.wait().unwrap().code(), Some(125));
    assert_eq!(code(&user.run(&["exec", &id, "--", "test -e /tmp/none"])), 1);
    // Otherwise it is the content of a file.
    pipe(&archive.stdout, "/tmp/d.tar");
    assert_eq!(user.stdout(&["exec", &id, "--", "tar tf /tmp/d.tar | sort"]), "d/\nd/sub/\nd/sub/file\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_copy_shows_its_progress() {
    let user = TestUser::new().await;
    let id = user.create();
    let local = tempfile::tempdir().unwrap();
    let file = local.path().join("large");
    std::fs::File::create(&file).unwrap().set_len(400 << 20).unwrap();
    let Ok(output) = user.on_a_terminal(&format!("cp {} {id}:large", file.display())).output() else {
        return skipped("a_long_copy_shows_its_progress", "the program 'script' is not installed");
    };
    let stdout = text(&output.stdout);
    assert!(output.status.success() && stdout.contains("large [") && stdout.contains("% "), "{stdout:?}");
    assert!(stdout.ends_with("\r\x1b[K"), "the progress line is not removed: {stdout:?}");
    let quiet = user.run(&["cp", &format!("{id}:large"), "/dev/null"]);
    assert_eq!((code(&quiet), text(&quiet.stderr)), (0, String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_in_a_copy_is_reported_and_the_rest_is_copied() {
    let user = TestUser::new().await;
    let (local, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::os::unix::fs::symlink(outside.path(), local.path().join("link")).unwrap();
    let back = format!("{}:/workspace:rw", local.path().display());
    let work = "rm link; mkdir link; echo in > link/in; echo a > a; echo z > z; exit ";
    for (ends, expected) in [("3", 3), ("0", 125)] {
        for name in ["a", "z"] {
            let _ = std::fs::remove_file(local.path().join(name));
        }
        let output = user.run(&["run", "-v", &back, Service::image(), "--", &format!("{work}{ends}")]);
        let stderr = text(&output.stderr);
        assert_eq!(code(&output), expected, "{stderr}");
        assert!(stderr.contains("link: ") && stderr.contains("link/in"), "{stderr}");
        assert_eq!(
            (read(local.path().join("a")), read(local.path().join("z"))),
            ("a\n".into(), "z\n".into())
        );
    }
    assert_eq!(outside.path().read_dir().unwrap().count(), 0);
}
