use super::*;

fn census(items: &[(&str, &str)]) -> Census {
    items.iter().map(|(kind, name)| (((*kind).to_owned(), (*name).to_owned()), String::new())).collect()
}

#[test]
fn what_is_new_is_found_and_what_is_gone_is_not() {
    let before = parse("link\tlo\nlink\teth0\n");
    assert_eq!(new_since(&before, &census(&[("link", "lo"), ("link", "veth1")])), ["link veth1"]);
    assert!(new_since(&before, &census(&[("link", "lo")])).is_empty());
}

#[test]
fn a_saved_census_finds_what_is_made_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("census");
    save(&file).unwrap();
    let before = parse(&std::fs::read_to_string(&file).unwrap());
    let made = tempfile::Builder::new().prefix("sandboxd-census-").tempdir().unwrap();
    let name = made.path().display().to_string();
    let found = new_since(&before, &take().unwrap());
    assert!(found.iter().any(|line| line.ends_with(&name)), "{found:?}");
    drop(made);
    let found = new_since(&before, &take().unwrap());
    assert!(!found.iter().any(|line| line.ends_with(&name)), "{found:?}");
}
