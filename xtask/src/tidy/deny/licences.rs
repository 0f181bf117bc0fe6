//! Licences: the allowed licences of deny.toml must satisfy the expression of each package. Called by `deny`.

use toml::{Table, Value};

use super::super::Violation;
use super::super::graph::Graph;
use super::{DenyEntry, FILE, strings};

pub fn check(graph: &Graph, config: &Table, exceptions: &[DenyEntry]) -> Vec<Violation> {
    let allowed = strings(config.get("licenses").and_then(|t: &Value| t.get("allow")));
    let mut found = Vec::new();
    for package in &graph.packages {
        let own = exceptions.iter().filter(|e| e.is_for(package)).flat_map(|e| &e.allow);
        let allowed: Vec<&str> = allowed.iter().chain(own).map(String::as_str).collect();
        let licence = package.licence.as_deref().unwrap_or("none stated");
        if !is_met(licence, &allowed) {
            let remedy = format!(
                "{} {}: {licence} is not allowed in {FILE}; choose another package",
                package.name, package.version
            );
            found.push(Violation::new("Cargo.lock", 1, "licence", remedy));
        }
    }
    found
}

/// Whether an SPDX expression is satisfied. `A/B` is old syntax for `A OR B`. Invalid expressions are not satisfied.
fn is_met(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = ExpressionReader { words: &words, allowed };
    reader.any() == Some(true) && reader.words.is_empty()
}

struct ExpressionReader<'a> {
    words: &'a [&'a str],
    allowed: &'a [&'a str],
}

impl ExpressionReader<'_> {
    /// `all (OR all)*`
    fn any(&mut self) -> Option<bool> {
        let mut met = self.all()?;
        while self.takes("OR") {
            met |= self.all()?;
        }
        Some(met)
    }

    /// `one (AND one)*`
    fn all(&mut self) -> Option<bool> {
        let mut met = self.one()?;
        while self.takes("AND") {
            met &= self.one()?;
        }
        Some(met)
    }

    /// `( any )`, `LICENCE`, `LICENCE WITH EXCEPTION`
    fn one(&mut self) -> Option<bool> {
        if self.takes("(") {
            let met = self.any()?;
            return self.takes(")").then_some(met);
        }
        let mut licence = self.next()?;
        if self.takes("WITH") {
            licence = format!("{licence} WITH {}", self.next()?);
        }
        Some(self.allowed.contains(&licence.as_str()))
    }

    fn takes(&mut self, word: &str) -> bool {
        let there = self.words.first() == Some(&word);
        if there {
            self.words = &self.words[1..];
        }
        there
    }

    fn next(&mut self) -> Option<String> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some((*first).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_or_not() {
        let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"];
        for good in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/Apache-2.0",
            "(MIT OR GPL-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(is_met(good, &allowed), "{good}");
        }
        for bad in
            ["GPL-3.0", "MIT AND GPL-3.0", "", "(MIT", "MIT MIT", "MIT WITH x", "none stated", "MIT OR"]
        {
            assert!(!is_met(bad, &allowed), "{bad}");
        }
    }
}
