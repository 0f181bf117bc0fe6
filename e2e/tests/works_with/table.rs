//! The rows of `dev.d/works-with.txt`.

use e2e::workspace;

const TABLE: &str = "dev.d/works-with.txt";
const PAGE: &str = "docs/works-with.md";

/// Who runs a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    /// `./dev test`, too.
    Ci,
    /// Only `./dev works-with`.
    Command,
}

/// A program with its packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub name: String,
    pub runner: Runner,
    pub runtime: String,
    pub packages: Vec<String>,
}

impl Row {
    fn read(line: &str) -> Self {
        let mut words = line.split_whitespace().map(str::to_owned);
        let mut next = || words.next().unwrap_or_else(|| panic!("{TABLE}: '{line}' is incomplete"));
        let (name, runner, runtime) = (next(), next(), next());
        let runner = match runner.as_str() {
            "ci" => Runner::Ci,
            "command" => Runner::Command,
            other => panic!("{TABLE}: '{other}' is neither 'ci' nor 'command'"),
        };
        Self { name, runner, runtime, packages: words.collect() }
    }

    /// Whether the packages are there. Programs that use the SDK have none.
    pub fn is_installed(&self) -> bool {
        let directory = workspace().join("target/works-with").join(&self.name);
        self.packages.is_empty() || directory.join(".installed").exists()
    }
}

pub fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(workspace().join(TABLE)).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(Row::read).collect()
}

/// The pinned version of a package, if it is pinned.
fn version(package: &str) -> Option<(&str, &str)> {
    let python = package.split_once("==").map(|(name, version)| (name.split('[').next().unwrap(), version));
    python.or_else(|| package.rsplit_once('@').filter(|(name, _)| !name.is_empty()))
}

#[test]
fn versions_are_found_in_packages() {
    for (package, expected) in [
        ("a-b[c,d]==1.2.3", Some(("a-b", "1.2.3"))),
        ("@a/b@1.2.3", Some(("@a/b", "1.2.3"))),
        ("a@1.2", Some(("a", "1.2"))),
        ("a", None),
        ("a>=1,<2", None),
    ] {
        assert_eq!(version(package), expected, "{package}");
    }
}

#[test]
fn every_row_has_a_program() {
    for row in rows() {
        let name = row.name.split('@').next().unwrap();
        let extension = if row.runtime == "npm" { "mjs" } else { "py" };
        let program = workspace().join("e2e/tests/works_with/programs").join(format!("{name}.{extension}"));
        assert!(program.exists(), "{} is missing", program.display());
    }
}

#[test]
fn the_page_has_the_version_of_every_package() {
    let page = std::fs::read_to_string(workspace().join(PAGE)).unwrap();
    for (name, version) in rows().iter().flat_map(|row| &row.packages).filter_map(|package| version(package))
    {
        let found = page.lines().any(|line| line.contains(name) && line.contains(version));
        assert!(found, "{PAGE} has no row with {name} {version}");
    }
}
