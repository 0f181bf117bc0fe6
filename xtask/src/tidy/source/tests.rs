use super::*;

fn test_lines_of(text: &str) -> Vec<usize> {
    let rust = Rust::new("crates/x/src/lib.rs", text);
    (1..=rust.lines.len()).filter(|line| rust.is_test(*line)).collect()
}

#[test]
fn test_modules_and_functions_are_found() {
    let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn x() {}\n}\nfn b() {}\n";
    assert_eq!(test_lines_of(text), [2, 3, 4, 5]);
    assert_eq!(test_lines_of("#[tokio::test]\nasync fn a() {\n}\nfn b() {}"), [1, 2, 3]);
    assert_eq!(test_lines_of("#[cfg(test)]\n#[path = \"x.rs\"]\nmod tests;\nfn b() {}"), [1, 2, 3]);
    assert_eq!(test_lines_of("#[cfg(test)]\nuse a::{b, c};\nfn b() {}"), [1, 2]);
    assert_eq!(test_lines_of("#![cfg(test)]\nfn b() {}"), [1, 2]);
}

#[test]
fn other_conditions_are_not_tests() {
    assert!(test_lines_of("#[cfg(not(test))]\nfn a() {}").is_empty());
    assert!(test_lines_of("#[cfg(any(test, unix))]\nfn a() {}").is_empty());
    assert!(test_lines_of("#[derive(Debug)]\nstruct A;").is_empty());
}

#[test]
fn test_files_are_recognized_by_their_path() {
    assert!(is_test_file("crates/x/src/foo/tests.rs"));
    assert!(is_test_file("e2e/tests/readme.rs"));
    assert!(!is_test_file("crates/x/src/tests_of_time.rs"));
    assert!(!is_test_file("tests.rs.rs"));
}

#[test]
fn an_attribute_covers_its_statement() {
    let cases = [
        ("#[a] fn x<A, B>() { y; } z", "}"),
        ("#[a] let x = y::<A, B>(|| { 1 }); z", ";"),
        ("#[a] pub const fn x() {} z", "}"),
        ("#[a] const X: [u8; 2] = [1, 2]; z", ";"),
        ("match x { #[a] A => { b } C => d, }", "}"),
        ("match x { #[a] A => b(c, d), E => f }", ","),
        ("{ #[a] x.y() }", ")"),
    ];
    for (text, last) in cases {
        let rust = Rust::new("x.rs", text);
        let attribute = attributes(&rust.code)[0];
        let end = attributed_end(&rust.code, &attribute);
        assert_eq!(rust.code[end].text, last, "{text}");
        assert!(end + 1 < rust.code.len() || last != ";", "{text}");
    }
}

#[test]
fn crates_are_recognized_by_their_folder() {
    assert_eq!(crate_folder("crates/engine/src/lib.rs"), "engine");
    assert_eq!(crate_folder("bench/src/main.rs"), "bench");
    assert_eq!(crate_folder("README.md"), "");
}
