//! Names that a request or a file has and its type does not: which of them are typing errors, and what was meant.
//!
//! The reader of bodies and that of the configuration call these. An unknown name can be a field of a later version; a mistyped one
//! would leave the default in force without a word, such as an open network.

use strsim::osa_distance;

/// An edit inserts, removes or replaces a character, or swaps two neighbours.
const EDITS_MAX: usize = 2;
/// The same for the name of a field of another object, if that name is short: other short names are too likely to be near it.
const SHORT_NAME_EDITS_MAX: usize = 1;
const SHORT_NAME_CHARS: usize = 4;
/// No known name is as long, so a longer one cannot be a mistyped one. Bounds the work for names of strangers.
const MISTYPED_BYTES_MAX: usize = 128;

/// The known name that was meant, if the name is at most two edits away from it. Case and the separators `_`, `-` and space make no
/// difference: `MemoryMB` and `memory_mb` are both `memoryMb`.
pub fn mistyped<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    near(name, known, |_| EDITS_MAX).map(|at| known[at])
}

/// The field that was meant, if the name is that of a field of another object or a typing error of it. `known` are their names; the
/// result is the position of one. It is the first of several.
pub fn misplaced(name: &str, known: &[&str]) -> Option<usize> {
    let most = |chars| if chars <= SHORT_NAME_CHARS { SHORT_NAME_EDITS_MAX } else { EDITS_MAX };
    near(name, known, most)
}

/// The known name with the fewest edits from this one, the first of several. `None` only if no name is known.
pub fn nearest_name<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let start: String = name.chars().take(MISTYPED_BYTES_MAX).collect();
    nearest(&start, known).map(|(_, nearest)| nearest)
}

/// The field that was meant by another spelling of its name: another case, other separators, or one edit of a long name. For clients
/// of another service, whose later versions have names of their own.
pub fn respelled(name: &str, known: &[&str]) -> Option<usize> {
    near(name, known, |chars| usize::from(chars > SHORT_NAME_CHARS))
}

/// The position of the known name with the fewest edits. `most` gives the edits that a known name with this number of characters allows.
fn near(name: &str, known: &[&str], most: impl Fn(usize) -> usize) -> Option<usize> {
    if name.len() > MISTYPED_BYTES_MAX {
        return None;
    }
    let name = folded(name);
    let chars = name.chars().count();
    let edits = |(at, candidate): (usize, &&str)| {
        let candidate = folded(candidate);
        let (known_chars, most) = (candidate.chars().count(), most(candidate.chars().count()));
        // Each difference in length is an edit. Most names are refused here, which is cheap.
        if known_chars.abs_diff(chars) > most {
            return None;
        }
        let edits = osa_distance(&name, &candidate);
        (edits <= most).then_some((edits, at))
    };
    known.iter().enumerate().filter_map(edits).min().map(|(_, at)| at)
}

fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<(usize, &'a str)> {
    let name = folded(name);
    let edits = |candidate: &&'a str| (osa_distance(&name, &folded(candidate)), *candidate);
    known.iter().map(edits).min_by_key(|(edits, _)| *edits)
}

fn folded(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop, prop_assert, prop_assert_eq, proptest};

    use super::*;

    const RESOURCES: &[&str] = &["cpu", "memoryMb", "diskMb"];
    const EGRESS: &[&str] = &["allow", "default", "allowNetworks", "denyNetworks"];
    const NETWORK: &[&str] = &["egress", "ingress"];
    const CREATE: &[&str] =
        &["image", "resources", "env", "workdir", "timeoutMs", "idleTimeoutMs", "metadata", "network"];

    #[test]
    fn typing_errors_name_what_was_meant() {
        for (known, name, meant) in [
            (EGRESS, "defualt", "default"),
            (EGRESS, "Default", "default"),
            (EGRESS, "defaults", "default"),
            (EGRESS, "allowd", "allow"),
            (EGRESS, "deny_networks", "denyNetworks"),
            (NETWORK, "egres", "egress"),
            (NETWORK, "EGRESS", "egress"),
            (RESOURCES, "Memorymb", "memoryMb"),
            (RESOURCES, "memory_mb", "memoryMb"),
            (RESOURCES, "MEMORY-MB", "memoryMb"),
            (RESOURCES, "memory", "memoryMb"),
            (RESOURCES, "cpus", "cpu"),
            (RESOURCES, "gpu", "cpu"),
            (CREATE, "imgae", "image"),
            (CREATE, "timoutMs", "timeoutMs"),
            (CREATE, "idle_timeout_ms", "idleTimeoutMs"),
            (CREATE, "netwrok", "network"),
        ] {
            assert_eq!(mistyped(name, known), Some(meant), "{name}");
            assert_eq!(nearest_name(name, known), Some(meant), "{name}");
        }
    }

    #[test]
    fn names_of_other_objects_are_misplaced() {
        let nested = [RESOURCES, NETWORK, EGRESS].concat();
        for (name, meant) in [
            ("egress", "egress"),
            ("Egress", "egress"),
            ("egres", "egress"),
            ("default", "default"),
            ("defualt", "default"),
            ("deny_networks", "denyNetworks"),
            ("memory", "memoryMb"),
            ("memory_mb", "memoryMb"),
            ("cpus", "cpu"),
            ("CPU", "cpu"),
        ] {
            assert_eq!(misplaced(name, &nested).map(|at| nested[at]), Some(meant), "{name}");
        }
        for name in ["ip", "c", "gpus", "tags", "nesting", "region", "labels", ""] {
            assert_eq!(misplaced(name, &nested), None, "{name}");
        }
        assert_eq!(misplaced("b", &["a", "b", "b"]), Some(1), "the first of several");
    }

    #[test]
    fn other_spellings_are_few_edits_away() {
        for (name, meant) in [
            ("Network", Some("network")),
            ("idle_timeout_ms", Some("idleTimeoutMs")),
            ("IMAGE", Some("image")),
            ("imgae", Some("image")),
            ("ENV", Some("env")),
            ("envs", None),
            ("timeout", None),
            ("netwroks", None),
        ] {
            assert_eq!(respelled(name, CREATE).map(|at| CREATE[at]), meant, "{name}");
        }
    }

    #[test]
    fn other_names_are_no_typing_errors() {
        for name in ["", "x", "unknown", "colour", "nesting", "futureField", "__", "ünïcode"] {
            assert_eq!(mistyped(name, CREATE), None, "{name}");
            assert!(nearest_name(name, CREATE).is_some(), "{name}");
        }
        assert_eq!((mistyped("a", &[]), nearest_name("a", &[])), (None, None));
        let long = "default".repeat(100_000);
        assert_eq!(mistyped(&long, EGRESS), None);
        assert!(nearest_name(&long, EGRESS).is_some());
    }

    /// An edit of the text, at a place and with a letter.
    #[derive(Debug, Clone)]
    enum Edit {
        Insert(prop::sample::Index, char),
        Remove(prop::sample::Index),
        Replace(prop::sample::Index, char),
        Swap(prop::sample::Index),
    }

    fn edits() -> impl Strategy<Value = Edit> {
        let at = any::<prop::sample::Index>;
        proptest::prelude::prop_oneof![
            (at(), any::<char>()).prop_map(|(at, c)| Edit::Insert(at, c)),
            at().prop_map(Edit::Remove),
            (at(), any::<char>()).prop_map(|(at, c)| Edit::Replace(at, c)),
            at().prop_map(Edit::Swap),
        ]
    }

    /// Every known name is long enough to be edited twice.
    fn edited(name: &str, edit: &Edit) -> String {
        let mut chars: Vec<char> = name.chars().collect();
        match edit {
            Edit::Insert(at, c) => chars.insert(at.index(chars.len() + 1), *c),
            Edit::Remove(at) => {
                chars.remove(at.index(chars.len()));
            }
            Edit::Replace(at, c) => {
                let at = at.index(chars.len());
                chars[at] = *c;
            }
            Edit::Swap(at) => {
                let at = at.index(chars.len() - 1);
                chars.swap(at, at + 1);
            }
        }
        chars.into_iter().collect()
    }

    fn known_names() -> impl Strategy<Value = &'static str> {
        prop::sample::select([RESOURCES, EGRESS, CREATE].concat())
    }

    proptest! {
        #[test]
        fn every_single_edit_is_noticed(name in known_names(), edit in edits()) {
            let name = edited(name, &edit);
            prop_assert!([RESOURCES, EGRESS, CREATE].iter().any(|known| mistyped(&name, known).is_some()), "{name}");
        }

        /// Letters that no known name has, so each costs an edit.
        #[test]
        fn two_foreign_letters_are_a_typing_error_and_three_are_none(
            known in known_names(),
            at in prop::collection::vec(any::<prop::sample::Index>(), 3),
        ) {
            let all = [known];
            let mut name = known.to_owned();
            for (count, at) in at.iter().enumerate() {
                name.insert(at.index(name.len() + 1), '7');
                prop_assert_eq!(mistyped(&name, &all), (count < 2).then_some(known), "{}", name);
            }
        }

        #[test]
        fn case_and_separators_make_no_difference(
            known in known_names(),
            upper in any::<u32>(),
            separators in any::<u32>(),
            separator in prop::sample::select(vec!['_', '-', ' ']),
        ) {
            let mut name = String::new();
            for (at, c) in known.chars().enumerate() {
                if separators >> at & 1 == 1 {
                    name.push(separator);
                }
                name.push(if upper >> at & 1 == 1 { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() });
            }
            prop_assert_eq!(mistyped(&name, &[known]), Some(known), "{}", name);
        }

        #[test]
        fn any_name_has_a_nearest_one(name in any::<String>()) {
            let nearest = nearest_name(&name, CREATE);
            prop_assert!(nearest.is_some_and(|nearest| CREATE.contains(&nearest)));
            prop_assert!(mistyped(&name, CREATE).is_none_or(|meant| Some(meant) == nearest));
        }
    }
}
