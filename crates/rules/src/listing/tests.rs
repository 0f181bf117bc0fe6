use proptest::prelude::*;

use super::*;

fn read(pairs: &[(&str, &str)]) -> Result<ListQuery, QueryError> {
    list_query(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
}

fn message(pairs: &[(&str, &str)]) -> String {
    read(pairs).unwrap_err().to_string()
}

#[test]
fn an_empty_query_is_the_first_page() {
    let expected = ListQuery { state: None, image: None, metadata: BTreeMap::new(), limit: 20, offset: 0 };
    assert_eq!(read(&[]), Ok(expected));
}

#[test]
fn all_fields_are_read() {
    let query = read(&[
        ("state", "paused"),
        ("image", "node:22"),
        ("limit", "100"),
        ("offset", "9007199254740991"),
        ("metadata.userId", "user 123"),
        ("metadata.a.b", ""),
    ])
    .unwrap();
    assert_eq!((query.state, query.image.as_deref()), (Some(SandboxState::Paused), Some("node:22")));
    assert_eq!((query.limit, query.offset), (100, 9_007_199_254_740_991));
    let metadata = [("userId".to_owned(), "user 123".to_owned()), ("a.b".to_owned(), String::new())];
    assert_eq!(query.metadata, metadata.into());
}

#[test]
fn state_filters_are_validated() {
    for state in [SandboxState::Running, SandboxState::Paused, SandboxState::Terminated] {
        assert_eq!(read(&[("state", &state.to_string())]).unwrap().state, Some(state));
    }
    for state in ["creating", "Running", "", "running,paused", "running "] {
        let expected = format!("state is '{state}'; allowed: 'running', 'paused' or 'terminated'");
        assert_eq!(message(&[("state", state)]), expected);
    }
}

#[test]
fn numbers_are_whole_and_in_their_range() {
    for limit in
        ["0", "101", "-1", "+5", " 5", "5 ", "5.0", "1e1", "", "x", "0x10", "99999999999999999999", "٣"]
    {
        let expected = format!("limit is '{limit}'; allowed: a whole number from 1 to 100");
        assert_eq!(message(&[("limit", limit)]), expected);
    }
    for offset in ["-1", "-0", "9007199254740992", "18446744073709551616", "", "1.5"] {
        let expected = format!("offset is '{offset}'; allowed: a whole number from 0 to 9007199254740991");
        assert_eq!(message(&[("offset", offset)]), expected);
    }
    assert_eq!(read(&[("limit", "1"), ("offset", "0")]).map(|query| (query.limit, query.offset)), Ok((1, 0)));
}

#[test]
fn a_parameter_is_given_once() {
    assert_eq!(
        message(&[("limit", "1"), ("limit", "2")]),
        "limit is given twice, '1' and '2'; allowed: one value"
    );
    for name in ["state", "image", "limit", "offset", "metadata.userId"] {
        let error = read(&[(name, "running"), (name, "running")]).unwrap_err();
        assert_eq!((error.field.as_str(), error.allowed.as_str()), (name, "one value"));
    }
}

#[test]
fn a_metadata_filter_has_a_key_and_no_more_keys_than_a_sandbox() {
    assert_eq!(
        message(&[("metadata.", "x")]),
        "name of a parameter is 'metadata.'; allowed: a key after the dot, such as 'metadata.userId'"
    );
    let names: Vec<String> = (0..21).map(|index| format!("metadata.k{index}")).collect();
    let pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "v")).collect();
    assert_eq!(read(&pairs[..20]).unwrap().metadata.len(), 20);
    assert_eq!(
        message(&pairs),
        "metadata is a filter of more than 20 keys; allowed: at most 20 keys, as many as a sandbox has"
    );
    // Past the bound a repetition is still called one.
    let repeated: Vec<_> = pairs[..20].iter().copied().chain([pairs[0]]).collect();
    assert_eq!(read(&repeated).unwrap_err().field, "metadata.k0");
}

#[test]
fn unknown_parameters_are_ignored() {
    let query = read(&[("page", "2"), ("page", "3"), ("metadata", "x"), ("Limit", "0"), ("", "")]);
    assert_eq!(query, read(&[]));
}

#[test]
fn what_came_is_shown_cut_and_escaped() {
    let long = "x".repeat(10_000);
    for pairs in [
        [("state", "\r\n\x1b[31m"), ("image", "a")],
        [("limit", long.as_str()), ("image", "a")],
        [("image", long.as_str()), ("image", "\0")],
    ] {
        let message = message(&pairs);
        assert!(message.len() < 250 && !message.contains(char::is_control), "{message:?}");
    }
    let name = format!("metadata.{long}\n");
    assert!(message(&[(name.as_str(), "a"), (name.as_str(), "b")]).len() < 250);
}

proptest! {
    #[test]
    fn numbers_in_range_are_read_and_no_others(limit in 0u64..400, offset: u64) {
        let query = read(&[("limit", &limit.to_string()), ("offset", &offset.to_string())]);
        let fits = (1..=100).contains(&limit) && offset < 1 << 53;
        prop_assert_eq!(query.map(|query| (u64::from(query.limit), query.offset)).ok(), fits.then_some((limit, offset)));
    }

    #[test]
    fn any_query_is_read_or_refused(
        pairs in prop::collection::vec(("(state|image|limit|offset|metadata\\.\\PC{0,3}|\\PC{0,8})", "(running|[0-9]{1,4}|.{0,9})"), 0..8)
    ) {
        if let Ok(query) = list_query(pairs) {
            prop_assert!((1..=100).contains(&query.limit) && query.offset < 1 << 53);
            prop_assert!(!query.metadata.contains_key(""));
        }
    }
}
