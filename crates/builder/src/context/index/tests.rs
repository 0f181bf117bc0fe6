use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn file(offset: u64) -> NewEntry<'static> {
    NewEntry::File { offset, size: 1, hash: [7; 32] }
}

/// The same index as a map, which the index replaces.
fn map_of(paths: &[(String, u64)]) -> BTreeMap<String, Option<u64>> {
    let mut map = BTreeMap::new();
    for (path, offset) in paths {
        map.insert(path.clone(), Some(*offset));
    }
    for path in map.keys().cloned().collect::<Vec<_>>() {
        for (end, _) in path.match_indices('/') {
            map.entry(path[..end].to_owned()).or_insert(None);
        }
    }
    map
}

fn index_of(paths: &[(String, u64)]) -> Index {
    let mut index = Index::default();
    for (path, offset) in paths {
        index.add(path, 0o644, 1, file(*offset)).unwrap();
    }
    index.complete().unwrap();
    index
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn an_index_is_a_sorted_map_with_the_directories_of_its_files(
        paths in prop::collection::vec("[ab]{1,2}(-|/[ab]{1,2}){0,4}", 0..12),
        directory in "[ab]{1,2}",
    ) {
        let paths: Vec<_> = paths.into_iter().zip(0..).collect();
        let (index, map) = (index_of(&paths), map_of(&paths));
        let found: Vec<_> = index.below("").map(|rank| {
            let offset = match index.entry(rank).kind {
                EntryKind::File { offset, .. } => Some(offset),
                _ => None,
            };
            (index.path(rank).to_owned(), offset)
        }).collect();
        prop_assert_eq!(found, map.clone().into_iter().collect::<Vec<_>>());
        let below = map.keys().filter(|path| path.starts_with(&format!("{directory}/"))).count();
        prop_assert_eq!(index.below(&directory).count(), below);
        prop_assert_eq!(index.find(&directory).is_some(), map.contains_key(&directory));
    }
}

#[test]
fn hard_links_are_the_entries_before_them() {
    let mut index = Index::default();
    let link = NewEntry::HardLink { target: "a" };
    index.add("a", 0o644, 1, file(1)).unwrap();
    index.add("b", 0o600, 1, link).unwrap();
    index.add("a", 0o644, 1, file(2)).unwrap();
    index.add("c", 0o600, 1, NewEntry::HardLink { target: "b" }).unwrap();
    index.complete().unwrap();
    let offset = |path: &str| match index.entry(index.find(path).unwrap()).kind {
        EntryKind::File { offset, .. } => offset,
        _ => panic!("no file"),
    };
    assert_eq!(["a", "b", "c"].map(offset), [2, 1, 1]);
    let mut wrong = Index::default();
    wrong.add("b", 0o600, 1, link).unwrap();
    wrong.add("a", 0o644, 1, file(1)).unwrap();
    assert!(wrong.complete().unwrap_err().to_string().contains("hard link to 'a'"));
}
