use std::collections::BTreeMap;

use api::{
    CreateEgress, CreateIngress, CreateNetwork, CreateResources, EgressDefault, IngressPolicy, NetworkPolicy,
};

use super::*;

fn given(change: impl FnOnce(&mut CreateBody)) -> Result<SandboxConfig, ConfigError> {
    let mut input = CreateBody { image: "ubuntu:24.04".into(), ..CreateBody::default() };
    change(&mut input);
    sandbox_config(input, &ConfigRules::default())
}

fn resources(body: &mut CreateBody) -> &mut CreateResources {
    body.resources.get_or_insert_default()
}

fn network(body: &mut CreateBody) -> &mut CreateNetwork {
    body.network.get_or_insert_default()
}

fn egress(body: &mut CreateBody) -> &mut CreateEgress {
    network(body).egress.get_or_insert_default()
}

fn refusal(change: impl FnOnce(&mut CreateBody)) -> String {
    given(change).unwrap_err().to_string()
}

fn map(entries: impl IntoIterator<Item = (String, String)>) -> Option<BTreeMap<String, String>> {
    Some(entries.into_iter().collect())
}

fn one(name: &str, value: &str) -> Option<BTreeMap<String, String>> {
    map([(name.to_owned(), value.to_owned())])
}

#[test]
fn an_image_alone_gets_every_default() {
    let expected = SandboxConfig {
        image: "ubuntu:24.04".into(),
        resources: Resources { cpu: 2, memory_mb: 4096, disk_mb: 10_240 },
        env: BTreeMap::new(),
        workdir: "/workspace".into(),
        timeout_ms: 300_000,
        idle_timeout_ms: 120_000,
        on_timeout: api::OnTimeout::Terminate,
        processes_at_timeout: api::ProcessesAtTimeout::Kept,
        auto_resume: true,
        metadata: BTreeMap::new(),
        network: NetworkPolicy::default(),
        isolation: api::Isolation::Container,
        default_user: false,
        extensions: BTreeMap::new(),
    };
    assert_eq!(expected.network.egress.default, EgressDefault::Allow);
    assert_eq!(given(|_| {}), Ok(expected));
}

#[test]
fn all_fields_are_read() {
    let config = given(|input| {
        resources(input).cpu = Some(8);
        resources(input).memory_mb = Some(16_384);
        resources(input).disk_mb = Some(5120);
        input.env = one("NAME", "a=b");
        input.workdir = Some("/srv/app".into());
        input.timeout_ms = Some(1);
        input.idle_timeout_ms = Some(0);
        input.metadata = one("userId", "7");
        egress(input).allow = Some(vec!["Example.com".into(), "*.example.org".into()]);
        egress(input).default = Some(EgressDefault::Deny);
    })
    .unwrap();
    assert_eq!(config.resources, Resources { cpu: 8, memory_mb: 16_384, disk_mb: 5120 });
    assert_eq!((Some(config.env), Some(config.metadata)), (one("NAME", "a=b"), one("userId", "7")));
    assert_eq!((config.workdir.as_str(), config.timeout_ms, config.idle_timeout_ms), ("/srv/app", 1, 0));
    assert_eq!(config.network.egress.allow, ["Example.com", "*.example.org"]);
    assert_eq!(config.network.egress.default, EgressDefault::Deny);
}

#[test]
fn cpu_is_of_a_set() {
    for cpu in -1..=9 {
        let allowed = [2, 4, 8].contains(&cpu);
        assert_eq!(given(|input| resources(input).cpu = Some(cpu)).is_ok(), allowed, "{cpu}");
    }
    assert_eq!(refusal(|input| resources(input).cpu = Some(3)), "resources.cpu is 3; allowed: 2, 4 or 8");
}

#[test]
fn ranges_hold_at_both_ends() {
    type Set = fn(&mut CreateBody, Integer);
    let fields: [(&str, Set, Integer, Integer); 4] = [
        ("resources.memoryMb", |input, value| resources(input).memory_mb = Some(value), 2048, 16_384),
        ("resources.diskMb", |input, value| resources(input).disk_mb = Some(value), 5120, 51_200),
        ("timeoutMs", |input, value| input.timeout_ms = Some(value), 1, 86_400_000),
        ("idleTimeoutMs", |input, value| input.idle_timeout_ms = Some(value), 0, 9_007_199_254_740_991),
    ];
    for (name, set, min, max) in fields {
        for value in [min, max] {
            assert!(given(|input| set(input, value)).is_ok(), "{name} {value}");
        }
        for value in [min - 1, max + 1, Integer::MIN, Integer::MAX, -(1 << 32), 1 << 64] {
            let message = refusal(|input| set(input, value));
            assert_eq!(message, format!("{name} is {value}; allowed: {min} to {max}"));
        }
    }
}

#[test]
fn env_takes_what_a_process_can_get() {
    assert!(given(|input| input.env = one("lower.case-and ümlaut", "")).is_ok());
    let name = "allowed: a name that is not empty and has neither '=' nor NUL";
    assert_eq!(refusal(|input| input.env = one("", "x")), format!("name of a variable in env is ''; {name}"));
    assert_eq!(
        refusal(|input| input.env = one("A=B", "x")),
        format!("name of a variable in env is 'A=B'; {name}")
    );
    assert!(refusal(|input| input.env = one("A\0", "x")).contains(r"'A\0'"));
    assert_eq!(refusal(|input| input.env = one("A", "x\0")), r"env.A is 'x\0'; allowed: text without NUL");
}

#[test]
fn env_is_bounded_in_count_entry_and_total() {
    let many = |count: usize| map((0..count).map(|i| (format!("N{i}"), String::new())));
    assert!(given(|input| input.env = many(1000)).is_ok());
    assert_eq!(
        refusal(|input| input.env = many(1001)),
        "env is 1001 variables; allowed: at most 1000 variables"
    );
    // 'A=' and the value: 131071 bytes are what Linux passes as one string.
    assert!(given(|input| input.env = one("A", &"x".repeat(131_069))).is_ok());
    let entry = refusal(|input| input.env = one("A", &"x".repeat(131_070)));
    assert!(entry.starts_with("env.A is 131072 bytes long") && entry.contains("at most 131071"), "{entry}");
    let total = |last: usize| {
        map([("A", 131_068), ("B", 131_068), ("C", last)]
            .map(|(name, size)| (name.to_owned(), "x".repeat(size))))
    };
    assert!(given(|input| input.env = total(2)).is_ok());
    let message = refusal(|input| input.env = total(3));
    assert!(message.starts_with("env is 262145 bytes long; allowed: at most 262144 bytes"), "{message}");
}

#[test]
fn workdir_is_an_absolute_path() {
    for path in ["/", "/a/b c/ü"] {
        assert!(given(|input| input.workdir = Some(path.into())).is_ok(), "{path}");
    }
    let long = format!("/{}", "x".repeat(256));
    let deep = "/x".repeat(2048);
    for path in ["", "workspace", "./x", "/a\0b", &long, &deep] {
        let message = refusal(|input| input.workdir = Some(path.into()));
        assert!(message.starts_with("workdir is '") && message.contains("an absolute path"), "{message}");
        assert!(message.len() < 250, "{message}");
    }
}

#[test]
fn metadata_is_bounded() {
    let keys = |count: usize| map((0..count).map(|i| (format!("k{i}"), "v".to_owned())));
    assert!(given(|input| input.metadata = keys(20)).is_ok());
    assert_eq!(refusal(|input| input.metadata = keys(21)), "metadata is 21 keys; allowed: at most 20 keys");
    // Characters are counted, not bytes.
    assert!(given(|input| input.metadata = one("k", &"€".repeat(256))).is_ok());
    assert_eq!(
        refusal(|input| input.metadata = one("k", &"€".repeat(257))),
        "metadata.k is 257 characters long; allowed: at most 256 characters"
    );
    assert!(refusal(|input| input.metadata = one("", "v")).contains("1 to 256 characters"));
    assert!(refusal(|input| input.metadata = one(&"k".repeat(257), "v")).contains("1 to 256 characters"));
}

#[test]
fn egress_takes_domains_only() {
    let check = |domain: &str| given(|input| egress(input).allow = Some(vec!["a.com".into(), domain.into()]));
    let longest = format!("{}.{}", ["x".repeat(61).as_str(); 4].join("."), "abcde");
    assert_eq!(longest.len(), 253);
    for domain in
        ["example.com", "*.example.com", "xn--mnchen-3ya.de", "_dmarc.example.com", "localhost", &longest]
    {
        assert!(check(domain).is_ok(), "{domain}");
    }
    let too_long = format!("x{longest}");
    let long_label = format!("{}.com", "x".repeat(64));
    for domain in [
        "",
        "*",
        "*.",
        "*.*.com",
        "a.*.com",
        ".example.com",
        "example.com.",
        "a..b",
        "-a.com",
        "a-.com",
        "münchen.de",
        "https://example.com",
        "example.com:443",
        "example.com/x",
        "1.2.3.4",
        "[::1]",
        "a b.com",
        "a\0.com",
        &too_long,
        &long_label,
    ] {
        let error = check(domain).expect_err(domain);
        assert_eq!(error.field, "network.egress.allow[1]");
        assert!(error.allowed.starts_with("a domain such as 'example.com'"));
    }
    let many = |count: usize| vec!["example.com".to_owned(); count];
    assert!(given(|input| egress(input).allow = Some(many(1000))).is_ok());
    assert!(given(|input| egress(input).allow = Some(many(1001))).is_err());
}

#[test]
fn ingress_ports_are_validated_and_unchanged() {
    let check = |ports: &[Integer]| {
        let ingress = CreateIngress { allow_ports: Some(ports.to_vec()) };
        given(|input| network(input).ingress = Some(ingress)).map(|config| config.network.ingress)
    };
    assert_eq!(given(|_| {}).unwrap().network.ingress, None);
    for ports in [&[][..], &[1, 65_535], &[8080, 80, 8080]] {
        let kept = ports.iter().map(|port| u16::try_from(*port).unwrap()).collect();
        assert_eq!(check(ports), Ok(Some(IngressPolicy { allow_ports: kept })));
    }
    for port in [0, -1, 65_536, 65_536 + 80, Integer::MIN, Integer::MAX] {
        assert_eq!(
            check(&[80, port]).unwrap_err().to_string(),
            format!("network.ingress.allowPorts[1] is {port}; allowed: 1 to 65535")
        );
    }
    assert!(check(&[80; 100]).is_ok());
    assert_eq!(
        check(&[80; 101]).unwrap_err().to_string(),
        "network.ingress.allowPorts is 101 entries; allowed: at most 100 entries"
    );
}

#[test]
fn an_image_has_a_name_that_can_be_shown() {
    assert!(given(|input| input.image = "registry.example:5000/a/b@sha256:00".into()).is_ok());
    for image in ["", "a b", "a\nb", "ü", &"x".repeat(513)] {
        assert!(refusal(|input| input.image = image.into()).starts_with("image is '"));
    }
}

#[test]
fn an_operator_may_narrow_the_rules() {
    let rules = ConfigRules { cpu_allowed: vec![2], ..ConfigRules::default() };
    let mut input = CreateBody { image: "custom".into(), ..CreateBody::default() };
    resources(&mut input).cpu = Some(4);
    let message = sandbox_config(input, &rules).unwrap_err().to_string();
    assert_eq!(message, "resources.cpu is 4; allowed: 2");
}

#[test]
fn an_operator_may_allow_smaller_sandboxes() {
    let least = Resources { cpu: 1, memory_mb: 512, disk_mb: 1024 };
    let rules = ConfigRules::default().with_minimum(least);
    assert_eq!(rules.cpu_allowed, [1, 2, 4, 8]);
    let of = |cpu: u32, memory_mb: u32, disk_mb: u32, rules: &ConfigRules| {
        let mut input = CreateBody { image: "custom".into(), ..CreateBody::default() };
        let asked = resources(&mut input);
        (asked.cpu, asked.memory_mb, asked.disk_mb) =
            (Some(cpu.into()), Some(memory_mb.into()), Some(disk_mb.into()));
        sandbox_config(input, rules).map(|config| config.resources).map_err(|error| error.to_string())
    };
    assert_eq!(of(1, 512, 1024, &rules), Ok(least));
    assert_eq!(of(8, 16_384, 51_200, &rules).unwrap().cpu, 8);
    assert_eq!(of(1, 511, 1024, &rules).unwrap_err(), "resources.memoryMb is 511; allowed: 512 to 16384");
    // The defaults stay, and so does the documented API without such a minimum.
    let body = CreateBody { image: "custom".into(), ..CreateBody::default() };
    assert_eq!(sandbox_config(body, &rules).unwrap().resources.memory_mb, 4096);
    assert!(of(1, 2048, 5120, &ConfigRules::default()).is_err());
    let documented = Resources { cpu: 2, memory_mb: 2048, disk_mb: 5120 };
    assert_eq!(ConfigRules::default().with_minimum(documented), ConfigRules::default());
}
