//! Keys of steps: two steps with the same key have the same result, as far as the builder can know. A key covers what the step does,
//! the contents of the files that it copies, and the key of the step before. Times of files are left out, as in other builders.

use std::collections::BTreeMap;

use dockerfile::{Copy, CopySource, Directory, PlanStep, Run, Work};
use sha2::{Digest, Sha256};

use crate::context::Context;
use crate::context::index::EntryKind;
use crate::copy::{CopiedContent, CopyTarget, Selection};

/// Raised when the builder carries out the same step differently.
const FORMAT: &str = "sandboxd build 2";

/// The key of what a Dockerfile builds upon.
pub fn of_base(identity: &str, isolation: &str) -> String {
    let mut key = StepHasher::new(FORMAT);
    key.text(identity);
    // Files that a step writes can have owners or attributes that depend on it.
    key.text(isolation);
    key.finish()
}

/// The key of a step. `selected` has the files of a copy.
pub fn of_step(parent: &str, step: &PlanStep, selected: Option<(&Context, &Selection)>) -> String {
    let mut key = StepHasher::above(parent, step);
    match &step.work {
        Work::Nothing => key.text("nothing"),
        Work::Run(run) => key.run(run),
        Work::Copy(copy) => {
            let none = (&Context::default(), &Selection::default());
            let (context, selection) = selected.unwrap_or(none);
            key.copy(copy, context, selection);
        }
    }
    key.finish()
}

/// The key of a step that copies files of another file system, which has a key of its own.
pub fn of_foreign_copy(parent: &str, step: &PlanStep, copy: &Copy, from: &str) -> String {
    let mut key = StepHasher::above(parent, step);
    key.text("copy from");
    key.text(from);
    key.target(copy);
    key.number(copy.sources.len() as u64);
    for source in &copy.sources {
        match source {
            CopySource::Path(path) => key.text(path),
            CopySource::Inline { name, content } => key.texts(&[name.clone(), content.clone()]),
        }
    }
    key.finish()
}

/// The key of the processes of a start command.
pub fn of_start(parent: &str, start: &Run, ready: Option<&str>) -> String {
    let mut key = StepHasher::new(parent);
    key.text("start");
    key.run(start);
    key.text(ready.unwrap_or_default());
    key.finish()
}

/// A hash of texts and numbers, each with its length, so that no two sequences are the same.
struct StepHasher(Sha256);

impl StepHasher {
    fn new(parent: &str) -> Self {
        let mut key = Self(Sha256::new());
        key.text(parent);
        key
    }

    /// Of a step, with the directories that it makes.
    fn above(parent: &str, step: &PlanStep) -> Self {
        let mut key = Self::new(parent);
        key.number(step.directories.len() as u64);
        for Directory { path, owner } in &step.directories {
            key.text(path);
            key.text(owner.as_deref().unwrap_or_default());
        }
        key
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn texts(&mut self, texts: &[String]) {
        self.number(texts.len() as u64);
        for text in texts {
            self.text(text);
        }
    }

    fn run(&mut self, Run { argv, env, workdir, user }: &Run) {
        self.text("run");
        self.texts(argv);
        self.variables(env);
        self.text(workdir);
        self.text(user.as_deref().unwrap_or_default());
    }

    fn variables(&mut self, env: &BTreeMap<String, String>) {
        self.number(env.len() as u64);
        for (name, value) in env {
            self.text(name);
            self.text(value);
        }
    }

    fn copy(&mut self, copy: &Copy, context: &Context, selection: &Selection) {
        self.text("copy");
        self.target(copy);
        self.number(u64::from(selection.target == CopyTarget::Directory));
        let files = selection.files(context, copy);
        self.number(files.len() as u64);
        for (path, content) in files {
            self.text(path);
            match content {
                CopiedContent::Inline(text) => self.text(text),
                CopiedContent::Entry(entry) | CopiedContent::Archive(entry, _) => {
                    self.number(u64::from(matches!(content, CopiedContent::Archive(..))));
                    self.number(u64::from(entry.mode));
                    match entry.kind {
                        EntryKind::Directory => self.text("directory"),
                        EntryKind::Link { target } => self.text(target),
                        EntryKind::File { size, hash, .. } => {
                            self.number(size);
                            self.0.update(hash);
                        }
                    }
                }
            }
        }
    }

    fn target(&mut self, copy: &Copy) {
        let Copy { destination, owner, mode, extracts, .. } = copy;
        self.text(destination);
        self.text(owner.as_deref().unwrap_or_default());
        self.number(mode.map_or(u64::MAX, u64::from));
        self.number(u64::from(*extracts));
    }

    fn finish(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(work: Work) -> PlanStep {
        let above = dockerfile::Origin::Base("a".to_owned());
        PlanStep { above, line: 1, text: "shown".to_owned(), directories: Vec::new(), work }
    }

    fn run(command: &str, env: &[(&str, &str)], user: Option<&str>) -> PlanStep {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let argv = vec!["/bin/sh".to_owned(), "-c".to_owned(), command.to_owned()];
        step(Work::Run(Run {
            argv,
            env: std::sync::Arc::new(env),
            workdir: "/".to_owned(),
            user: user.map(str::to_owned),
        }))
    }

    #[test]
    fn everything_that_changes_the_result_changes_the_key() {
        let base = of_base("sha256:1", "container");
        let first = run("make", &[("A", "1")], None);
        let made = |owner: Option<&str>| {
            let directory = Directory { path: "/a".to_owned(), owner: owner.map(str::to_owned) };
            PlanStep { directories: vec![directory], ..step(Work::Nothing) }
        };
        let copy = |source: &str, destination: &str| Copy {
            from: None,
            sources: vec![CopySource::Path(source.to_owned())],
            destination: destination.to_owned(),
            owner: None,
            mode: None,
            extracts: false,
        };
        let foreign = |copy: &Copy, from: &str| of_foreign_copy(&base, &step(Work::Nothing), copy, from);
        let keys = [
            base.clone(),
            of_base("sha256:2", "container"),
            of_base("sha256:1", "gvisor"),
            of_step(&base, &first, None),
            of_step(&of_base("sha256:2", "container"), &first, None),
            of_step(&base, &run("make all", &[("A", "1")], None), None),
            of_step(&base, &run("make", &[("A", "2")], None), None),
            of_step(&base, &run("make", &[("A", "1")], Some("user")), None),
            of_step(&base, &step(Work::Nothing), None),
            of_step(&base, &made(None), None),
            of_step(&base, &made(Some("app")), None),
            foreign(&copy("/a", "/b"), "1"),
            foreign(&copy("/a", "/b"), "2"),
            foreign(&copy("/b", "/b"), "1"),
            foreign(&copy("/a", "/c"), "1"),
        ];
        let different: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
        // The line and the shown text do not matter.
        assert_eq!(of_step(&base, &PlanStep { line: 9, text: "other".to_owned(), ..first }, None), keys[3]);
    }
}
