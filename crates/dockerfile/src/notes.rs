//! Instructions of a Dockerfile that have no effect on sandboxes, for the log of the build: in Docker they have one.

use std::collections::BTreeMap;
use std::fmt;

use crate::instruction::{Dockerfile, InstructionKind};
use crate::stages::Parent;

/// An instruction that is accepted and has no effect on sandboxes. Its text says what has the effect instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    pub line: usize,
    pub instruction: Ineffective,
}

/// The kinds of instructions that builds note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ineffective {
    /// The user of the result is not root. Users of E2B do get this user.
    User,
    Cmd,
    Entrypoint,
    Expose,
    Volume,
    HealthCheck,
    StopSignal,
    CacheMount,
}

impl Ineffective {
    const fn text(self) -> &'static str {
        match self {
            Self::User => {
                "USER has no effect on commands of a sandbox: they run as root unless they name a user; later RUNs and the \
                 start command run as this user"
            }
            Self::Cmd => {
                "CMD has no effect: commands of a sandbox name their program; a start command is set with startCommand \
                 (sbx build --start)"
            }
            Self::Entrypoint => {
                "ENTRYPOINT has no effect: commands of a sandbox name their program; a start command is set with startCommand \
                 (sbx build --start)"
            }
            Self::Expose => "EXPOSE has no effect: a port of a sandbox is exposed with a request",
            Self::Volume => "VOLUME has no effect: the directory is on the disk of the sandbox",
            Self::HealthCheck => {
                "HEALTHCHECK has no effect: the start command of the build is checked with readyCommand (sbx build --ready)"
            }
            Self::StopSignal => {
                "STOPSIGNAL has no effect: a sandbox ends without a signal that its processes can handle"
            }
            Self::CacheMount => {
                "RUN --mount=type=cache has no effect: what the command writes there stays in the template; a step whose inputs \
                 have not changed is taken from the cache of steps"
            }
        }
    }

    fn of(kind: &InstructionKind) -> Option<Self> {
        match kind {
            InstructionKind::User(_) => Some(Self::User),
            InstructionKind::Cmd(_) => Some(Self::Cmd),
            InstructionKind::Entrypoint(_) => Some(Self::Entrypoint),
            InstructionKind::Expose(_) => Some(Self::Expose),
            InstructionKind::Volume => Some(Self::Volume),
            InstructionKind::HealthCheck => Some(Self::HealthCheck),
            InstructionKind::StopSignal => Some(Self::StopSignal),
            InstructionKind::Run { has_cache_mount: true, .. } => Some(Self::CacheMount),
            InstructionKind::Run { has_cache_mount: false, .. }
            | InstructionKind::Args(_)
            | InstructionKind::Env(_)
            | InstructionKind::Labels(_)
            | InstructionKind::Copy { .. }
            | InstructionKind::Workdir(_)
            | InstructionKind::Shell(_)
            | InstructionKind::OnBuild(_)
            | InstructionKind::Maintainer => None,
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.instruction.text())
    }
}

/// One note per kind, at the last line that has it. `user` is that of the result. Stages that files are only copied of have settings for
/// no sandbox, in Docker neither; their commands run.
pub fn notes(file: &Dockerfile, stages: &[Option<Parent>], user: Option<&str>) -> Vec<Note> {
    let mut lines: BTreeMap<Ineffective, usize> = BTreeMap::new();
    let in_result = stages_of_result(stages);
    for (number, stage) in file.stages.iter().enumerate() {
        if stages[number].is_none() {
            continue;
        }
        for instruction in &stage.instructions {
            let noted = Ineffective::of(&instruction.kind).filter(|kind| match kind {
                Ineffective::User => in_result[number] && user.is_some(),
                Ineffective::CacheMount => true,
                _ => in_result[number],
            });
            lines.extend(noted.map(|kind| (kind, instruction.line)));
        }
    }
    let mut notes: Vec<Note> =
        lines.into_iter().map(|(instruction, line)| Note { line, instruction }).collect();
    notes.sort_by_key(|note| note.line);
    notes
}

/// Whether each stage is the last one or one that it is built upon.
fn stages_of_result(stages: &[Option<Parent>]) -> Vec<bool> {
    let mut found = vec![false; stages.len()];
    let mut next = stages.len().checked_sub(1);
    while let Some(number) = next {
        found[number] = true;
        next = match &stages[number] {
            // An earlier one, so this ends.
            Some(Parent::Stage(earlier)) => Some(*earlier),
            Some(Parent::External(_)) | None => None,
        };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::Base;

    fn noted(text: &str, stages: &[Option<Parent>], user: Option<&str>) -> Vec<(usize, Ineffective)> {
        let file = crate::parse(text).unwrap();
        notes(&file, stages, user).into_iter().map(|note| (note.line, note.instruction)).collect()
    }

    fn external() -> Option<Parent> {
        Some(Parent::External(Base { name: "a".to_owned(), line: 1 }))
    }

    #[test]
    fn each_kind_is_noted_once_at_its_last_line() {
        let text = "FROM a\nCMD one\nVOLUME /d\nEXPOSE 80\nCMD two\nHEALTHCHECK NONE\nSTOPSIGNAL SIGINT\nENTRYPOINT x\nRUN y\n";
        let expected = [
            (3, Ineffective::Volume),
            (4, Ineffective::Expose),
            (5, Ineffective::Cmd),
            (6, Ineffective::HealthCheck),
            (7, Ineffective::StopSignal),
            (8, Ineffective::Entrypoint),
        ];
        assert_eq!(noted(text, &[external()], None), expected);
    }

    #[test]
    fn a_user_is_noted_only_if_the_result_has_one() {
        let text = "FROM a\nUSER web\n";
        assert_eq!(noted(text, &[external()], Some("web")), [(2, Ineffective::User)]);
        assert_eq!(noted(text, &[external()], None), []);
    }

    #[test]
    fn stages_that_are_only_copied_from_are_not_noted() {
        let text = "FROM a AS one\nCMD x\nFROM a AS two\nVOLUME /d\nFROM one\nEXPOSE 80\n";
        let above_the_first = [external(), external(), Some(Parent::Stage(0))];
        assert_eq!(noted(text, &above_the_first, None), [(2, Ineffective::Cmd), (6, Ineffective::Expose)]);
        let not_needed = [None, None, external()];
        assert_eq!(noted(text, &not_needed, None), [(6, Ineffective::Expose)]);
    }

    #[test]
    fn mounts_of_caches_are_noted_in_all_stages_that_are_built() {
        let text = "FROM a AS one\nRUN --mount=type=cache,target=/c --mount=type=cache,id=x,target=/d make\nFROM a\nCOPY --from=one /x /y\n";
        assert_eq!(noted(text, &[external(), external()], None), [(2, Ineffective::CacheMount)]);
        assert_eq!(noted("FROM a\nRUN make\n", &[external()], None), []);
    }

    #[test]
    fn a_note_says_what_has_the_effect_instead() {
        let note = Note { line: 4, instruction: Ineffective::Expose };
        assert_eq!(
            note.to_string(),
            "line 4: EXPOSE has no effect: a port of a sandbox is exposed with a request"
        );
    }
}
