use super::*;

fn found(path: &str, text: &str) -> Vec<String> {
    let source = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
    let dev = "case $command in\n  setup) x ;;\n  help | -h | --help) y ;;\nesac\n";
    let sources = [
        source("dev", dev),
        source("crates/api/src/lib.rs", ""),
        source("docs/guide.md", ""),
        source(path, text),
    ];
    check(&sources).into_iter().map(|v| format!("{}: {}", v.line, v.rule)).collect()
}

#[test]
fn a_path_that_does_not_exist_is_found() {
    assert_eq!(found("ARCHITECTURE.md", "a\nsee `crates/gone/` and\n"), ["2: path-exists"]);
    assert_eq!(found("docs/a.md", "[x](guides.md)"), ["1: path-exists"]);
    assert_eq!(found("docs/a.md", "[x](../crates/api/src/main.rs)"), ["1: path-exists"]);
}

#[test]
fn paths_that_exist_and_other_words_pass() {
    let text = "`crates/api/` `./crates/api/src/lib.rs` `target/bin/x` `crates/<name>/src` `a/b` `crates/api docs/x`\n\
        [x](guide.md#part) [y](https://example.com/x) [z](../crates/api) [w](#here)\n```\n`crates/gone`\n```\n";
    assert_eq!(found("docs/a.md", text), [""; 0]);
    assert_eq!(found("CHANGELOG.md", "`crates/gone`"), [""; 0]);
}

#[test]
fn an_unknown_command_in_the_readme_is_found() {
    assert_eq!(found("README.md", "```sh\nfrobnicate\n```\n"), ["2: readme-command"]);
    assert_eq!(found("README.md", "```sh\n./dev dance\n```\n"), ["2: readme-command"]);
    assert_eq!(found("README.md", "```sh\ntarget/bin/other\n```\n"), ["2: readme-command"]);
}

#[test]
fn known_commands_pass() {
    let text = "```sh\n# first\nsudo ./dev setup\n./dev help\ntarget/bin/sandboxd run x \\\n  -- y\n```\n```text\nz\n```\n";
    assert_eq!(found("README.md", text), [""; 0]);
}
