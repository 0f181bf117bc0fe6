use proptest::prelude::*;

use super::*;

#[test]
fn a_key_is_its_prefix_its_secret_and_its_checksum() {
    let key = KeyText::format([0; 32]);
    assert_eq!(key.as_str().len(), 63);
    assert!(key.as_str().starts_with(&format!("sbk_{}", "0".repeat(52))));
    assert_eq!(KeyText::parse(key.as_str()), Ok(key));
}

#[test]
fn malformed_keys_are_distinguished() {
    let key = KeyText::format([7; 32]);
    let text = key.as_str();
    let cut = &text[..62];
    let long = format!("{text}0");
    let upper = format!("sbk_{}", text[4..].to_uppercase());
    let not_ascii = format!("{}é", &text[..61]);
    for (text, fault) in [
        ("", BadKey::Prefix),
        ("sb_abcdefgh", BadKey::Prefix),
        ("Bearer sbk_", BadKey::Prefix),
        ("sbk_", BadKey::Length { got: 4 }),
        (cut, BadKey::Length { got: 62 }),
        (&long, BadKey::Length { got: 64 }),
        (&upper, BadKey::Character),
        (&not_ascii, BadKey::Character),
        (&text.replace('s', "S"), BadKey::Prefix),
    ] {
        assert_eq!(KeyText::parse(text), Err(fault), "{text}");
    }
    for fault in [BadKey::Prefix, BadKey::Length { got: 64 }, BadKey::Character, BadKey::Checksum] {
        assert!(!fault.to_string().contains(&text[4..20]));
    }
}

#[test]
fn a_key_does_not_print_itself() {
    let key = KeyText::format([9; 32]);
    assert_eq!(format!("{key:?}"), format!("{}...", &key.as_str()[..8]));
    assert_eq!(key.hint(), &key.as_str()[..8]);
}

proptest! {
    #[test]
    fn every_secret_has_a_key_of_its_own(a: [u8; 32], b: [u8; 32]) {
        let (first, second) = (KeyText::format(a), KeyText::format(b));
        prop_assert_eq!(KeyText::parse(first.as_str()), Ok(first.clone()));
        prop_assert_eq!(a == b, first == second);
    }

    #[test]
    fn one_wrong_character_or_two_swapped_are_found(secret: [u8; 32], at in 4usize..63, by in 1usize..32, next in 4usize..62) {
        let key = KeyText::format(secret);
        let mut wrong: Vec<u8> = key.as_str().bytes().collect();
        let place = api::ALPHABET.iter().position(|byte| *byte == wrong[at]).unwrap();
        wrong[at] = api::ALPHABET[(place + by) % 32];
        prop_assert_eq!(KeyText::parse(std::str::from_utf8(&wrong).unwrap()), Err(BadKey::Checksum));

        let mut swapped: Vec<u8> = key.as_str().bytes().collect();
        swapped.swap(next, next + 1);
        let same = swapped[next] == swapped[next + 1];
        prop_assert_eq!(KeyText::parse(std::str::from_utf8(&swapped).unwrap()).is_ok(), same);
    }

    #[test]
    fn no_text_makes_it_panic(text in ".{0,80}", tail in "\\PC{0,60}") {
        let _ = KeyText::parse(&text);
        let text = format!("sbk_{tail}");
        prop_assert!(KeyText::parse(&text).is_err());
    }
}

#[test]
fn scopes_are_read_and_written() {
    for (text, written) in [
        ("read", "read"),
        ("write,read", "read,write"),
        (" read , execute ", "read,execute"),
        ("read,read", "read"),
        ("admin,write,execute,read", "read,execute,write,admin"),
    ] {
        let scopes: Scopes = text.parse().unwrap();
        assert_eq!(scopes.to_string(), written);
        assert_eq!(written.parse(), Ok(scopes));
    }
    assert_eq!(Scopes::ALL.to_string(), "read,execute,write,admin");
    for text in ["", ",", "read,", "Read", "all", "read execute", "read;write"] {
        assert!(text.parse::<Scopes>().is_err(), "{text}");
    }
    assert_eq!(
        "reed".parse::<Scopes>().unwrap_err().to_string(),
        "scopes are 'reed'; allowed: one or more of read, execute, write, admin, separated by commas; did you mean 'read'?"
    );
    for (text, meant) in
        [("read,exec", Some("execute")), ("Write", Some("write")), ("owner", None), ("", None)]
    {
        let error = text.parse::<Scopes>().unwrap_err().to_string();
        let hint = meant.map(|meant| format!("did you mean '{meant}'?"));
        assert_eq!(hint.is_some(), error.contains("did you mean"), "{error}");
        assert!(hint.is_none_or(|hint| error.ends_with(&hint)), "{error}");
    }
}

#[test]
fn a_scope_allows_itself_and_admin_allows_all() {
    for has in Scope::ALL {
        let scopes: Scopes = has.as_str().parse().unwrap();
        for needed in Scope::ALL {
            assert_eq!(scopes.allows(needed), has == needed || has == Scope::Admin, "{has} {needed}");
        }
        assert_eq!(scopes.iter().collect::<Vec<_>>(), [has]);
        assert!(Scopes::ALL.allows(has));
    }
    let two: Scopes = "read,execute".parse().unwrap();
    assert!(two.allows(Scope::Read) && two.allows(Scope::Execute));
    assert!(!two.allows(Scope::Write) && !two.allows(Scope::Admin));
}

#[test]
fn the_form_of_e2b_clients_is_the_same_key() {
    for secret in [[0; 32], [0xa5; 32], std::array::from_fn(|n| n as u8 * 7 + 1)] {
        let key = KeyText::format(secret);
        let text = key.e2b_text();
        assert!(text.len() == 68 && text.starts_with("e2b_"), "{text}");
        assert!(KeyText::parse_any(&text) == Ok(key.clone()));
        assert!(KeyText::parse_any(key.as_str()) == Ok(key.clone()));
        assert!(KeyText::parse(&text).is_err());
        assert!(KeyText::is_e2b_form(&text) && !KeyText::is_e2b_form(key.as_str()));
    }
    for wrong in [
        "e2b_",
        "e2b_0g",
        &format!("e2b_{}", "0".repeat(63)),
        &format!("e2b_{}", "G".repeat(64)),
        &format!("e2b_{}é", "0".repeat(62)),
    ] {
        assert!(KeyText::parse_any(wrong).is_err(), "{wrong}");
    }
}
