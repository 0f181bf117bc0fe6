use api::{Isolation, Resources};

use super::*;

/// A request for a build that no test carries out.
pub fn request(dockerfile: &str, context: Option<StoredContext>) -> NewTemplate {
    NewTemplate {
        id: None,
        name: "name".to_owned(),
        tags: Vec::new(),
        dockerfile: dockerfile.to_owned(),
        args: BuildArgs::default(),
        start: None,
        config: SandboxConfig {
            image: "name".to_owned(),
            resources: Resources { cpu: 1, memory_mb: 256, disk_mb: 1024 },
            env: BTreeMap::default(),
            workdir: "/".to_owned(),
            timeout_ms: 3_600_000,
            idle_timeout_ms: 0,
            on_timeout: Default::default(),
            processes_at_timeout: Default::default(),
            auto_resume: true,
            metadata: BTreeMap::default(),
            network: Default::default(),
            isolation: Isolation::Container,
            default_user: false,
            extensions: BTreeMap::default(),
        },
        no_cache: false,
        metadata: BTreeMap::default(),
        context,
        others: OtherBuilds::Kept,
    }
}

/// A version of the template `name` of the account `one`. Its number makes its id and the time of its creation.
pub fn template(number: u8, version: u32, state: TemplateState) -> Template {
    let id = TemplateId::from_random(std::array::from_fn(|_| number));
    let now = TimeMs(1000 + u64::from(number));
    let new = Template::new(id, "one", version, "base".to_owned(), &request("FROM base\n", None), now);
    Template { state, ..new }
}

fn start() -> StartCommand {
    StartCommand { command: "serve".to_owned(), ready: None, timeout_ms: 1000, settles_ms: None }
}

#[test]
fn the_digest_of_a_request_covers_what_it_builds() {
    let same = request("FROM a\n", None);
    let changes: [fn(&mut NewTemplate); 7] = [
        |new| new.dockerfile.push_str("RUN x\n"),
        |new| drop(new.args.insert("A".to_owned(), "1".to_owned())),
        |new| new.start = Some(start()),
        |new| new.config.resources.cpu = 2,
        |new| new.config.isolation = Isolation::Gvisor,
        |new| new.no_cache = true,
        |new| drop(new.metadata.insert("key".to_owned(), "value".to_owned())),
    ];
    let mut digests = vec![same.digest()];
    for change in changes {
        let mut new = same.clone();
        change(&mut new);
        digests.push(new.digest());
    }
    assert!(digests.iter().all(|digest| digest.len() == 64));
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 1 + changes.len());
}

#[test]
fn the_digest_of_a_request_leaves_out_what_it_is_called() {
    let same = request("FROM a\n", None);
    let changes: [fn(&mut NewTemplate); 4] = [
        |new| new.id = Some(template(1, 1, TemplateState::Queued).id),
        |new| new.name = "other".to_owned(),
        |new| new.tags = vec!["v1".to_owned()],
        |new| new.others = OtherBuilds::Replaced,
    ];
    for change in changes {
        let mut new = same.clone();
        change(&mut new);
        assert_eq!(new.digest(), same.digest());
    }
}

#[test]
fn a_version_without_tags_has_the_default_one() {
    let mut new = request("FROM a\n", None);
    assert_eq!(new.all_tags(), [DEFAULT_TAG]);
    new.tags = vec!["v1".to_owned(), "v2".to_owned()];
    assert_eq!(new.all_tags(), ["v1", "v2"]);
    let id = template(1, 1, TemplateState::Queued).id;
    let tagged = Template::new(id, "one", 1, "a".to_owned(), &new, TimeMs(1));
    assert_eq!(tagged.content.tags, ["v1", "v2"]);
}

#[test]
fn a_start_command_may_end_if_something_else_shows_that_it_works() {
    assert!(!start().may_end());
    assert!(StartCommand { ready: Some("true".to_owned()), ..start() }.may_end());
    assert!(StartCommand { settles_ms: Some(0), ..start() }.may_end());
}

#[test]
fn a_record_has_the_whole_template() {
    let mut stored = template(1, 3, TemplateState::Failed);
    stored.finished_at = Some(TimeMs(2000));
    stored.content.start = Some(start());
    stored.content.error = Some(TemplateError { message: "why".to_owned(), line: Some(2) });
    stored.content.steps = TemplateSteps { total: 3, done: 2, cached: 1 };
    assert_eq!(Template::from_record(stored.to_record()).unwrap(), stored);
}

#[test]
fn a_record_of_an_earlier_release_gets_defaults() {
    let mut record = template(1, 1, TemplateState::Ready).to_record();
    let mut content: serde_json::Value = serde_json::from_str(&record.content).unwrap();
    let added = ["context_bytes", "steps", "size_bytes", "settings", "memory", "error", "tags", "request"];
    for name in added {
        assert!(content.as_object_mut().unwrap().remove(name).is_some(), "{name}");
    }
    record.content = content.to_string();
    let read = Template::from_record(record.clone()).unwrap();
    assert_eq!((read.content.tags, read.content.request, read.content.memory), (vec![], None, false));
    assert_eq!(read.content.settings, ImageSettings::default());
    record.content = "{}".to_owned();
    assert!(Template::from_record(record).is_err());
}

#[test]
fn only_a_ready_template_has_a_result() {
    let snapshots: Vec<SnapshotId> =
        (1..3).map(|number| SnapshotId::from_random(std::array::from_fn(|_| number))).collect();
    let with = |state| Template { snapshots: snapshots.clone(), ..template(1, 1, state) };
    assert_eq!(with(TemplateState::Ready).result(), snapshots.last());
    for state in TemplateState::ALL.into_iter().filter(|state| *state != TemplateState::Ready) {
        assert_eq!(with(state).result(), None, "{}", state.name());
    }
}

#[test]
fn a_template_is_named_by_id_version_or_tag() {
    let mut named = template(1, 12, TemplateState::Ready);
    named.content.tags = vec!["stable".to_owned()];
    let id = named.id.to_string();
    for text in [id.as_str(), "name:12", "name:stable"] {
        assert!(named.is_named(text), "{text}");
    }
    for text in ["name", "name:1", "name:012", "name:", "other:12", "other:stable", ":stable", "stable", ""] {
        assert!(!named.is_named(text), "{text}");
    }
}
