//! No cycle between the modules of a crate. At every level of the module tree, siblings may use each other in one direction
//! only; a child may use its parent and a parent its child. Tests are left out.

mod paths;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Violation;
use super::source::Rust;
use paths::{Named, named_paths};

type Module = Vec<String>;

/// Uses between siblings below one module, each with the position of its first use.
type Edges<'a> = BTreeMap<(String, String), (&'a str, usize)>;

/// Finds one cycle at each level of the module trees.
pub fn check(files: &[Rust<'_>]) -> Vec<Violation> {
    let mut crates: BTreeMap<&str, Vec<(Module, &Rust<'_>)>> = BTreeMap::new();
    for file in files {
        if let Some((root, module)) = module_of(file.path) {
            crates.entry(root).or_default().push((module, file));
        }
    }
    crates.values().flat_map(|modules| check_crate(modules)).collect()
}

/// The folder of the crate and the module of a file; `None` for separate programs and tests.
fn module_of(path: &str) -> Option<(&str, Module)> {
    let (root, inside) = path.split_once("/src/")?;
    let mut module: Module = inside.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if module.len() == 1 && matches!(module[0].as_str(), "lib" | "main") {
        module.clear();
    }
    (module.first().map(String::as_str) != Some("bin")).then_some((root, module))
}

fn check_crate(modules: &[(Module, &Rust<'_>)]) -> Vec<Violation> {
    let known: BTreeSet<&Module> = modules.iter().map(|(module, _)| module).collect();
    let named: Vec<_> = modules.iter().map(|(module, file)| (module, *file, named_paths(file))).collect();
    let mut tree = Tree { known, imports: BTreeMap::new() };
    for (module, _, paths) in &named {
        for named in paths {
            if let Some(name) = &named.import {
                tree.imports.insert(((*module).clone(), name.clone()), named.path.clone());
            }
        }
    }
    let mut levels: BTreeMap<Module, Edges<'_>> = BTreeMap::new();
    for (module, file, paths) in &named {
        for Named { path, line, .. } in paths {
            let Some(target) = tree.resolve(module, path, 0) else { continue };
            let shared = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (module.get(shared), target.get(shared)) {
                let edges = levels.entry(module[..shared].to_vec()).or_default();
                edges.entry((from.clone(), to.clone())).or_insert((file.path, *line));
            }
        }
    }
    levels.values().filter_map(cycle_in).collect()
}

/// The modules of a crate and the names that each imports.
struct Tree<'a> {
    known: BTreeSet<&'a Module>,
    imports: BTreeMap<(Module, String), Vec<String>>,
}

impl Tree<'_> {
    /// The module that defines the item that `path` names in `module`. A few steps of re-exports are followed.
    fn resolve(&self, module: &Module, path: &[String], steps: usize) -> Option<Module> {
        let mut at = module.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                at.clear();
                rest = &path[1..];
            }
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|s| s == "super") {
                    at.pop()?;
                    rest = &rest[1..];
                }
            }
            first => {
                at.push(first.to_owned());
                if !self.known.contains(&at) {
                    return None;
                }
                rest = &path[1..];
            }
        }
        for name in rest {
            at.push(name.clone());
            if self.known.contains(&at) {
                continue;
            }
            at.pop();
            if steps < 4
                && let Some(path) = self.imports.get(&(at.clone(), name.clone()))
            {
                return self.resolve(&at, path, steps + 1).or(Some(at));
            }
            break;
        }
        Some(at)
    }
}

/// The shortest cycle through the first module that is on one.
fn cycle_in(edges: &Edges<'_>) -> Option<Violation> {
    let starts: BTreeSet<&String> = edges.keys().map(|(from, _)| from).collect();
    let cycle = starts.into_iter().find_map(|start| shortest_cycle(edges, start))?;
    let steps = cycle.windows(2).map(|pair| {
        let (path, line) = edges[&(pair[0].clone(), pair[1].clone())];
        format!("{} uses {} at {path}:{line}", pair[0], pair[1])
    });
    let remedy =
        format!("{}; move the shared parts into a module below them", steps.collect::<Vec<_>>().join(", "));
    let (path, line) = edges[&(cycle[0].clone(), cycle[1].clone())];
    Some(Violation::new(path, line, "module-cycle", remedy))
}

fn shortest_cycle(edges: &Edges<'_>, start: &String) -> Option<Vec<String>> {
    let mut queue = VecDeque::from([vec![start.clone()]]);
    let mut seen = BTreeSet::new();
    while let Some(route) = queue.pop_front() {
        let last = &route[route.len() - 1];
        for (_, next) in edges.keys().filter(|(from, _)| from == last) {
            let mut longer = route.clone();
            longer.push(next.clone());
            if next == start {
                return Some(longer);
            }
            if seen.insert(next.clone()) {
                queue.push_back(longer);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
