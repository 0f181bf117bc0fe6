//! Whether the installed runc is known to let a container escape. Judged by version number: distributions backport fixes without changing
//! it, so a finding asks the operator to check, and the backports that we know are taken into account.

use std::cmp::Ordering;
use std::fs;
use std::path::Path;

use super::Finding;

const WHAT: &str = "runc version";
const DPKG_STATUS: &str = "/var/lib/dpkg/status";

/// A published escape and the first version of each release branch without it.
struct Escape {
    cves: &'static [&'static str],
    /// Ascending. A branch older than all of these has no fix.
    fixed_in: &'static [&'static str],
}

const ESCAPES: [Escape; 3] = [
    Escape { cves: &["CVE-2019-5736"], fixed_in: &["1.0.0-rc7"] },
    Escape { cves: &["CVE-2024-21626"], fixed_in: &["1.1.12"] },
    Escape {
        cves: &["CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"],
        fixed_in: &["1.2.8", "1.3.3", "1.4.0-rc.3"],
    },
];

/// Beginnings of package versions that carry a fix which the version number does not show.
const BACKPORTS: [(&str, &str); 2] =
    [("1.1.5+ds1-1+deb12u", "CVE-2024-21626"), ("1.0.0~rc93+ds1-5+deb11u3", "CVE-2024-21626")];

/// A version of runc. A release comes after its candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    numbers: [u32; 3],
    candidate: Option<u32>,
}

/// The finding about the runtime at `path`, if it is a runc. `version_line` is the first line of its `--version`.
pub fn finding(path: &Path, version_line: &str) -> Option<Finding> {
    path.file_name().filter(|name| name.to_string_lossy().starts_with("runc"))?;
    let status = fs::read_to_string(DPKG_STATUS).unwrap_or_default();
    let is_packaged = path.starts_with("/usr/bin") || path.starts_with("/usr/sbin");
    Some(assess(version_line, package_version(&status).filter(|_| is_packaged)))
}

fn assess(version_line: &str, package: Option<&str>) -> Finding {
    let Some(version) = Version::parse(version_line) else {
        return Finding::fair(
            WHAT,
            format!("unknown: '{version_line}'"),
            "check that this version has no published container escape",
        );
    };
    let open: Vec<&str> = escapes(version)
        .into_iter()
        .filter(|cve| !package.is_some_and(|package| is_backported(package, cve)))
        .collect();
    if open.is_empty() {
        return Finding::good(WHAT, "no published container escape");
    }
    let of_package = package.map_or(String::new(), |version| format!(" (package {version})"));
    Finding::fair(
        WHAT,
        format!("older than the fix of {}{of_package}", open.join(", ")),
        "check whether your package has these fixes: distributions add them without a new version number; \
         otherwise install runc 1.2.8, 1.3.3 or later",
    )
}

/// The escapes that a version has, going by its number.
fn escapes(version: Version) -> Vec<&'static str> {
    let affected = ESCAPES.iter().filter(|escape| !is_fixed(version, escape.fixed_in));
    affected.flat_map(|escape| escape.cves.iter().copied()).collect()
}

fn is_fixed(version: Version, fixed_in: &[&str]) -> bool {
    let fixes: Vec<Version> = fixed_in.iter().filter_map(|text| Version::parse(text)).collect();
    let of_branch = fixes.iter().find(|fix| fix.numbers[..2] == version.numbers[..2]);
    of_branch.or(fixes.last()).is_some_and(|fix| version.cmp(fix) != Ordering::Less)
}

fn is_backported(package: &str, cve: &str) -> bool {
    BACKPORTS.iter().any(|(beginning, fixed)| package.starts_with(beginning) && *fixed == cve)
}

/// The version of the installed package, from the text of dpkg's status file.
fn package_version(status: &str) -> Option<&str> {
    let mut paragraphs = status.split("\n\n");
    let runc = paragraphs.find(|paragraph| paragraph.lines().any(|line| line == "Package: runc"))?;
    runc.lines().find_map(|line| line.strip_prefix("Version: "))
}

impl Version {
    /// The first word that is a version: `1.1.5+ds1`, `1.4.0-rc.2`, `1.0.0~rc93+ds1`. What a distribution appends is ignored.
    fn parse(text: &str) -> Option<Self> {
        let word =
            text.split_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()))?;
        let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
        let (release, rest) = word.split_at(end);
        let mut numbers = release.split('.').map(str::parse);
        let mut next = || numbers.next()?.ok();
        let numbers = [next()?, next()?, next()?];
        let candidate = rest.trim_start_matches(['-', '~']).strip_prefix("rc").and_then(|number| {
            let number = number.trim_start_matches('.');
            let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
            number[..end].parse().ok()
        });
        Some(Self { numbers, candidate })
    }

    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |version: &Self| (version.numbers, version.candidate.unwrap_or(u32::MAX));
        rank(self).cmp(&rank(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_version_has_the_escapes_that_were_fixed_after_it() {
        const ALL: &[&str] =
            &["CVE-2019-5736", "CVE-2024-21626", "CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"];
        for (text, expected) in [
            ("0.1.1", ALL),
            ("1.0.0-rc6", ALL),
            ("1.0.0~rc6+dfsg1", ALL),
            ("1.0.0-rc7", &ALL[1..]),
            ("1.0.0-rc93", &ALL[1..]),
            ("1.0.0", &ALL[1..]),
            ("runc version 1.1.5+ds1", &ALL[1..]),
            ("1.1.11", &ALL[1..]),
            ("1.1.12", &ALL[2..]),
            ("1.1.12-0ubuntu3.1", &ALL[2..]),
            ("1.1.15", &ALL[2..]),
            ("1.2.0-rc.1", &ALL[2..]),
            ("1.2.7", &ALL[2..]),
            ("1.2.8", &[]),
            ("1.2.10", &[]),
            ("1.3.0-rc.1", &ALL[2..]),
            ("1.3.2", &ALL[2..]),
            ("runc version 1.3.3", &[]),
            ("1.3.4+dev", &[]),
            ("1.4.0-rc.2", &ALL[2..]),
            ("1.4.0-rc.3", &[]),
            ("1.4.0", &[]),
            ("1.5.0-rc.1", &[]),
            ("2.0.0", &[]),
        ] {
            assert_eq!(escapes(Version::parse(text).unwrap()), expected, "{text}");
        }
        for text in ["", "runc version unknown", "version unknown", "1.1", "1.x.2"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_fix_that_a_distribution_added_counts() {
        let version_line = "runc version 1.1.5+ds1";
        let found = assess(version_line, Some("1.1.5+ds1-1+deb12u1"));
        assert_eq!(found.verdict, Verdict::Fair);
        assert!(
            !found.found.contains("CVE-2024-21626") && found.found.contains("CVE-2025-31133"),
            "{found:?}"
        );
        assert!(assess(version_line, Some("1.1.5+ds1-1")).found.contains("CVE-2024-21626"));
        assert!(assess(version_line, None).found.contains("CVE-2024-21626"));
        assert_eq!(assess("runc version 1.3.3", None).verdict, Verdict::Good);
        assert_eq!(assess("what", None).verdict, Verdict::Fair);
    }

    #[test]
    fn only_runc_is_judged_and_its_package_is_found() {
        assert_eq!(finding(Path::new("/usr/bin/crun"), "crun version 1.8.1"), None);
        let status = "Package: rung\nVersion: 3\n\nPackage: runc\nStatus: install ok installed\nVersion: 1.1.5+ds1-1\n\nPackage: x\nVersion: 2\n";
        assert_eq!(package_version(status), Some("1.1.5+ds1-1"));
        assert_eq!(package_version("Package: x\nVersion: 2\n"), None);
    }
}
