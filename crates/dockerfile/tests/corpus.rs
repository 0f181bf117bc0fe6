//! Dockerfiles of the corpus, with the settings that Docker's builder gives to the image. `./dev docker-corpus` records them. What Docker
//! makes of the files is compared by the end-to-end tests.

use std::path::{Path, PathBuf};

use dockerfile::{BuildArgs, BuildPlan, ImageSettings};

/// The parts of the output of `docker build` that are about files begin with it.
const FILES: &str = "== ";

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

/// The text behind `#args `, in pairs.
fn args(text: &str) -> BuildArgs {
    let words = text.lines().filter_map(|line| line.strip_prefix("#args ")).flat_map(str::split_whitespace);
    words
        .filter_map(|word| word.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The settings of the image `base`.
fn base() -> ImageSettings {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let env = [("PATH", path), ("LANG", "C.UTF-8")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    ImageSettings { env, ..ImageSettings::default() }
}

fn planned(text: &str) -> Result<BuildPlan, String> {
    let file = dockerfile::parse(text).map_err(|error| error.to_string())?;
    let names: Vec<String> = file
        .bases(&args(text))
        .map_err(|error| error.to_string())?
        .into_iter()
        .map(|base| base.name)
        .collect();
    assert_eq!(names, ["base"]);
    file.plan(&args(text), &base()).map_err(|error| error.to_string())
}

/// The settings as the recording shows them.
fn shown(settings: &ImageSettings) -> Vec<String> {
    let mut lines: Vec<String> =
        settings.env.iter().map(|(name, value)| format!("env {name}={value}")).collect();
    lines.extend(settings.user.iter().map(|user| format!("user {user}")));
    lines.extend(settings.workdir.iter().map(|path| format!("workdir {path}")));
    lines.extend(settings.cmd.iter().flatten().map(|word| format!("cmd {word:?}")));
    lines.extend(settings.entrypoint.iter().flatten().map(|word| format!("entrypoint {word:?}")));
    lines.extend(settings.exposed.iter().map(|port| format!("expose {port}")));
    lines.extend(settings.labels.iter().map(|(name, value)| format!("label {name}={value}")));
    lines
}

/// The recorded settings, in the form in which the plan has them: without the user root and a slash at the end of a path.
fn expected(recorded: &str) -> Vec<String> {
    let settings = recorded.lines().take_while(|line| !line.starts_with(FILES));
    let lines =
        settings.filter(|line| *line != "user root").map(|line| match line.strip_prefix("workdir ") {
            Some(path) => format!("workdir {}", path.trim_end_matches('/')),
            None => line.to_owned(),
        });
    lines.collect()
}

#[test]
fn images_have_the_settings_that_docker_gives_them() {
    let mut count = 0;
    for entry in std::fs::read_dir(corpus()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "dockerfile") {
            continue;
        }
        count += 1;
        let text = std::fs::read_to_string(&path).unwrap();
        let recorded = std::fs::read_to_string(path.with_extension("expected")).unwrap();
        let planned = planned(&text);
        if recorded.starts_with("fails\n") {
            // Others fail when they run.
            assert!(
                planned.is_ok() || path.ends_with("fails-variable.dockerfile"),
                "{}: {planned:?}",
                path.display()
            );
            continue;
        }
        let plan = planned.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (mut shown, mut expected) = (shown(&plan.settings), expected(&recorded));
        shown.sort();
        expected.sort();
        assert_eq!(shown, expected, "{}", path.display());
    }
    assert!(count >= 30, "{count} Dockerfiles");
}
