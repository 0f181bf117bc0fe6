//! Interruptions: how often a daemon begins work again during which earlier daemons have ended.
//!
//! ```text
//! begin: count + 1 is committed --> the work --> the daemon lives: the count is removed, whether or not the work succeeded
//!                                           `--> the daemon ends: the next one finds the count
//! ```
//!
//! So the count that a new daemon finds is the number of daemons that ended during the work. The work need not be the reason, but work that
//! ends every daemon reaches the limit. The engine commits the counts; what giving up means depends on the kind of work.

use std::fmt;

/// After so many interruptions work of most kinds is not begun again.
pub const MAX_INTERRUPTIONS: u32 = 3;

/// Work that a daemon begins by itself or that clients repeat, also after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RepeatableWork {
    /// The recovery takes over a sandbox, until it is connected to its agent.
    Recovery,
    /// The recovery removes a sandbox without a record.
    Removal,
    /// The sweeper removes a snapshot that an earlier daemon has left.
    SnapshotRemoval,
    /// The processes of a sandbox are stored.
    Hibernation,
    /// Stored processes are continued.
    Wake,
    /// A snapshot or a hibernated sandbox is copied to the object store.
    Upload,
    /// A copy in the object store is removed.
    CopyRemoval,
    /// A snapshot is copied from the object store to this host.
    Fetch,
    /// A sandbox that another host has stored is adopted.
    Adoption,
    /// A template is built. A step that is completed begins the count again.
    TemplateBuild,
}

impl RepeatableWork {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Recovery,
        Self::Removal,
        Self::SnapshotRemoval,
        Self::Hibernation,
        Self::Wake,
        Self::Upload,
        Self::CopyRemoval,
        Self::Fetch,
        Self::Adoption,
        Self::TemplateBuild,
    ];

    /// The name in the store. It never changes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Recovery => "recovery",
            Self::Removal => "removal",
            Self::SnapshotRemoval => "snapshot removal",
            Self::Hibernation => "hibernation",
            Self::Wake => "wake",
            Self::Upload => "upload",
            Self::CopyRemoval => "copy removal",
            Self::Fetch => "fetch",
            Self::Adoption => "adoption",
            Self::TemplateBuild => "template build",
        }
    }

    /// After so many interruptions work of this kind is not begun again.
    pub const fn limit(self) -> u32 {
        match self {
            // A step of a build may take an hour, and its owner can request the build again.
            Self::TemplateBuild => 2,
            _ => MAX_INTERRUPTIONS,
        }
    }

    /// The kind with a name; `None` for one of a newer version.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for RepeatableWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The service does not begin this work again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the service ended {interruptions} times during the {kind} of {subject}, and does not try it again")]
pub struct GaveUp {
    pub kind: RepeatableWork,
    /// The id of a sandbox, a snapshot or a template.
    pub subject: String,
    pub interruptions: u32,
}

/// The count to commit before work is begun that was interrupted so often.
pub fn begin_work(kind: RepeatableWork, subject: &str, interruptions: u32) -> Result<u32, GaveUp> {
    if interruptions >= kind.limit() {
        return Err(GaveUp { kind, subject: subject.to_owned(), interruptions });
    }
    Ok(interruptions + 1)
}

/// Separates work that was never interrupted, which may run concurrently, from the rest. Of the rest one runs at a time, after all others:
/// then only the cause of an interruption is counted again.
pub fn suspects_last<T>(work: Vec<T>, interruptions: impl Fn(&T) -> u32) -> (Vec<T>, Vec<T>) {
    work.into_iter().partition(|work| interruptions(work) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for kind in RepeatableWork::ALL {
            assert_eq!(RepeatableWork::of_name(kind.name()), Some(kind));
        }
        assert_eq!(RepeatableWork::of_name("of a newer version"), None);
    }

    #[test]
    fn work_that_ends_every_daemon_is_given_up() {
        for (kind, limit, text) in [
            (RepeatableWork::Upload, MAX_INTERRUPTIONS, "ended 3 times during the upload of id_1"),
            (RepeatableWork::TemplateBuild, 2, "ended 2 times during the template build of id_1"),
        ] {
            let (mut stored, mut starts) = (0, 0);
            let refused = loop {
                match begin_work(kind, "id_1", stored) {
                    Ok(count) => (stored, starts) = (count, starts + 1),
                    Err(refused) => break refused,
                }
            };
            assert_eq!((starts, refused.interruptions), (limit, limit));
            assert_eq!(refused.to_string(), format!("the service {text}, and does not try it again"));
        }
    }

    /// Sixteen begin at once, and the same one ends every daemon.
    #[test]
    fn only_the_cause_reaches_the_limit() {
        let culprit = 11;
        let mut counts = [0; 16];
        for daemon in 1..=MAX_INTERRUPTIONS {
            let (fresh, suspects) = suspects_last((0..16).collect(), |work: &usize| counts[*work]);
            fresh.iter().for_each(|work| counts[*work] += 1);
            if fresh.contains(&culprit) {
                continue;
            }
            for work in suspects {
                counts[work] += 1;
                if work == culprit {
                    break;
                }
                counts[work] = 0;
            }
            assert_eq!(counts[culprit], daemon);
        }
        assert!(counts.iter().enumerate().all(|(work, count)| work == culprit || *count <= 1), "{counts:?}");
    }
}
