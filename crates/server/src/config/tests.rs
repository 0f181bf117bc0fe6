//! Reading, defaults, bounds.

use net::{Pool, Upstreams};

use super::*;

const DEFAULT_SIZE: api::Resources = api::Resources { cpu: 2, memory_mb: 4096, disk_mb: 10_240 };

#[test]
fn an_empty_file_is_the_defaults() {
    let config = parse("").unwrap();
    assert_eq!(config.limits.concurrent_executions, 3);
    config.check().unwrap();
}

#[test]
fn a_mistyped_key_names_the_nearest() {
    for (text, message) in [
        (
            "[capacity]\nmemroy_mb = 5",
            "line 2: unknown key 'capacity.memroy_mb'; did you mean 'capacity.memory_mb'?",
        ),
        ("[capasity]\ncpu = 5", "line 1: unknown key 'capasity'; did you mean 'capacity'?"),
        ("[http]\nLISTEN = \"\"", "line 2: unknown key 'http.LISTEN'; did you mean 'http.listen'?"),
        (
            "[images]\nalow_any = true",
            "line 2: unknown key 'images.alow_any'; did you mean 'images.allow_any'?",
        ),
        (
            "[e2b.templates.\"large\"]\nimage = \"x\"\nmemory = 5",
            "line 3: unknown key 'e2b.templates.\"large\".memory'; did you mean 'e2b.templates.\"large\".memory_mb'?",
        ),
        (
            "[isolation.accounts.\"acme\"]\nminimun = \"gvisor\"",
            "line 2: unknown key 'isolation.accounts.\"acme\".minimun'; did you mean 'isolation.accounts.\"acme\".minimum'?",
        ),
        (
            "[limits.accounts.acme]\nreads_per_minute = 1",
            "line 2: unknown key 'limits.accounts.\"acme\".reads_per_minute'; did you mean 'limits.accounts.\"acme\".read_per_minute'?",
        ),
        // Further from it than a typing error.
        (
            "[http]\nredirect = \"\"",
            "line 2: unknown key 'http.redirect'; did you mean 'http.redirect_listen'?",
        ),
    ] {
        assert_eq!(parse(text).unwrap_err().to_string(), message);
    }
    let nothing_alike = parse("[log]\nzzz = 1").unwrap_err().to_string();
    assert_eq!(nothing_alike, "line 2: unknown key 'log.zzz'; known here: format, level");
    let of_another_program = parse("[server]\nport = 1").unwrap_err().to_string();
    assert!(
        of_another_program.starts_with("line 1: unknown key 'server'; known here: "),
        "{of_another_program}"
    );
}

#[test]
fn a_key_in_the_wrong_table_names_the_right_one() {
    for (text, message) in [
        ("[limits]\npids_max = 5", "unknown key 'limits.pids_max'; did you mean the one in [runtime]?"),
        ("listen = \"\"", "unknown key 'listen'; did you mean the one in [http] or the one in [metrics]?"),
        (
            "[http]\ndata_dir = \"/srv\"",
            "unknown key 'http.data_dir'; did you mean the one at the top of the file, above all tables?",
        ),
        ("[gvisor]\nprogram = \"off\"", "unknown key 'gvisor'; did you mean [isolation.gvisor]?"),
        ("[http.mcp]\nenabled = true", "unknown key 'http.mcp'; did you mean [mcp]?"),
        (
            "[limits]\nsnapshots_mb = 1",
            "unknown key 'limits.snapshots_mb'; did you mean the one in [quotas] or the one in [quotas.accounts.\"NAME\"]?",
        ),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert_eq!(error.split_once(": ").unwrap().1, message, "{text}");
    }
}

#[test]
fn a_value_of_a_wrong_type_says_what_is_expected() {
    for (text, message) in [
        (
            "[limits]\nread_per_minute = -1",
            "line 2: limits.read_per_minute is -1; it must be a whole number (count, 0 to 1000000)",
        ),
        (
            "[limits]\nread_per_minute = \"5\"",
            "line 2: limits.read_per_minute is '5'; it must be a whole number (count, 0 to 1000000)",
        ),
        (
            "[limits]\nread_per_minute = 1.5",
            "line 2: limits.read_per_minute is 1.5; it must be a whole number (count, 0 to 1000000)",
        ),
        (
            "[limits]\nread_per_minute = 5000000000",
            "line 2: limits.read_per_minute is 5000000000; it must be a whole number (count, 0 to 1000000)",
        ),
        ("[capacity]\ncpu = -4", "line 2: capacity.cpu is -4; it must be a whole number, 0 or more (vCPUs)"),
        (
            "[capacity]\novercommit_cpu = \"2\"",
            "line 2: capacity.overcommit_cpu is '2'; it must be a number (factor above 0)",
        ),
        ("[http]\nlisten = 8443", "line 2: http.listen is 8443; it must be text in quotes (address)"),
        (
            "[http]\ntls_names = \"localhost\"",
            "line 2: http.tls_names is 'localhost'; it must be a list of texts in quotes (list of names)",
        ),
        ("[http]\ntls_names = [\"a\", 7]", "line 2: http.tls_names[1] is 7; it must be text in quotes"),
        ("[mcp]\nenabled = \"yes\"", "line 2: mcp.enabled is 'yes'; it must be true or false"),
        ("http = 1", "line 1: http is 1; it must be a table"),
        ("[data_dir]\npath = \"/srv\"", "line 1: data_dir is a table; it must be text in quotes (path)"),
        ("[pool]\n\"a:1\" = -1", "line 2: pool.\"a:1\" is -1; it must be a whole number (count, 0 to 1000)"),
        (
            "[images]\n\"a:1\" = \"rootfs:/srv/a\"",
            "line 2: images.\"a:1\" is 'rootfs:/srv/a'; it must be a list of texts in quotes (list of sources)",
        ),
        (
            "[quotas.accounts.acme]\nstreams = -1",
            "line 2: quotas.accounts.\"acme\".streams is -1; it must be a whole number, 0 or more",
        ),
        (
            "[egress]\nresolver = 53",
            "line 2: egress.resolver is 53; it must be text in quotes (\"system\", address, or list of addresses)",
        ),
        ("[egress]\nresolver = [53]", "line 2: egress.resolver[0] is 53; it must be text in quotes"),
        (
            "[snapshots]\nsecret_access_key = 12345",
            "line 2: snapshots.secret_access_key is another value; it must be text in quotes",
        ),
        ("[log]\nformat = \"xml\"", "line 2: log.format is 'xml'; it must be \"text\" or \"json\""),
    ] {
        assert_eq!(parse(text).unwrap_err().to_string(), message, "{text}");
    }
    let broken = parse("[http]\nlisten = 0.0.0.0:8443\n").unwrap_err().to_string();
    assert!(broken.starts_with("line 2: this is not valid TOML: "), "{broken}");
}

#[test]
fn messages_of_checks_get_the_lines_of_their_keys() {
    let text = r#"
[http]
tls = "files"
tls_cert = "/x"
[images]
"a:1" = ["x"]
[images.accounts.acme]
allow = []
[quotas]
accounts.acme = { streams = 5 }
"#;
    for (message, line) in [
        ("http.tls is 'files'; it must be …", Some(3)),
        ("http.tls_cert: the certificate …", Some(4)),
        ("http.tls_key is missing; …", Some(2)),
        ("images.\"a:1\": image source 'x' is invalid", Some(6)),
        ("in images.accounts.\"acme\".allow: 'x' is no pattern", Some(8)),
        ("quotas.accounts.\"acme\".streams is 5", Some(10)),
        ("log.level is 'x'", None),
        ("cannot be read: No such file", None),
    ] {
        assert_eq!(keys::line_of_message(text, message), line, "{message}");
    }
}

/// As docs/configuration.md shows them.
#[test]
fn all_errors_are_reported_with_their_lines() {
    let text =
        "[limits]\nwrite_per_minute = 100\nread_per_minute = -1\npids_max = 100\n\n[http]\nlisen = \"\"\n";
    let problems = parse(text).unwrap_err().in_file(Path::new("config.toml"));
    let lines: Vec<String> = problems.lines().collect();
    let shown = lines.join("\n");
    assert!(reference().unwrap().contains(&shown), "{shown}");
    assert_eq!(problems.to_string(), format!("the configuration has 3 errors:\n{shown}"));
    let ranges = parse("[http]\nmax_connections = 0\n[mcp]\nmax_sessions = 0\n[pool]\n\"a\" = 1001");
    let ranges = ranges.unwrap().check().unwrap_err();
    let keys: Vec<String> = ranges.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(keys, ["http.max_connections", "mcp.max_sessions", "pool.\"a\""]);
}

/// The beginnings of the lines.
fn reported(text: &str) -> Vec<String> {
    let problems = parse(text).and_then(|config| config.check()).unwrap_err();
    let problems = problems.at_lines(|message| keys::line_of_message(text, message));
    problems.lines().map(|line| line.split([';', ',']).next().unwrap().to_owned()).collect()
}

#[test]
fn every_error_of_a_table_is_reported() {
    let files = reported("[http]\ntls = \"files\"");
    assert_eq!(files, ["line 1: http.tls_cert is missing", "line 1: http.tls_key is missing"]);
    let names = reported("[http]\ntls_names = [\"a b\", \"ok.example\", \"c:1\"]");
    assert_eq!(names, ["line 2: http.tls_names has 'a b'", "line 2: http.tls_names has 'c:1'"]);
    let networks = reported("[egress]\nallow_private = [\"10.0.0.0/33\"]\nclosed = [\"example.com\"]");
    assert_eq!(
        networks,
        ["line 2: egress.allow_private has '10.0.0.0/33'", "line 3: egress.closed has 'example.com'"]
    );
}

#[test]
fn bad_words_hide_neither_others_nor_errors_of_other_tables() {
    let text = "[http]\ntls = \"fils\"\ntls_cert = \"/c\"\n[log]\nformat = \"xml\"\n[isolation]\nminimum = \"vm\"\n\
                [isolation.accounts.\"acme\"]\ndefault = \"vm\"\n[mcp]\nmax_sessions = 0";
    assert_eq!(
        reported(text),
        [
            // Without a known word nothing is said of http.tls_cert.
            "line 2: http.tls is 'fils'",
            "line 5: log.format is 'xml'",
            "line 7: isolation.minimum is 'vm'",
            "line 9: isolation.accounts.acme.default: unknown variant `vm`",
            "line 11: mcp.max_sessions is 0",
        ]
    );
}

#[test]
fn unknown_keys_and_wrong_types_hide_no_values_of_other_tables() {
    let text = "data_dir = 5\n[http]\nlisen = \"\"\nhandshake_seconds = 0\n[log]\nformat = \"xml\"\n[mcp]\nmax_sessions = 0";
    assert_eq!(
        reported(text),
        [
            "line 1: data_dir is 5",
            "line 3: unknown key 'http.lisen'",
            "line 6: log.format is 'xml'",
            "line 8: mcp.max_sessions is 0",
        ]
    );
}

#[test]
fn an_empty_directory_is_an_error() {
    assert_eq!(
        reported("data_dir = \"\"\nrun_dir = \"\""),
        ["line 1: data_dir is ''", "line 2: run_dir is ''"]
    );
}

#[test]
fn two_listeners_have_two_addresses() {
    for (text, keys) in [
        ("[http]\nlisten = \"127.0.0.1:8080\"", &["http.redirect_listen"][..]),
        ("[http]\nlisten = \"0.0.0.0:80\"\nredirect_listen = \"127.0.0.1:80\"", &["http.redirect_listen"]),
        ("[metrics]\nlisten = \"127.0.0.1:8443\"", &["metrics.listen"]),
        ("[metrics]\nlisten = \"127.0.0.1:8080\"", &["metrics.listen"]),
        // Any free ports.
        ("[http]\nlisten = \"127.0.0.1:0\"\nredirect_listen = \"127.0.0.1:0\"", &[]),
        ("[http]\nlisten = \"[::1]:8080\"", &[]),
        // There is no redirect.
        ("[http]\nlisten = \"127.0.0.1:8080\"\ntls = \"off\"", &[]),
        // The service does without metrics then.
        ("[http]\nlisten = \"127.0.0.1:9464\"", &[]),
    ] {
        let checked = parse(text).unwrap().check().err().into_iter().flatten();
        let named: Vec<String> =
            checked.map(|problem| problem.message.split(' ').next().unwrap().to_owned()).collect();
        assert_eq!(named, keys, "{text}");
    }
}

#[test]
fn a_key_that_is_there_twice_is_named() {
    for (text, message) in [
        ("[http]\nlisten = \"a\"\nlisten = \"b\"", "line 3: this is not valid TOML: duplicate key: 'listen'"),
        (
            "[http]\nlisten = \"a\"\n[log]\n[http]\ntls = \"off\"",
            "line 4: this is not valid TOML: duplicate key: 'http'",
        ),
    ] {
        assert_eq!(parse(text).unwrap_err().to_string(), message);
    }
    let secret = parse("[snapshots]\nsecret_access_key = abc.def").unwrap_err().to_string();
    assert!(!secret.contains("abc"), "{secret}");
}

#[test]
fn every_default_has_the_type_of_its_key() {
    let text = toml::to_string(&Config::default()).unwrap();
    parse(&text).unwrap();
}

#[test]
fn files_that_the_configuration_names_are_listed() {
    let config = parse(
        "[http]\ntls = \"files\"\ntls_cert = \"/c\"\ntls_key = \"/k\"\n[snapshots]\nsecret_file = \"/s\"",
    );
    let config = config.unwrap();
    let files = config.named_files();
    let expected = [("http.tls_cert", "/c"), ("http.tls_key", "/k"), ("snapshots.secret_file", "/s")];
    assert_eq!(files, expected.map(|(key, path)| (key, Path::new(path))));
    assert!(Config::default().named_files().is_empty());
}

#[test]
fn tables_that_map_image_names_take_any_name() {
    let config = parse("[images]\n\"mine:1\" = [\"rootfs:/srv/mine\"]\n[pool]\n\"mine:1\" = 3").unwrap();
    assert_eq!(config.images.named["mine:1"], ["rootfs:/srv/mine"]);
    assert_eq!(config.pool["mine:1"], 3);
}

#[test]
fn values_are_checked_and_named() {
    let error = parse("[runtime]\nuid_slots = 0").unwrap().check().unwrap_err().to_string();
    assert!(error.contains("runtime.uid_slots") && error.contains('0'), "{error}");
    let error = parse("[capacity]\novercommit_cpu = -1.0").unwrap().check().unwrap_err().to_string();
    assert!(error.contains("capacity.overcommit_cpu"), "{error}");
}

#[test]
fn the_default_pool_is_replaced_as_a_whole() {
    assert_eq!(parse("").unwrap().pool.len(), 3);
    assert!(parse("pool = {}").unwrap().pool.is_empty());
    assert_eq!(parse("[pool]\n\"mine:1\" = 3").unwrap().pool.len(), 1);
}

#[test]
fn every_table_is_read() {
    let text = r#"
        [http]
        listen = "[::]:443"
        redirect_listen = ""
        tls = "files"
        tls_cert = "/etc/ssl/x.pem"
        tls_key = "/etc/ssl/x.key"
        max_connections = 5
        [limits]
        read_per_minute = 0
        [retention]
        terminated_days = 1
        [metrics]
        listen = ""
        [log]
        format = "json"
        level = "warn,engine=debug"
        [images]
        allow_any = true
        private_registries = ["registry.internal:5000", "[fd00::1]:5000"]
    "#;
    let config = parse(text).unwrap();
    config.check().unwrap();
    assert_eq!(config.http.tls, Tls::Files);
    assert_eq!(config.http.redirect_address().unwrap(), None);
    assert_eq!(config.http.listen_address().unwrap().port(), 443);
    assert_eq!(config.metrics.address().unwrap(), None);
    assert_eq!((config.limits.read_per_minute, config.limits.write_per_minute), (0, 60));
    assert_eq!(config.log.format, LogFormat::Json);
    assert!(config.images.allow_any && config.images.named.is_empty());
    assert_eq!(config.images.private_registries.len(), 2);
}

/// What is wrong, and two words that the message has to have.
#[test]
fn a_value_out_of_its_range_names_its_key_and_what_is_allowed() {
    let cases = [
        ("[http]\nlisten = \"8443\"", "http.listen", "127.0.0.1:8443"),
        ("[http]\nredirect_listen = \"localhost\"", "http.redirect_listen", "an address and a port"),
        ("[http]\ntls = \"files\"", "http.tls_cert", "PEM"),
        ("[http]\ntls_cert = \"/x\"", "http.tls_cert", "files"),
        ("[http]\ntls_names = []", "http.tls_names", "name"),
        ("[http]\ntls_names = [\"localhost:8443\"]", "http.tls_names has 'localhost:8443'", "without a port"),
        (
            "[http]\ntls_names = [\"*.example.com\", \"https://a.example\"]",
            "'https://a.example'",
            "without a port",
        ),
        ("[http]\ntls = \"off\"\ntrusted_proxies = [\"10.0.0.0/40\"]", "http.trusted_proxies", "10.0.0.0/40"),
        ("[http]\nallowed_origins = [\"app.example.com\"]", "http.allowed_origins", "app.example.com"),
        ("[http]\ntls = \"off\"\nlisten = \"0.0.0.0:80\"", "http.listen", "trusted_proxies"),
        ("[http]\nmax_connections = 0", "http.max_connections", "1 to 1000000"),
        ("[limits]\nread_per_minute = 1000001", "limits.read_per_minute", "0 to 1000000"),
        ("[log]\nlevel = \"loud=very\"", "log.level", "error, warn"),
        ("[log]\nlevel = \"verbose\"", "log.level is 'verbose'", "error, warn"),
        ("[log]\nlevel = \"info,engine\"", "log.level", "engine=debug"),
        ("[metrics]\nlisten = \"x\"", "metrics.listen", "port"),
        ("[egress]\nresolver = \"dns.example\"", "egress.resolver", "192.0.2.53:5353"),
        (
            "[egress]\nresolver = [\"192.0.2.1\", \"192.0.2.1:0\"]",
            "egress.resolver is '192.0.2.1:0'",
            "with a port",
        ),
        ("[egress]\nresolver = []", "egress.resolver is []", "system"),
        ("[egress]\nallow_private = [\"intranet\"]", "egress.allow_private has 'intranet'", "10.1.0.0/16"),
        ("[egress]\nallow_private = [\"fd00::/8\"]", "egress.allow_private", "IPv4"),
        ("[egress]\nallow_private = [\"10.1.2.3/16\"]", "egress.allow_private", "did you mean 10.1.0.0/16?"),
        ("[egress]\nclosed = [\"neighbours\"]", "egress.closed has 'neighbours'", "192.168.1.7"),
        ("[egress]\nclosed = [\"203.0.113.7/24\"]", "egress.closed", "did you mean 203.0.113.0/24?"),
        ("[egress]\npool = \"10.200.0.0\"", "egress.pool", "auto"),
        ("[egress]\npool = \"10.200.0.0/24\"", "has 256 addresses", "allowed: /20 or wider"),
        ("[ports]\naccount_connections = 0", "ports.account_connections", "1 to 4096"),
        (
            "[images]\nprivate_registries = [\"https://registry.internal\"]",
            "images.private_registries has 'https://registry.internal'",
            "registry.internal:5000",
        ),
        ("[pool]\n\"a:1\" = 5000", "pool.\"a:1\"", "0 to 1000"),
        ("[isolation.gvisor.pool]\n\"a:1\" = 5000", "isolation.gvisor.pool.\"a:1\" is 5000", "0 to 1000"),
        ("[egress]\nrate_mbit = 100001", "egress.rate_mbit is 100001", "0 to 100000"),
        ("[prices]\ncpu_hour = 1000001", "prices.cpu_hour is 1000001", "a number, 0 to 1000000"),
        ("[capacity]\nreserve_disk_mb = 2000000000000", "capacity.reserve_disk_mb", "0 to 1099511627776"),
        (
            "[e2b.templates.\"large\"]\nimage = \"x\"\ncpu = 65",
            "e2b.templates.\"large\".cpu is 65",
            "it must be 1 to 64",
        ),
        (
            "[e2b.templates.\"large\"]\ncpu = 4",
            "e2b.templates.\"large\".image is empty",
            "the name of an image",
        ),
    ];
    for (text, one, two) in cases {
        let error = parse(text).unwrap().check().unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(one) && error.contains(two), "{text}: {error}");
    }
}

#[test]
fn an_unknown_value_lists_the_allowed_ones() {
    let error = parse("[http]\ntls = \"on\"").unwrap_err().to_string();
    assert!(error.contains("self-signed") && error.contains("on"), "{error}");
    let error = parse("[egress]\nnetwork = \"host\"").unwrap_err().to_string();
    assert!(error.contains("nftables") && error.contains("none"), "{error}");
    let error = parse("[log]\nformat = \"xml\"").unwrap_err().to_string();
    assert!(error.contains("text") && error.contains("json"), "{error}");
}

#[test]
fn flags_go_over_the_file() {
    let flags = ServeArguments {
        addresses: Addresses {
            listen: Some("127.0.0.1:1".to_owned()),
            metrics_listen: Some(String::new()),
            ..Addresses::default()
        },
        ..ServeArguments::default()
    };
    let config = parse("[http]\nlisten = \"127.0.0.1:2\"").unwrap().with_flags(&flags).unwrap();
    assert_eq!(config.http.listen, "127.0.0.1:1");
    assert_eq!(config.metrics.listen, "");
    assert_eq!(config.http.redirect_listen, "127.0.0.1:8080");
}

#[test]
fn an_error_of_an_address_names_its_flag_and_variable() {
    let wrong = Addresses { listen: Some("x".to_owned()), ..Addresses::default() };
    let error = Config::default().with_addresses(&wrong).unwrap_err().to_string();
    assert!(error.starts_with("with --listen or SANDBOXD_LISTEN: http.listen is 'x'; it must be"), "{error}");
    assert!(Config::default().with_addresses(&Addresses::default()).is_ok());
    let flags = ServeArguments { addresses: wrong, ..ServeArguments::default() };
    assert_eq!(Config::default().with_flags(&flags).unwrap_err().to_string(), error);
}

#[test]
fn a_service_elsewhere_keeps_apart() {
    let moved = |to: &str| {
        let mut config = Config { data_dir: to.into(), ..Config::default() };
        config.isolate_instance();
        (config.run_dir, config.runtime.cgroup_parent)
    };
    let usual = Config::default();
    assert_eq!(moved("/var/lib/sandboxd"), (usual.run_dir.clone(), usual.runtime.cgroup_parent.clone()));
    let (one, two) = (moved("/srv/one"), moved("/srv/two"));
    assert!(one.0 != two.0 && one.1 != two.1 && one.0 != usual.run_dir);
    assert_eq!(moved("/srv/one"), one);
    let mut own = Config { data_dir: "/srv/one".into(), run_dir: "/run/own".into(), ..Config::default() };
    own.isolate_instance();
    assert_eq!(own.run_dir, std::path::Path::new("/run/own"));
}

#[test]
fn what_sandboxes_reach_is_read() {
    let usual = Config::default().egress;
    assert_eq!((usual.resolver().unwrap(), usual.pool().unwrap()), (Upstreams::System, Pool::Auto));
    assert_eq!((usual.network, usual.opened().unwrap().len()), (NetworkKind::Nftables, 0));
    let text = r#"
        [egress]
        network = "none"
        resolver = ["192.0.2.1", "192.0.2.2:5353", "[2001:db8::1]:53", "2001:db8::2"]
        allow_private = ["10.1.0.0/16", "192.168.1.7"]
        closed = ["203.0.113.0/24", "198.51.100.7"]
        pool = "10.200.0.0/18"
    "#;
    let config = parse(text).unwrap();
    config.check().unwrap();
    let servers = ["192.0.2.1:53", "192.0.2.2:5353", "[2001:db8::1]:53", "[2001:db8::2]:53"];
    let servers = servers.map(|server| server.parse().unwrap()).to_vec();
    assert_eq!(config.egress.resolver().unwrap(), Upstreams::Listed(servers));
    assert_eq!(
        config.egress.opened().unwrap(),
        ["10.1.0.0/16", "192.168.1.7/32"].map(|net| net.parse().unwrap())
    );
    assert_eq!(
        config.egress.closed().unwrap(),
        ["203.0.113.0/24", "198.51.100.7/32"].map(|net| net.parse().unwrap())
    );
    assert_eq!(config.egress.pool().unwrap(), Pool::Block("10.200.0.0/18".parse().unwrap()));
    let one = parse("[egress]\nresolver = \"192.0.2.9\"").unwrap().egress.resolver().unwrap();
    assert_eq!(one, Upstreams::Listed(vec!["192.0.2.9:53".parse().unwrap()]));
}

#[test]
fn quotas_of_an_account_override_those_of_all() {
    let text =
        "[quotas]\nsandboxes = 5\nidempotency_mb = 0\n[quotas.accounts.\"acme\"]\nsandboxes = 9\nstreams = 0";
    let config = parse(text).unwrap();
    config.check().unwrap();
    let table = config.quotas.table();
    let (acme, other) = (table.of("acme"), table.of("other"));
    assert_eq!((acme.sandboxes, acme.streams, acme.connections), (Some(9), None, Some(5_000)));
    assert_eq!((other.sandboxes, other.streams, other.vcpus), (Some(5), Some(2_000), None));
    assert_eq!((other.stored.idempotency_bytes, other.stored.event_bytes), (None, Some(256 << 20)));
    let error = parse("[quotas.accounts.\"acme\"]\nsandboxs = 9").unwrap_err().to_string();
    assert_eq!(
        error,
        "line 2: unknown key 'quotas.accounts.\"acme\".sandboxs'; did you mean 'quotas.accounts.\"acme\".sandboxes'?"
    );
    let error =
        parse("[quotas.accounts.\"acme\"]\nstreams = 9000000000000000000").unwrap().check().unwrap_err();
    assert!(
        error.to_string().starts_with("quotas.accounts.\"acme\".streams is 9000000000000000000"),
        "{error}"
    );
    // The operator changes that of the account.
    let exceeded = acme.admit(rules::AccountUsage { sandboxes: 9, ..Default::default() }, DEFAULT_SIZE);
    assert_eq!(exceeded.unwrap_err().key, "quotas.accounts.\"acme\".sandboxes");
    assert_eq!(acme.connect(5_000).unwrap_err().key, "quotas.connections");
}
