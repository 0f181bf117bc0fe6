use super::*;

fn census(items: &[(&str, &str)]) -> Census {
    items.iter().map(|(kind, name)| (((*kind).to_owned(), (*name).to_owned()), String::new())).collect()
}

#[test]
fn new_resources_are_found_and_removed_ones_are_not() {
    let before = parse("link\tlo\nlink\teth0\n");
    assert_eq!(new_since(&before, &census(&[("link", "lo"), ("link", "veth1")])), ["link veth1"]);
    assert!(new_since(&before, &census(&[("link", "lo")])).is_empty());
}

#[test]
fn a_saved_census_finds_later_resources() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("census");
    save(&file).unwrap();
    let before = parse(&std::fs::read_to_string(&file).unwrap());
    let created = tempfile::Builder::new().prefix("sandboxd-census-").tempdir().unwrap();
    let name = created.path().display().to_string();
    let found = new_since(&before, &take().unwrap());
    assert!(found.iter().any(|line| line.ends_with(&name)), "{found:?}");
    drop(created);
    let found = new_since(&before, &take().unwrap());
    assert!(!found.iter().any(|line| line.ends_with(&name)), "{found:?}");
}
