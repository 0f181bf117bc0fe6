//! Decides which event a watch reports for a change of an entry. Used by `watch`.
//!
//! Temporary names are not reported. The rename of one to its target is a `create` of the target, or a `write` if the target existed
//! when its upload began. The temporary name tells which; the kernel gives both halves of a rename the same cookie.

use guest_proto::WatchEventKind;
use rustix::fs::inotify::ReadFlags;

use super::temporary::{self, TargetChange};

/// Most replacements of which only the first half was read: one of each running file operation.
const MAX_REPLACEMENTS: usize = guest_proto::MAX_FILE_OPS;

/// The state of the decision: the cookies of renames that replace a target, whose second half was not read yet.
#[derive(Default)]
pub struct EntryEvents {
    replacements: Vec<u32>,
}

impl EntryEvents {
    /// The event to report; `None` if the change is not reported. To be called for all changes in their order.
    pub fn kind_of(&mut self, name: &[u8], flags: ReadFlags, cookie: u32) -> Option<WatchEventKind> {
        if let Some(change) = temporary::change_of(name) {
            if change == TargetChange::Replaced && flags.contains(ReadFlags::MOVED_FROM) {
                self.add(cookie);
            }
            return None;
        }
        if flags.contains(ReadFlags::MOVED_TO) && self.take(cookie) {
            return Some(WatchEventKind::Write);
        }
        [
            (ReadFlags::CREATE, WatchEventKind::Create),
            (ReadFlags::MOVED_TO, WatchEventKind::Create),
            (ReadFlags::MODIFY, WatchEventKind::Write),
            (ReadFlags::ATTRIB, WatchEventKind::Chmod),
            (ReadFlags::DELETE, WatchEventKind::Remove),
            (ReadFlags::MOVED_FROM, WatchEventKind::Rename),
        ]
        .into_iter()
        .find(|(flag, _)| flags.contains(*flag))
        .map(|(_, kind)| kind)
    }

    fn add(&mut self, cookie: u32) {
        // A program that moves such names out of the directory leaves halves without a second one.
        if self.replacements.len() == MAX_REPLACEMENTS {
            self.replacements.remove(0);
        }
        self.replacements.push(cookie);
    }

    /// Whether a rename with this cookie replaces a target; it is complete then.
    fn take(&mut self, cookie: u32) -> bool {
        let found = self.replacements.iter().position(|other| *other == cookie);
        found.map(|at| self.replacements.remove(at)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use guest_proto::WatchEventKind::{Chmod, Create, Remove, Rename, Write};

    use super::*;

    const NEW: &[u8] = b".a.sbx-0123456789abcdee";
    const REPLACING: &[u8] = b".a.sbx-0123456789abcdef";

    #[test]
    fn an_upload_is_one_event() {
        for (temporary, expected) in [(NEW, Create), (REPLACING, Write)] {
            let mut events = EntryEvents::default();
            for flags in [ReadFlags::CREATE, ReadFlags::MODIFY, ReadFlags::ATTRIB, ReadFlags::DELETE] {
                assert_eq!(events.kind_of(temporary, flags, 0), None);
            }
            assert_eq!(events.kind_of(temporary, ReadFlags::MOVED_FROM, 7), None);
            assert_eq!(events.kind_of(b"a", ReadFlags::MOVED_TO, 7), Some(expected));
            // A later rename to the same name by a program.
            assert_eq!(events.kind_of(b"a", ReadFlags::MOVED_TO, 8), Some(Create));
        }
    }

    #[test]
    fn renames_in_several_directories_may_interleave() {
        let mut events = EntryEvents::default();
        for cookie in [3, 1, 2] {
            assert_eq!(events.kind_of(REPLACING, ReadFlags::MOVED_FROM, cookie), None);
        }
        assert_eq!(events.kind_of(NEW, ReadFlags::MOVED_FROM, 4), None);
        for (cookie, expected) in [(1, Write), (4, Create), (2, Write), (3, Write), (3, Create)] {
            assert_eq!(events.kind_of(b"a", ReadFlags::MOVED_TO, cookie), Some(expected), "{cookie}");
        }
    }

    #[test]
    fn renames_without_a_second_half_are_bounded() {
        let mut events = EntryEvents::default();
        for cookie in 1..=1000 {
            events.kind_of(REPLACING, ReadFlags::MOVED_FROM, cookie);
        }
        assert_eq!(events.replacements.len(), MAX_REPLACEMENTS);
        assert_eq!(events.kind_of(b"a", ReadFlags::MOVED_TO, 1000), Some(Write));
        assert_eq!(events.kind_of(b"a", ReadFlags::MOVED_TO, 1), Some(Create));
    }

    #[test]
    fn other_names_are_reported() {
        let mut events = EntryEvents::default();
        for (flags, expected) in [
            (ReadFlags::CREATE, Create),
            (ReadFlags::CREATE | ReadFlags::ISDIR, Create),
            (ReadFlags::MODIFY, Write),
            (ReadFlags::ATTRIB, Chmod),
            (ReadFlags::DELETE, Remove),
            (ReadFlags::MOVED_FROM, Rename),
            (ReadFlags::MOVED_TO, Create),
        ] {
            assert_eq!(events.kind_of(b".a.sbx-1", flags, 0), Some(expected), "{flags:?}");
        }
        assert_eq!(events.kind_of(b"a", ReadFlags::ISDIR, 0), None);
    }
}
