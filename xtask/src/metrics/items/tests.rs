use super::*;

fn names(text: &str, find: impl Fn(&Rust<'_>) -> Vec<String>) -> Vec<String> {
    find(&Rust::new("crates/x/src/a.rs", text))
}

fn undocumented(text: &str) -> Vec<String> {
    names(text, |file| {
        public_items(file).iter().filter(|i| !i.documented).map(|i| i.name.to_owned()).collect()
    })
}

fn with_bool(text: &str) -> Vec<String> {
    names(text, |file| bool_functions(file).iter().map(|d| d.name.to_owned()).collect())
}

#[test]
fn every_kind_of_public_item_is_counted_once() {
    let text = "pub fn a() {}\npub const fn b() {}\npub unsafe extern \"C\" fn c() {}\npub const D: u8 = 1;\n\
        pub static mut E: u8 = 1;\npub struct F;\npub enum G {}\npub trait H {}\npub type I = u8;\npub mod j;\n\
        pub async fn k() {}\npub union L { m: u8 }\n";
    assert_eq!(undocumented(text), ["a", "b", "c", "D", "E", "F", "G", "H", "I", "j", "k", "L"]);
}

#[test]
fn what_other_crates_cannot_use_is_not_counted() {
    let text = "fn a() {}\npub(crate) fn b() {}\npub(super) struct C;\npub use d::e;\npub extern crate f;\n\
        struct G(pub u8, pub h::I);\n#[doc(hidden)]\npub fn j() {}\n";
    let file = Rust::new("crates/x/src/a.rs", text);
    assert!(public_items(&file).is_empty(), "{:?}", public_items(&file));
}

#[test]
fn fields_and_modules_have_kinds_of_their_own() {
    let text = "pub mod a;\npub struct B {\n    pub c: u8,\n    pub union: u8,\n    d: u8,\n}\n";
    let file = Rust::new("crates/x/src/a.rs", text);
    let kinds: Vec<_> = public_items(&file).iter().map(|i| (i.name, i.kind, i.line)).collect();
    let expected = [
        ("a", PublicKind::Module, 1),
        ("B", PublicKind::Item, 2),
        ("c", PublicKind::Field, 3),
        ("union", PublicKind::Field, 4),
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn a_doc_comment_documents_the_next_item_only() {
    let text = "//! Not of a.\npub fn a() {}\n/// Of b.\n#[inline]\npub fn b() {}\npub fn c() {}\n\
        #[must_use]\n/// Of d.\n#[inline]\npub fn d() {}\n#[doc = \"Of e.\"]\npub fn e() {}\n\
        // Not of f.\npub fn f() {}\n//// Not of g.\npub fn g() {}\n/** Of h. */\npub fn h() {}\n";
    assert_eq!(undocumented(text), ["a", "c", "f", "g"]);
}

#[test]
fn public_in_a_string_or_a_comment_is_text() {
    assert!(undocumented("const A: &str = \"pub fn a() {}\"; // pub fn b() {}").is_empty());
}

#[test]
fn a_bool_parameter_is_found_in_any_place() {
    let text = "fn a(b: bool) {}\nfn c<F: Fn(u8) -> bool>(f: F, d: &bool,) {}\nimpl A { fn e(&self, f: &'a mut bool, g: u8) {} }\n\
        trait H { fn i(j: bool); }\n";
    assert_eq!(with_bool(text), ["a", "c", "e", "i"]);
}

#[test]
fn other_uses_of_bool_are_not_parameters() {
    let text = "fn a() -> bool {}\nfn b(c: Option<bool>) {}\nfn d(e: fn(bool) -> bool, f: Map<u8, bool>) {}\n\
        fn g(h: impl Fn(u8) -> bool) {}\nfn i(j: std::bool) {}\ntype K = fn(bool);\nstruct L { m: bool }\n";
    assert!(with_bool(text).is_empty());
}
