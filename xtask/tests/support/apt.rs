//! Directories in which apt-get works without those of the machine.

use std::fs;
use std::path::Path;

/// Makes the directories, with no package installed, and `apt.conf`, which names them and has `more` settings.
pub fn make_dirs(dir: &Path, more: &str) {
    for below in ["lists/partial", "cache/archives/partial", "dpkg", "etc"] {
        fs::create_dir_all(dir.join(below)).unwrap();
    }
    fs::write(dir.join("dpkg/status"), "").unwrap();
    let at = |below: &str| dir.join(below).display().to_string();
    let lines = [
        format!("Dir::Etc \"{}\";", at("etc")),
        format!("Dir::State::lists \"{}\";", at("lists")),
        format!("Dir::State::status \"{}\";", at("dpkg/status")),
        format!("Dir::Cache \"{}\";", at("cache")),
        "APT::Sandbox::User \"root\";".to_owned(),
        more.to_owned(),
    ];
    fs::write(dir.join("apt.conf"), lines.join("\n")).unwrap();
}
