//! `dev.d/apt.sh` and `dev.d/gvisor.sh` on machines that are not as they should be: installed packages are in conflict with those
//! that are needed, gVisor is missing or slow to answer. The tests run the real apt-get on temporary directories.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/apt.rs"]
mod apt;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Runs a script after the functions of `./dev`, in `dir`.
fn run(dir: &Path, script: &str) -> Output {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dev.d").canonicalize().unwrap();
    let script = format!(
        "set -euo pipefail; say() {{ echo \"dev: $*\" >&2; }}; die() {{ say \"$@\"; exit 1; }}; . {0}/apt.sh; . {0}/gvisor.sh\n{script}",
        scripts.display()
    );
    // starts: apt-get
    Command::new("bash")
        .args(["-c", &script])
        .current_dir(dir)
        .env("APT_CONFIG", dir.join("apt.conf"))
        .output()
        .unwrap()
}

fn messages(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Directories for apt with one package source, and the package `mine` installed. The package `wanted` is in conflict with it, and
/// needs `library`.
fn apt_dirs(dir: &Path) {
    apt::make_dirs(dir, "Debug::NoLocking \"1\";");
    fs::create_dir(dir.join("source")).unwrap();
    let mine = control("mine", "Status: install ok installed\n");
    fs::write(dir.join("dpkg/status"), mine).unwrap();
    let program = ("usr/bin/wanted", "#!/bin/sh\necho \"$1 with $LD_LIBRARY_PATH\"\n");
    let packages = [
        package(dir, "wanted", "Conflicts: mine\nDepends: library\n", program),
        package(dir, "library", "", ("usr/lib/some-linux-gnu/library.so", "")),
        package(dir, "mine", "", ("usr/bin/mine", "")),
    ];
    fs::write(dir.join("source/Packages"), packages.concat()).unwrap();
    fs::write(
        dir.join("etc/sources.list"),
        format!("deb [trusted=yes] file:{} ./\n", dir.join("source").display()),
    )
    .unwrap();
}

fn control(name: &str, more: &str) -> String {
    format!(
        "Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: A <a@example.com>\nDescription: x\n{more}\n"
    )
}

/// Builds a package with one file in `source/`. Returns its entry in the list of packages.
fn package(dir: &Path, name: &str, more: &str, (path, content): (&str, &str)) -> String {
    let tree = dir.join("tree").join(name);
    let file = tree.join(path);
    for parent in [&tree.join("DEBIAN"), file.parent().unwrap()] {
        fs::create_dir_all(parent).unwrap();
    }
    fs::write(&file, content).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(tree.join("DEBIAN/control"), control(name, more).trim_end().to_owned() + "\n").unwrap();
    let archive = dir.join(format!("source/{name}.deb"));
    let built = Command::new("dpkg-deb").arg("--build").args([&tree, &archive]).output().unwrap();
    assert!(built.status.success(), "{built:?}");
    // starts: sha256sum
    let digest = Command::new("sha256sum").arg(&archive).output().unwrap();
    let digest = String::from_utf8(digest.stdout).unwrap();
    let digest = digest.split(' ').next().unwrap();
    let size = fs::metadata(&archive).unwrap().len();
    control(name, &format!("{more}Filename: ./{name}.deb\nSize: {size}\nSHA256: {digest}\n"))
}

#[test]
fn a_package_that_conflicts_with_one_of_the_machine_is_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    apt_dirs(dir.path());
    let output = run(
        dir.path(),
        "wanted() { echo test wanted wanted; }\nmissing=(wanted) optional=()\ninstall_packages\ntarget/packages/bin/wanted works",
    );
    let messages = messages(&output);
    assert!(output.status.success(), "{messages}");
    assert!(
        messages.contains("wanted is in conflict with installed packages (mine), which stay"),
        "{messages}"
    );
    let library = dir.path().canonicalize().unwrap().join("target/packages/wanted/usr/lib/some-linux-gnu");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("works with {}\n", library.display()));
    // Nothing was installed, which would fail in this test.
    assert!(!messages.contains("installing:"), "{messages}");
}

/// A program that prints its version, and then a megabyte, more than a pipe holds.
fn write_runsc(path: &Path, release: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(
        path,
        format!("#!/bin/bash\necho runsc version release-{release}.0\nprintf '%01000000d\\n' 1\n"),
    )
    .unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn gvisor_is_kept_although_it_prints_more_than_its_version() {
    let dir = tempfile::tempdir().unwrap();
    write_runsc(&dir.path().join("target/gvisor/runsc"), "20240729");
    let output = run(dir.path(), "PATH=/usr/bin:/bin\ndownload_gvisor() { false; }\ngvisor\nreport_gvisor");
    assert!(output.status.success() && messages(&output).is_empty(), "{output:?}");
    assert!(dir.path().join("target/gvisor/runsc").exists());
}

#[test]
fn a_lost_gvisor_is_reported_last_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let download = |body: &str| {
        let script =
            format!("PATH=/usr/bin:/bin\ndownload_gvisor() {{ {body}; }}\ngvisor\nsay done\nreport_gvisor");
        let output = run(dir.path(), &script);
        assert!(output.status.success(), "{output:?}");
        messages(&output)
    };
    let failed = download("GVISOR_REASON='no source of Debian'; false");
    let last = failed.rsplit_once("dev: done\n").unwrap().1;
    assert!(
        last.starts_with("dev: gVisor is MISSING, the stronger isolation: no source of Debian\n"),
        "{failed}"
    );
    write_runsc(&dir.path().join("old"), "20230102");
    let old = download("mkdir -p target/gvisor && cp old target/gvisor/runsc");
    assert!(old.contains("target/gvisor/runsc is release 20230102, which is older than 20240101\n"), "{old}");
    assert!(!dir.path().join("target/gvisor").exists());
    write_runsc(&dir.path().join("new"), "20240729");
    let found = download("mkdir -p target/gvisor && cp new target/gvisor/runsc");
    assert!(found.ends_with("dev: done\n"), "{found}");
}
