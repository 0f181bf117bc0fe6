use super::*;

fn rules(text: &str) -> Vec<&'static str> {
    check(&SourceFile { path: "a.md".into(), text: text.into() }).into_iter().map(|v| v.rule).collect()
}

#[test]
fn unfinished_work_is_found() {
    assert_eq!(rules(concat!("// TO", "DO: later\n")), ["unfinished"]);
    assert_eq!(rules(concat!("todo", "!()\n")), ["unfinished"]);
    assert!(rules("mktemp a.XXXXXX; todos\n").is_empty());
}

#[test]
fn trailing_blanks_are_found() {
    assert_eq!(rules("a \nb\t\n"), ["trailing-blanks", "trailing-blanks"]);
    assert_eq!(rules("a"), ["trailing-blanks"]);
    assert!(rules("a\n b\n").is_empty());
}

#[test]
fn machine_paths_are_found() {
    assert_eq!(rules(concat!("see `/wo", "rk/main`\n")), ["machine-path"]);
    assert_eq!(rules(concat!("=/ro", "ot/.cargo\n")), ["machine-path"]);
    assert!(rules("/workspace/a {dir}/work/b /root disk/work/ $x/root/y\n").is_empty());
}

#[test]
fn registry_hosts_are_found() {
    assert_eq!(rules(concat!("https://registry.npm", "js.org/x\n")), ["registry-host"]);
    assert!(rules("https://registry.example.com/x docker.io/library/ubuntu\n").is_empty());
}

#[test]
fn an_allowed_line_passes_that_rule_only() {
    let line = concat!("HOME=/ro", "ot/x # tidy: allow(machine-path): the home inside a sandbox");
    assert!(rules(&format!("{line}\n")).is_empty());
    assert_eq!(rules(&format!("{line} \n")), ["trailing-blanks"]);
    assert_eq!(rules(concat!("/ro", "ot/x # tidy: allow(machine-path):\n")), ["machine-path"]);
}
