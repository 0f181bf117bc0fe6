use super::*;
use crate::{Ineffective, parse};

fn base() -> ImageSettings {
    ImageSettings { env: vec![("PATH".to_owned(), "/bin".to_owned())], ..ImageSettings::default() }
}

fn planned(text: &str, args: &[(&str, &str)]) -> Result<BuildPlan, DockerfileError> {
    let args = args.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    parse(text)?.plan(&args, &base())
}

fn plan_of(text: &str) -> BuildPlan {
    planned(text, &[]).unwrap()
}

fn run(step: &PlanStep) -> &Run {
    match &step.work {
        Work::Run(run) => run,
        other => panic!("{other:?}"),
    }
}

fn copy(step: &PlanStep) -> &Copy {
    match &step.work {
        Work::Copy(copy) => copy,
        other => panic!("{other:?}"),
    }
}

#[test]
fn settings_are_those_in_force_at_the_line() {
    let plan = plan_of(
        "FROM a\nENV A=1 B=\"x $PATH\"\nENV A=2 C=$A\nRUN one\nUSER app:staff\nWORKDIR /srv\nWORKDIR sub/../deep\n\
         RUN [\"two\", \"$A\"]\nSHELL [\"/bin/bash\", \"-c\"]\nUSER 0\nRUN three\nEXPOSE 80 53/UDP\nLABEL a=b\n\
         ENTRYPOINT [\"/init\"]\nCMD serve $A",
    );
    let [one, two, three] = &plan.steps[..] else { panic!("{:?}", plan.steps) };
    assert_eq!(run(one).argv, ["/bin/sh", "-c", "one"]);
    assert_eq!((run(one).workdir.as_str(), &run(one).user), ("/", &None));
    assert_eq!(run(one).env["B"], "x /bin");
    // The value before the line counts.
    assert_eq!((run(one).env["A"].as_str(), run(one).env["C"].as_str()), ("2", "1"));
    assert_eq!(run(two).argv, ["two", "$A"]);
    assert_eq!((run(two).workdir.as_str(), run(two).user.as_deref()), ("/srv/deep", Some("app:staff")));
    let made = |path: &str, owner: Option<&str>| Directory {
        path: path.to_owned(),
        owner: owner.map(str::to_owned),
    };
    assert_eq!(two.line, 8);
    assert_eq!(two.directories, [made("/srv", Some("app:staff")), made("/srv/deep", Some("app:staff"))]);
    assert_eq!(run(three).argv, ["/bin/bash", "-c", "three"]);
    assert_eq!(run(three).user, None);
    let settings = &plan.settings;
    assert_eq!(settings.env[0], ("PATH".to_owned(), "/bin".to_owned()));
    assert_eq!(settings.exposed.iter().collect::<Vec<_>>(), ["53/udp", "80/tcp"]);
    assert_eq!(settings.entrypoint.as_deref(), Some(&["/init".to_owned()][..]));
    assert_eq!(settings.cmd.as_ref().unwrap(), &["/bin/bash", "-c", "serve $A"]);
    assert_eq!(settings.labels["a"], "b");
    assert_eq!(settings.workdir.as_deref(), Some("/srv/deep"));
}

#[test]
fn arguments_have_scopes_defaults_and_given_values() {
    let text = "ARG V=1\nARG W=$V.0\nFROM a:$W\nRUN before\nARG V\nARG X=x$V\nARG TARGETARCH\nRUN after\nENV X=env\nRUN $X";
    let plan = planned(text, &[("V", "2"), ("HTTP_PROXY", "http://p"), ("TYPO", "1")]).unwrap();
    let args = BTreeMap::from([("V".to_owned(), "2".to_owned())]);
    assert_eq!(parse(text).unwrap().base(&args).unwrap().name, "a:2.0");
    assert_eq!(parse(text).unwrap().base(&BTreeMap::new()).unwrap().name, "a:1.0");
    let [before, after, last] = &plan.steps[..] else { panic!("{:?}", plan.steps) };
    assert!(!run(before).env.contains_key("V"));
    assert_eq!(run(before).env["HTTP_PROXY"], "http://p");
    assert_eq!((run(after).env["V"].as_str(), run(after).env["X"].as_str()), ("2", "x2"));
    assert!(["amd64", "arm64"].contains(&run(after).env["TARGETARCH"].as_str()));
    assert_eq!(run(last).env["X"], "env");
    assert_eq!(plan.unused_args, ["TYPO"]);
    assert!(!plan.settings.env.iter().any(|(name, _)| name == "V"), "arguments are not in the image");
}

#[test]
fn copies_have_sources_destination_owner_and_mode() {
    let plan = plan_of(
        "FROM a\nWORKDIR /app\nENV D=dist\nCOPY --chown=app:app --chmod=750 $D/*.js package.json ./\nADD a.tar.gz /opt\n\
         COPY [\"with space\", \"to/\"]\nCOPY <<one <<'two' /etc/\nA $D \"q\" \\$D\none\nB $D\ntwo\nCOPY . .",
    );
    let [js, tar, space, inline, all] = &plan.steps[..] else { panic!("{:?}", plan.steps) };
    let js = copy(js);
    assert_eq!(
        js.sources,
        [CopySource::Path("dist/*.js".to_owned()), CopySource::Path("package.json".to_owned())]
    );
    assert_eq!(
        (js.destination.as_str(), js.owner.as_deref(), js.mode),
        ("/app/", Some("app:app"), Some(0o750))
    );
    assert!(!js.extracts);
    assert_eq!((copy(tar).destination.as_str(), copy(tar).extracts), ("/opt", true));
    assert_eq!(copy(space).sources, [CopySource::Path("with space".to_owned())]);
    assert_eq!(copy(space).destination, "/app/to/");
    assert_eq!(
        copy(inline).sources,
        [
            CopySource::Inline { name: "one".to_owned(), content: "A dist \"q\" $D\n".to_owned() },
            CopySource::Inline { name: "two".to_owned(), content: "B $D\n".to_owned() },
        ]
    );
    assert_eq!(copy(all).destination, "/app/");
}

#[test]
fn commands_keep_their_lines() {
    let plan = plan_of(
        "FROM a\nRUN one \\\n  # a comment\n\n  two \\\n  && three\nRUN <<EOF\nline $x\nlast\nEOF\n\
         RUN cat - <<EOF && ok\nbody\nEOF\nRUN <<EOF\n#!/usr/bin/env python3\nprint(1)\nEOF\nRUN echo \\\n",
    );
    let [joined, script, inner, program, open] = &plan.steps[..] else { panic!("{:?}", plan.steps) };
    assert_eq!(run(joined).argv[2], "one   two   && three");
    assert_eq!(joined.text, "RUN one two && three");
    assert_eq!(run(script).argv[2], "line $x\nlast\n");
    assert_eq!(run(inner).argv[2], "cat - <<EOF && ok\nbody\nEOF\n");
    assert_eq!((inner.line, program.line), (11, 14));
    assert_eq!(run(program).argv[4], "#!/usr/bin/env python3\nprint(1)\n");
    assert_eq!(run(open).argv[2], "echo ");
}

#[test]
fn a_trailing_workdir_is_a_step() {
    let plan = plan_of("FROM a\nRUN x\nWORKDIR /new");
    assert_eq!(plan.steps.len(), 2);
    let last = &plan.steps[1];
    assert_eq!(last.work, Work::Nothing);
    assert_eq!(last.directories, [Directory { path: "/new".to_owned(), owner: None }]);
    assert_eq!((last.above.clone(), plan.result), (Origin::Step(0), Origin::Step(1)));
}

#[test]
fn what_is_not_supported_is_refused_with_its_line() {
    for (text, line, part) in [
        ("FROM a\nONBUILD COPY --from=b /x /y", 2, "ONBUILD with COPY --from"),
        ("FROM a\nONBUILD RUN <<EOF\nx\nEOF", 2, "ONBUILD with a here-document"),
        ("FROM a\nONBUILD RUN --mount=type=secret,id=x y", 2, "type=secret is not supported"),
        ("FROM a\nADD --from=b /x /y", 2, "ADD --from=b is not supported"),
        ("FROM a\nFROM b\nCOPY --from=1 /x /y", 3, "not an earlier stage"),
        ("FROM a\nRUN --mount=type=secret,id=x y", 2, "'env' of the create"),
        ("FROM a\nRUN --mount=type=ssh y", 2, "SSH agent"),
        ("FROM a\nRUN --mount=target=/x,source=y z", 2, "type=bind is not supported: use COPY"),
        ("FROM a\nRUN --mount=type=tmpfs,target=/x y", 2, "same RUN"),
        ("FROM a\nRUN --mount=type=Other,target=/x y", 2, "type=other is not supported: leave"),
        ("FROM a\nRUN --mount y", 2, "RUN --mount is not supported"),
        ("FROM a\nRUN --network=none y", 2, "RUN --network=none is not supported"),
        ("FROM a\nADD https://example.com/x /x", 2, "URL"),
        ("FROM a\nCOPY a b /dir", 2, "ends with '/'"),
        ("FROM a\nCOPY --chmod=u+x a b", 2, "--chmod"),
        ("FROM a\nEXPOSE 70000", 2, "EXPOSE"),
        ("FROM a\nENV A=${B:?needed}", 2, "B is not set"),
        ("FROM a\nRUN cat <<EOF\nx\nEOF\nNOPE", 5, "unknown instruction"),
        ("FROM a\nARG \"x y\"", 2, "NAME"),
        ("FROM a\nUSER ' '", 2, "USER"),
        ("RUN x", 1, "expected FROM"),
        ("", 1, "FROM"),
    ] {
        let error = planned(text, &[]).unwrap_err();
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.message.contains(part), "{text}: {error}");
    }
    for (text, part) in [
        ("FROM scratch", "scratch"),
        ("FROM --platform=linux/s390x a", "linux/s390x"),
        ("ARG X\nFROM $X", "empty"),
    ] {
        let error = parse(text).unwrap().base(&BTreeMap::new()).unwrap_err();
        assert!(error.message.contains(part), "{text}: {error}");
    }
    assert!(parse(&"#\n".repeat(200_000)).unwrap_err().message.contains("at most"));
    assert!(
        parse(&format!("FROM a\n{}", "RUN x\n".repeat(300))).unwrap_err().message.contains("instructions")
    );
    assert!(parse(&"FROM a\n".repeat(17)).unwrap_err().message.contains("16 stages"));
}

proptest::proptest! {
    #[test]
    fn nothing_panics(text in "(FROM|RUN|COPY|ENV|ARG|ADD|<<|EOF|\\n|\\\\\n| |a|=|\"|'|\\$|\\{|\\}|\\[|\\]|,|-|#|é){0,60}") {
        if let Ok(file) = parse(&format!("FROM a\n{text}")) {
            let _ = file.plan(&BTreeMap::new(), &base());
        }
    }
}

#[test]
fn a_short_text_does_not_become_a_long_plan() {
    let error = |text: String, args: &[(&str, &str)]| planned(&text, args).unwrap_err().message;
    let long = "x".repeat(100_000);
    for instruction in ["LABEL", "ENV"] {
        let pairs: String = (0..1000).map(|number| format!(" a{number}=$LONG")).collect();
        let text = format!("FROM a\nARG LONG\n{instruction}{pairs}\n");
        assert!(error(text, &[("LONG", &long)]).contains("after their variables are expanded"));
    }
    let copy = format!("FROM a\nARG LONG\nCOPY {} /d/\n", "$LONG ".repeat(1000));
    assert!(error(copy, &[("LONG", &long)]).contains("after their variables are expanded"));
    // Build arguments, which each step has a copy of.
    for text in ["FROM a\nARG LONG\nARG A=$LONG\n", "ARG LONG\nARG A=$LONG\nFROM a\n"] {
        assert!(error(text.to_owned(), &[("LONG", &long)]).contains("build arguments"), "{text}");
    }
}

#[test]
fn stages_begin_with_what_they_name() {
    let plan = plan_of(
        "FROM a AS build\nARG V=1\nENV E=build\nSHELL [\"/bin/bash\", \"-c\"]\nCMD [\"c\"]\nRUN make $V\n\
         FROM b\nRUN not needed\n\
         FROM build AS test\nRUN test $V\n\
         FROM c\nCOPY --from=build /out/ /in/\nCOPY --from=img:1 x .\nCOPY --from=test /report /",
    );
    let [make, test, built, other, report] = &plan.steps[..] else { panic!("{:?}", plan.steps) };
    assert_eq!((&make.above, &test.above), (&Origin::Base("a".to_owned()), &Origin::Step(0)));
    // Of the stage before: settings and build arguments.
    assert_eq!(run(test).argv, ["/bin/bash", "-c", "test $V"]);
    assert_eq!((run(test).env["E"].as_str(), run(test).env["V"].as_str()), ("build", "1"));
    assert_eq!((&built.above, &report.above), (&Origin::Base("c".to_owned()), &Origin::Step(3)));
    let from = [built, other, report].map(|step| copy(step).from.clone().unwrap());
    assert_eq!(from, [Origin::Step(0), Origin::Base("img:1".to_owned()), Origin::Step(1)]);
    assert_eq!((plan.result, plan.settings.cmd), (Origin::Step(4), None));
    assert!(plan.settings.env.iter().all(|(name, _)| name != "E"));
    // A stage without steps is what it is built upon.
    let plan = plan_of("FROM a AS one\nENV A=1\nFROM one\nCOPY --from=one /x /y\nFROM one");
    assert_eq!((plan.steps.len(), plan.result), (0, Origin::Base("a".to_owned())));
}

#[test]
fn instructions_for_children_are_carried_out_in_them() {
    let text = "FROM a AS parent\nONBUILD ENV A=1\nONBUILD RUN one \\\n  two\nVOLUME /v\nHEALTHCHECK NONE\n\
                STOPSIGNAL 9\nMAINTAINER me\nRUN own\nFROM parent\nRUN last\nUSER app";
    let plan = plan_of(text);
    let [own, triggered, last] = &plan.steps[..] else { panic!("{:?}", plan.steps) };
    assert!(!run(own).env.contains_key("A"));
    assert_eq!((run(triggered).argv[2].as_str(), triggered.line), ("one   two", 10));
    assert_eq!(run(last).env["A"], "1");
    assert!(plan.settings.on_build.is_empty());
    let parent = plan_of("FROM a\nONBUILD RUN x");
    assert_eq!((parent.settings.on_build.clone(), parent.steps.len()), (vec!["RUN x".to_owned()], 0));
    let child = parse("FROM parent").unwrap().plan(&BTreeMap::new(), &parent.settings).unwrap();
    assert_eq!(run(&child.steps[0]).argv[2], "x");
    // Those of a base are not trusted to be few.
    let many = ImageSettings { on_build: vec!["ENV A=1".to_owned(); 2000], ..base() };
    let error = parse("FROM a").unwrap().plan(&BTreeMap::new(), &many).unwrap_err();
    assert!(error.message.contains("1024 instructions"), "{error}");
}

#[test]
fn instructions_without_an_effect_on_sandboxes_are_noted() {
    let notes = |text: &str| plan_of(text).notes.iter().map(ToString::to_string).collect::<Vec<_>>();
    let kinds =
        |text: &str| plan_of(text).notes.iter().map(|note| (note.line, note.instruction)).collect::<Vec<_>>();
    assert_eq!(
        kinds(
            "FROM a\nCMD one\nUSER app\nENTRYPOINT [\"/init\"]\nHEALTHCHECK NONE\nEXPOSE 80\nVOLUME /v\nSTOPSIGNAL 9\n\
             MAINTAINER me\nLABEL a=b\nONBUILD RUN x\nWORKDIR /srv\nCMD two"
        ),
        [
            (3, Ineffective::User),
            (4, Ineffective::Entrypoint),
            (5, Ineffective::HealthCheck),
            (6, Ineffective::Expose),
            (7, Ineffective::Volume),
            (8, Ineffective::StopSignal),
            (13, Ineffective::Cmd),
        ]
    );
    let entrypoint = notes("FROM a\nENV A=1\n\nENTRYPOINT x");
    assert!(
        entrypoint.len() == 1 && entrypoint[0].starts_with("line 4: ENTRYPOINT has no effect: "),
        "{entrypoint:?}"
    );
    assert_eq!(notes("FROM a\nUSER app\nRUN x\nUSER root"), Vec::<String>::new());
    // Settings of a stage that files are copied of are those of no sandbox.
    let stages = "FROM a AS build\nUSER app\nCMD x\nFROM a AS unused\nEXPOSE 1\n\
                  FROM b AS base\nVOLUME /v\nFROM base\nCOPY --from=build /x /y";
    assert_eq!(kinds(stages), [(7, Ineffective::Volume)]);
}

#[test]
fn owners_ports_and_paths_are_those_of_other_builders() {
    let plan = plan_of(
        "FROM a\nCOPY --chown=77 a b\nCOPY --chown=:team a b\nCOPY --chown=app a b\nCOPY --chown=0 a b",
    );
    let owners: Vec<_> = plan.steps.iter().map(|step| copy(step).owner.as_deref()).collect();
    assert_eq!(owners, [Some("77:77"), Some("0:team"), Some("app"), None]);
    let plan = plan_of("FROM a\nEXPOSE 8000-8002 1-60000/udp");
    let ports: Vec<&String> = plan.settings.exposed.iter().collect();
    assert_eq!(ports, ["1-60000/udp", "8000/tcp", "8001/tcp", "8002/tcp"]);
    let without = parse("FROM a\nENV PATH=/opt:$PATH").unwrap();
    let plan = without.plan(&BTreeMap::new(), &ImageSettings::default()).unwrap();
    assert!(plan.settings.env[0].1.starts_with("/opt:/usr/local/sbin:"), "{:?}", plan.settings.env);
}

#[test]
fn a_command_runs_with_the_settings_of_the_image() {
    let settings = ImageSettings {
        env: vec![("A".to_owned(), "1".to_owned()), ("B".to_owned(), "a=b".to_owned())],
        workdir: Some("/app".to_owned()),
        user: Some("app".to_owned()),
        // That of later instructions.
        shell: Some(vec!["bash".to_owned()]),
        ..ImageSettings::default()
    };
    let run = settings.shell_command("serve | tee log");
    assert_eq!(run.argv, ["/bin/sh", "-c", "serve | tee log"]);
    assert_eq!((run.workdir.as_str(), run.user.as_deref()), ("/app", Some("app")));
    assert_eq!(run.env["B"], "a=b");
    let plain = ImageSettings::default().shell_command("true");
    assert_eq!((plain.workdir.as_str(), plain.user), ("/", None));
}
