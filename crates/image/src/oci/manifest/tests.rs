use serde_json::json;

use super::*;

fn digest(c: char) -> String {
    format!("sha256:{}", c.to_string().repeat(64))
}

fn entry(c: char, os: &str, arch: &str, variant: Option<&str>) -> serde_json::Value {
    let mut platform = json!({"os": os, "architecture": arch});
    if let Some(variant) = variant {
        platform["variant"] = json!(variant);
    }
    json!({"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(c), "size": 1, "platform": platform})
}

fn parse_json(value: &serde_json::Value) -> Result<Chosen, Fault> {
    parse(value.to_string().as_bytes())
}

#[test]
fn the_entry_for_this_machine_is_chosen() {
    let other = if architecture() == "amd64" { "arm64" } else { "amd64" };
    let mine = architecture();
    let index = |entries: Vec<serde_json::Value>| json!({"schemaVersion": 2, "manifests": entries});
    let chosen = parse_json(&index(vec![
        entry('a', "windows", mine, None),
        entry('b', "linux", other, None),
        entry('c', "linux", mine, Some("v3")),
        entry('d', "linux", mine, None),
        entry('e', "unknown", "unknown", None),
    ]));
    assert_eq!(chosen.unwrap(), Chosen::Next(digest('d')));
    let chosen = parse_json(&index(vec![
        entry('c', "linux", mine, Some("v9")),
        entry('d', "linux", mine, Some("v8")),
    ]));
    assert_eq!(chosen.unwrap(), Chosen::Next(digest('d')));
    let none = parse_json(&index(vec![entry('b', "linux", other, None)])).unwrap_err();
    assert!(none.to_string().contains(&format!("it has linux/{other}")), "{none}");
}

#[test]
fn manifests_of_other_forms_are_refused() {
    let layer =
        |kind: &str, digest: &str, size: i64| json!({"mediaType": kind, "digest": digest, "size": size});
    let manifest = |layers: Vec<serde_json::Value>| json!({"schemaVersion": 2, "config": layer("application/vnd.oci.image.config.v1+json", &digest('c'), 1), "layers": layers});
    let tar = "application/vnd.oci.image.layer.v1.tar+gzip";
    assert!(parse_json(&manifest(vec![layer(tar, &digest('a'), 1)])).is_ok());
    for (value, expected) in [
        (json!({"schemaVersion": 1}), "cannot be read"),
        (manifest(vec![layer("application/wasm", &digest('a'), 1)]), "'application/wasm'"),
        (manifest(vec![layer(&format!("{tar}+encrypted"), &digest('a'), 1)]), "encrypted"),
        (manifest(vec![layer(tar, "sha256:../../etc", 1)]), "64 hexadecimal"),
        (manifest(vec![layer(tar, &format!("sha512:{}", "a".repeat(128)), 1)]), "64 hexadecimal"),
        (manifest(vec![layer(tar, &digest('a'), -1)]), "negative"),
        (manifest(vec![layer(tar, &digest('a'), 1); 128]), "the 127 layers allowed"),
    ] {
        let fault = parse_json(&value).expect_err(expected);
        assert!(fault.to_string().contains(expected), "{fault}");
    }
}

/// What a hostile registry makes of 4 MiB takes little more memory than the text.
#[test]
fn bombs_take_a_bounded_multiple_of_their_size() {
    let size = usize::try_from(TEXT_BYTES).unwrap();
    let list = |entry: &str, fields: &str| {
        let entries = vec![entry; (size - fields.len()) / (entry.len() + 1)].join(",");
        fields.replacen("LIST", &entries, 1)
    };
    let empty = r#"{"mediaType":"","digest":"","size":0}"#;
    let config = format!(r#"{{"config":{empty},"layers":[LIST]}}"#);
    let bombs = [
        ("layers", list(empty, &config)),
        ("variants", list(r#"{"digest":""}"#, r#"{"manifests":[LIST]}"#)),
        ("configured layers", list(r#""""#, r#"{"rootfs":{"diff_ids":[LIST]}}"#)),
        ("entries", list(r#""""#, r#"{"config":{"Env":[LIST]},"rootfs":{"diff_ids":[]}}"#)),
        ("read", list("0", r#"{"annotations":[LIST]}"#)),
        ("read", list("{}", r#"{"manifests":[{"digest":"","annotations":[LIST]}]"#)),
        ("read", "[".repeat(size)),
        ("read", format!("\"{}", "\\u0041".repeat(size / 6))),
    ];
    for (reason, bomb) in bombs {
        let mut faults = Vec::new();
        let allocated = allocation_counter::measure(|| {
            faults.extend(parse(bomb.as_bytes()).err());
            faults.extend(parse_config(bomb.as_bytes()).err());
        });
        assert!(faults.iter().any(|fault| fault.to_string().contains(reason)), "{reason}: {faults:?}");
        assert!(allocated.bytes_max <= 2 * TEXT_BYTES, "{reason}: {} bytes", allocated.bytes_max);
    }
}

#[test]
fn a_configuration_gives_environment_directory_and_user() {
    let text = json!({
        "architecture": architecture(), "os": "linux", "created": "not even a date",
        "config": {"Env": ["PATH=/bin", "EMPTY=", "=x", "NOVALUE", "A=b=c", "N=\0"], "WorkingDir": "/srv", "User": "app:app", "Cmd": ["x"]},
        "rootfs": {"type": "layers", "diff_ids": [digest('a')]}
    });
    let config = parse_config(text.to_string().as_bytes()).unwrap();
    let pairs = [("PATH", "/bin"), ("EMPTY", ""), ("A", "b=c")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(config.config.env, pairs);
    assert_eq!(config.config.workdir.as_deref(), Some("/srv"));
    assert_eq!(config.config.user.as_deref(), Some("app:app"));
    assert_eq!(config.diff_ids, ["a".repeat(64)]);
    let refused = |key: &str, value: serde_json::Value| {
        let mut text = text.clone();
        text[key] = value;
        parse_config(text.to_string().as_bytes()).err().unwrap().to_string()
    };
    assert!(refused("architecture", json!("riscv64")).contains("riscv64"));
    assert!(refused("os", json!("windows")).contains("windows"));
    assert!(refused("rootfs", json!({"diff_ids": ["sha256:.."]})).contains("64 hexadecimal"));
    assert!(refused("config", json!({"Env": vec!["A=1"; 1_001]})).contains("1000 entries"));
}
