use super::*;

const SETUP_TEXT: &str = "wanted() {\n  cat <<'TABLE'\nrun  nftables nft\ntest sqlite3  sqlite3\ndocs pandoc? pandoc\nlint shellcheck shellcheck\nTABLE\n}\nsetup() { :; }\nsetup run test lint\n";

fn violations(path: &str, text: &str) -> Vec<String> {
    let sources = [
        SourceFile { path: SETUP.into(), text: SETUP_TEXT.replace("docs pandoc? pandoc\n", "") },
        SourceFile { path: path.into(), text: format!("{text}\nuse std::process::Command;\n") },
    ];
    let rust: Vec<_> = sources.iter().filter_map(SourceFile::rust).collect();
    check(&sources, &rust)
        .into_iter()
        .map(|v| format!("{}: {}: {}", v.line, v.rule, v.remedy.split(' ').next().unwrap()))
        .collect()
}

fn shell_programs(text: &str) -> Vec<String> {
    shell::starts(text, &BTreeSet::new()).into_iter().map(|start| start.program).collect()
}

#[test]
fn a_program_of_the_table_passes_and_others_are_found() {
    let code = |program: &str| format!("fn f() {{ Command::new(\"{program}\").status(); }}");
    assert_eq!(violations("crates/net/src/a.rs", &code("nft")), [""; 0]);
    assert_eq!(violations("crates/net/src/a.rs", &code("tar")), [""; 0]);
    assert_eq!(
        violations("crates/net/tests/a.rs", &code("conntrack")),
        ["1: program-not-installed: conntrack"]
    );
    assert_eq!(
        violations("crates/net/tests/a.rs", &code("/usr/sbin/conntrack")),
        ["1: program-not-installed: conntrack"]
    );
}

#[test]
fn a_program_of_a_group_that_is_not_installed_is_found() {
    let code = "fn f() { Command::new(\"sqlite3\"); }";
    assert_eq!(violations("e2e/tests/a.rs", code), [""; 0]);
    assert_eq!(violations("crates/store/src/a.rs", code), ["1: program-not-installed: sqlite3"]);
    assert_eq!(
        violations("crates/store/src/a.rs", &format!("#[cfg(test)]\nmod tests {{ {code} }}")),
        [""; 0]
    );
    assert_eq!(
        violations("e2e/tests/a.rs", "fn f() { Command::new(\"shellcheck\"); }"),
        ["1: program-not-installed: shellcheck"]
    );
}

#[test]
fn programs_in_function_arguments_and_constants_are_found() {
    let helper = "pub fn run(program: &str, words: &[&str]) { Command::new(program).args(words); }\n";
    let found = violations(
        "crates/net/tests/a.rs",
        &format!("{helper}fn f() {{ run(\"conntrack\", &[\"-L\"]); run(\"nft\", &[]); }}"),
    );
    assert_eq!(found, ["2: program-not-installed: conntrack"]);
    let found = violations(
        "e2e/a.rs",
        "const TOOL: &str = \"/usr/bin/dig\";\nfn f() { Command::new(PathBuf::from(TOOL)); }",
    );
    assert_eq!(found, ["2: program-not-installed: dig"]);
    let found = violations(
        "e2e/a.rs",
        "fn start(command_line: &[&str]) { Command::new(\"sh\").args(command_line); }\nfn f() { start(&[\"nginx\", \"-p\"]); }",
    );
    assert_eq!(found, ["2: program-not-installed: nginx"]);
}

#[test]
fn programs_that_carriers_start_are_found() {
    let found = violations("e2e/a.rs", "fn f() { Command::new(\"timeout\").args([\"60\", \"qemu\"]); }");
    assert_eq!(found, ["1: program-not-installed: qemu"]);
    let found = violations(
        "e2e/a.rs",
        "fn f() { Command::new(\"unshare\").args([\"--net\", \"sh\", \"-c\", \"ip link && exec cat\"]); }",
    );
    assert_eq!(found, ["1: program-not-installed: ip"]);
    let found = violations(
        "e2e/a.rs",
        "const S: &str = r#\"set -e\ngit init\"#;\nfn f() { Command::new(\"bash\").args([\"-ec\", S]); }",
    );
    assert_eq!(found, ["3: program-not-installed: git"]);
}

#[test]
fn unnamed_programs_need_a_comment() {
    assert_eq!(violations("e2e/a.rs", "fn f(p: &Path) { Command::new(p); }"), ["1: program-unnamed: cannot"]);
    assert_eq!(
        violations("e2e/a.rs", "fn f(p: &Path) {\n// starts: sandboxd, nft\nCommand::new(p); }"),
        [""; 0]
    );
    assert_eq!(
        violations("e2e/a.rs", "fn f(p: &Path) {\n// starts: perl\nCommand::new(p); }"),
        ["3: program-not-installed: perl"]
    );
    assert_eq!(violations("e2e/a.rs", "fn f() { Command::new(std::env::current_exe().unwrap()); }"), [""; 0]);
    assert_eq!(
        violations("e2e/a.rs", "fn f(s: &str) { Command::new(\"bash\").args([\"-c\", s]); }"),
        ["1: program-unnamed: cannot"]
    );
}

#[test]
fn commands_of_a_script_are_found() {
    let script = "\
#!/bin/sh
# comment jq
NAME=value OTHER=$(id -u) curl --fail \"$(hostname -f)\" | jq . >\"out file\" 2>&1 &
if ! command -v zstd >/dev/null; then say 'perl -e'; elif [[ a && b ]]; then
  exec 9>lock
  exec less x
fi
say() { printf '%s\\n' \"dev: $*\" >&2; }
case $1 in
  a | gawk) socat x ;;
  *) die ;;
esac
cat <<'EOF' >out
ruby
EOF
for x in php go; do dig \"$x\"; done
list=(java node)
mapfile -t names < <(openssl version)
timeout 5 rsync a b; echo $((1 + 2)) ${A:-$(nproc)} `pwd` && \\
  vim
";
    let found: BTreeSet<_> = shell_programs(script).into_iter().collect();
    let expected = [
        "cat", "curl", "die", "dig", "hostname", "id", "jq", "less", "nproc", "openssl", "rsync", "socat",
        "timeout", "vim",
    ];
    assert_eq!(found, expected.into_iter().map(str::to_owned).collect());
}

#[test]
fn commands_of_tested_documents_are_found() {
    let text = "Text.\n\n```sh\ncurl x\n\njq y\n```\n\n```console\n# perl\n```\n";
    let found = violations("README.md", text);
    assert_eq!(found, ["4: program-not-installed: curl", "6: program-not-installed: jq"]);
}

#[test]
fn an_unused_group_is_found() {
    let sources = [SourceFile { path: SETUP.into(), text: SETUP_TEXT.into() }];
    let found = check(&sources, &[]);
    let unused: Vec<_> =
        found.iter().filter(|v| v.remedy.contains("group")).map(|v| (v.line, v.remedy.as_str())).collect();
    assert_eq!(unused, [(5, "no command passes group docs to setup")]);
}
