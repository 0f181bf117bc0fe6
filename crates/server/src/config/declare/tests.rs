//! A table with every kind of declaration, and what derives from it.

use super::*;

table! {
    /// An example of
    /// two lines.
    pub struct Example {
        #[optional_in(OwnExample)] {
            /// A number.
            number: u32 = 5, "count" in 1..=9;
            /// An amount.
            amount: u64 = 7, "MB" in ANY_AMOUNT;
        }
        /// A factor.
        factor: f64 = 1.5, "factor" in 1..=2;
        /// A file.
        file: PathBuf = "a/b".into(), "path", env "EXAMPLE_FILE";
        /// Numbers by name.
        own: BTreeMap<String, OwnExample>, "tables";
        /// Counts by name.
        counts: BTreeMap<String, u32>, "count" in 0..=3, each "A count.";
        inner: InnerExample;
        ..other: Vec<String>, "list of words", each "Words.";
    }
}

table! {
    /// A table in a table.
    pub struct InnerExample {
        /// A file that may be absent.
        file: Option<PathBuf>, "path";
    }
}

fn table_at<'a>(table: &'a DeclaredTable, key: &str) -> &'a DeclaredTable {
    match &table.fixed(key).unwrap().shape {
        Shape::Table(inner) => inner,
        _ => panic!("{key} is no table"),
    }
}

#[test]
fn a_declaration_is_what_the_reference_prints() {
    let example = Example::declaration();
    assert_eq!(example.about, "An example of two lines.");
    let keys: Vec<_> = example.keys.iter().map(|key| (key.name, key.takes(), key.about)).collect();
    let row = |name, takes: &str, about| (name, takes.to_owned(), about);
    let expected = [
        row("number", "count, 1 to 9", "A number."),
        row("amount", "MB", "An amount."),
        row("factor", "factor, 1 to 2", "A factor."),
        row("file", "path", "A file."),
        row("own", "tables", "Numbers by name."),
        // Tables of the reference describe themselves.
        row("counts", "", ""),
        row("inner", "", ""),
    ];
    assert_eq!(keys, expected);
    assert_eq!(example.fixed("file").unwrap().variable, Some("EXAMPLE_FILE"));
    let counts = table_at(&example, "counts");
    let count = counts.find("any").unwrap();
    assert_eq!(
        (counts.about, count.about, &*count.takes()),
        ("Counts by name.", "A count.", "count, 0 to 3")
    );
    let other = example.find("any").unwrap();
    assert_eq!((other.name, other.about, &*other.takes()), (CHOSEN_NAME, "Words.", "list of words"));
    // Without words, because those of the table of all apply.
    let own = table_at(&example, "own").find("any").unwrap();
    assert!(matches!(&own.shape, Shape::Table(table) if table.keys.iter().all(|key| key.takes().is_empty())));
}

#[test]
fn numbers_of_all_tables_have_bounds() {
    let own = OwnExample { number: Some(0), amount: Some(1 << 41) };
    let example = Example {
        number: 10,
        factor: 2.5,
        own: [("acme".to_owned(), own), ("other".to_owned(), OwnExample::default())].into(),
        counts: [("a".to_owned(), 3), ("b".to_owned(), 4)].into(),
        ..Example::default()
    };
    let mut checks = Vec::new();
    example.check_bounds("example", None, &mut checks);
    let errors: Vec<_> = checks.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
    let expected = [
        "example.number is 10; it must be 1 to 9",
        "example.factor is 2.5; it must be a number, 1 to 2",
        "example.own.\"acme\".number is 0; it must be 1 to 9",
        "example.own.\"acme\".amount is 2199023255552; it must be 0 to 1099511627776",
        "example.counts.\"b\" is 4; it must be 0 to 3",
    ];
    assert_eq!(errors, expected);
    let mut checks = Vec::new();
    Example::default().check_bounds("", None, &mut checks);
    assert!(checks.iter().all(Result::is_ok));
}

#[test]
fn values_of_one_name_override_those_of_all() {
    let all = Example { amount: 8, ..Example::default() };
    let own = OwnExample { number: Some(6), ..OwnExample::default() }.over(&all);
    assert_eq!((own.number, own.amount), (6, 8));
}

#[test]
fn relative_paths_are_resolved_in_all_tables() {
    let inner = InnerExample { file: Some("../c".into()) };
    let mut example = Example { inner, ..Example::default() };
    example.resolve(Path::new("/etc"));
    assert_eq!(
        (&*example.file, example.inner.file.as_deref()),
        (Path::new("/etc/a/b"), Some(Path::new("/etc/../c")))
    );
    let mut none = PathBuf::new();
    none.resolve(Path::new("/etc"));
    assert_eq!(none, PathBuf::new());
}
