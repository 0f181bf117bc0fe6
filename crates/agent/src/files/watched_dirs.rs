//! The directories of a watch: which inotify watch belongs to which path. Used by `watch`.

use std::collections::{HashMap, HashSet};

/// The watched directories, by watch number, with their paths relative to the first one, whose path is empty.
#[derive(Default)]
pub struct WatchedDirs {
    paths: HashMap<i32, Vec<u8>>,
    /// Directories that were moved away, and may have been moved to another name in the tree.
    moved: HashSet<i32>,
}

impl WatchedDirs {
    pub fn path(&self, number: i32) -> Option<&[u8]> {
        self.paths.get(&number).map(Vec::as_slice)
    }

    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Adds a directory, or changes the path of a known one. True if it is new.
    pub fn add(&mut self, number: i32, path: Vec<u8>) -> bool {
        self.moved.remove(&number);
        self.paths.insert(number, path).is_none()
    }

    pub fn remove(&mut self, number: i32) {
        self.paths.remove(&number);
        self.moved.remove(&number);
    }

    /// A directory was moved away from this path.
    pub fn moved_away(&mut self, path: &[u8]) {
        let is_below = |other: &[u8]| {
            other.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        self.moved.extend(self.paths.iter().filter(|(_, other)| is_below(other)).map(|(number, _)| *number));
    }

    /// The watches of directories that have left the tree.
    pub fn take_left(&mut self) -> Vec<i32> {
        let left: Vec<i32> = self.moved.drain().collect();
        left.iter().for_each(|number| drop(self.paths.remove(number)));
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_directory_stays_if_it_reappears() {
        let mut dirs = WatchedDirs::default();
        for (number, path) in [(1, ""), (2, "a"), (3, "a/b"), (4, "ab")] {
            assert!(dirs.add(number, path.into()));
        }
        dirs.moved_away(b"a");
        assert!(!dirs.add(2, b"c".to_vec()) && !dirs.add(3, b"c/b".to_vec()));
        assert_eq!(dirs.take_left(), [0; 0]);
        assert_eq!((dirs.path(3), dirs.path(4)), (Some(&b"c/b"[..]), Some(&b"ab"[..])));
        dirs.moved_away(b"c");
        let mut left = dirs.take_left();
        left.sort_unstable();
        assert_eq!((left, dirs.len(), dirs.path(2)), (vec![2, 3], 2, None));
    }
}
