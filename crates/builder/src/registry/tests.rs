use std::path::Path;

use api::TemplateState::{Building, Cancelled, Failed, Queued, Ready};
use rules::TimeMs;

use super::*;
use crate::template::tests::{request, template};

fn registry(templates: impl IntoIterator<Item = Template>) -> Registry {
    let registry = Registry::default();
    for template in templates {
        // The file of a log is not read here.
        registry.insert(RegisteredTemplate::new(template, BuildLog::of_finished(Path::new("/missing"))));
    }
    registry
}

fn with_tags(template: Template, tags: &[&str]) -> Template {
    let mut template = template;
    template.content.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    template
}

fn version_named(registry: &Registry, text: &str) -> Option<u32> {
    registry.named("one", text).map(|template| template.version)
}

#[test]
fn a_name_alone_is_the_newest_version_that_is_ready() {
    let registry = registry([
        template(1, 1, Ready),
        template(2, 2, Ready),
        template(3, 3, Building),
        template(4, 4, Failed),
    ]);
    assert_eq!(version_named(&registry, "name"), Some(2));
    assert_eq!(version_named(&registry, "other"), None);
    assert!(registry.named("two", "name").is_none(), "a template belongs to its account");
}

#[test]
fn the_number_of_a_version_counts_and_not_the_time_of_its_creation() {
    let registry = registry([template(5, 1, Ready), template(2, 2, Ready)]);
    assert_eq!(version_named(&registry, "name"), Some(2));
}

#[test]
fn a_version_is_named_by_its_number_a_tag_or_its_id() {
    let first = with_tags(template(1, 1, Ready), &["stable"]);
    let id = first.id.to_string();
    let registry = registry([first, template(2, 2, Ready), with_tags(template(3, 3, Building), &["next"])]);
    for text in ["name:1", "name:stable", &id] {
        assert_eq!(version_named(&registry, text), Some(1), "{text}");
    }
    for text in ["name:3", "name:next", "name:4", "name:"] {
        assert_eq!(version_named(&registry, text), None, "{text}");
    }
}

#[test]
fn templates_are_listed_newest_first_and_builds_by_their_end() {
    let ended =
        |number: u8, at: u64| Template { finished_at: Some(TimeMs(at)), ..template(number, 1, Failed) };
    let other = Template { account: "two".to_owned(), ..template(9, 1, Ready) };
    let registry = registry([ended(1, 300), ended(3, 100), ended(2, 200), template(4, 1, Building), other]);
    let newest = |templates: Vec<SharedTemplate>| {
        templates.into_iter().map(|template| template.created_at.0 - 1000).collect::<Vec<_>>()
    };
    assert_eq!(newest(registry.of_account("one")), [4, 3, 2, 1]);
    let finished = registry.finished("one").into_iter().map(|entry| entry.template).collect();
    assert_eq!(newest(finished), [1, 2, 3]);
    assert_eq!(registry.all().len(), 5);
}

#[test]
fn a_template_is_found_by_its_account_only() {
    let known = template(1, 1, Ready);
    let registry = registry([known.clone()]);
    assert_eq!(*registry.find("one", &known.id).unwrap().template, known);
    for (account, id) in [("two", &known.id), ("one", &template(2, 1, Ready).id)] {
        let missing = registry.find(account, id).unwrap_err();
        assert!(
            matches!(&missing, BuilderError::NotFound { id: named } if *named == id.to_string()),
            "{missing}"
        );
    }
    registry.remove(&known.id);
    assert!(registry.find("one", &known.id).is_err());
}

#[test]
fn progress_of_a_build_does_not_bring_back_its_tags() {
    let build = template(1, 1, Building);
    let registry = registry([with_tags(build.clone(), &["moved"])]);
    let mut further = build.clone();
    further.content.steps.done = 2;
    registry.advance(further);
    let shown = registry.find("one", &build.id).unwrap().template;
    assert_eq!((shown.content.steps.done, &shown.content.tags[..]), (2, &["moved".to_owned()][..]));
    registry.update(Arc::new(with_tags(build.clone(), &["set"])));
    assert_eq!(registry.find("one", &build.id).unwrap().template.content.tags, ["set"]);
}

#[test]
fn a_deleted_template_does_not_come_back() {
    let build = template(1, 1, Building);
    let registry = registry([]);
    registry.advance(build.clone());
    registry.update(Arc::new(build));
    assert!(registry.all().is_empty());
}

#[test]
fn the_first_reason_to_cancel_a_build_counts() {
    let entry =
        RegisteredTemplate::new(template(1, 1, Building), BuildLog::of_finished(Path::new("/missing")));
    assert!(entry.cancelled().is_none() && !entry.stop.is_cancelled() && !entry.ended.is_cancelled());
    entry.cancel(CancelReason::Replaced);
    entry.cancel(CancelReason::Request);
    assert_eq!(entry.cancelled(), Some(CancelReason::Replaced));
    assert!(entry.stop.is_cancelled() && !entry.ended.is_cancelled());
    let over =
        RegisteredTemplate::new(template(1, 1, Cancelled), BuildLog::of_finished(Path::new("/missing")));
    assert!(over.ended.is_cancelled());
}

/// The next version of a name, or why there is none.
fn next(registry: &Registry, name: &str, quotas: &Quotas, replaced: usize) -> Result<u32, String> {
    registry.next_version("one", name, quotas, replaced).map_err(|error| error.to_string())
}

#[test]
fn versions_are_counted_for_each_name_whatever_became_of_them() {
    let other = Template { name: "other".to_owned(), ..template(3, 9, Ready) };
    let foreign = Template { account: "two".to_owned(), ..template(4, 7, Ready) };
    let registry = registry([template(1, 1, Ready), template(2, 2, Failed), other, foreign]);
    let quotas = Quotas::default();
    let versions = ["name", "other", "new"].map(|name| next(&registry, name, &quotas, 0).unwrap());
    assert_eq!(versions, [3, 10, 1]);
}

#[test]
fn the_last_version_is_not_exceeded() {
    let registry = registry([template(1, u32::MAX, Ready)]);
    assert_eq!(next(&registry, "name", &Quotas::default(), 0), Ok(u32::MAX));
}

#[test]
fn an_account_has_at_most_twenty_builds_that_are_not_over() {
    let active = |count: u8| {
        let builds = (1..=count)
            .map(|number| template(number, number.into(), if number % 2 == 0 { Queued } else { Building }));
        registry(builds.chain([template(31, 31, Failed)]))
    };
    let quotas = Quotas::default();
    assert_eq!(next(&active(19), "name", &quotas, 0), Ok(32));
    let refused = next(&active(20), "name", &quotas, 0).unwrap_err();
    assert!(refused.starts_with("20 builds of the account are queued or running; allowed: 20"), "{refused}");
    // One that the new build replaces makes room.
    assert_eq!(next(&active(20), "name", &quotas, 1), Ok(32));
}

#[test]
fn templates_count_in_the_quota_of_their_account() {
    let registry = registry([template(1, 1, Ready), template(2, 2, Failed)]);
    let quotas = |templates| Quotas { templates: Some(templates), ..Quotas::default() };
    assert_eq!(next(&registry, "name", &quotas(3), 0), Ok(3));
    let refused = registry.next_version("one", "name", &quotas(2), 0).unwrap_err();
    assert!(matches!(refused, BuilderError::Engine(_)), "{refused}");
    assert!(registry.next_version("two", "name", &quotas(2), 0).is_ok());
}

#[test]
fn contexts_count_until_their_builds_are_over() {
    let with_context = |template: Template, bytes| {
        let mut template = template;
        template.content.context_bytes = bytes;
        template
    };
    let foreign = Template { account: "two".to_owned(), ..template(4, 1, Queued) };
    let registry = registry([
        with_context(template(1, 1, Queued), 30),
        with_context(template(2, 2, Building), 50),
        with_context(template(3, 3, Ready), 1000),
        with_context(foreign, 1000),
    ]);
    let check = |bytes| registry.check_contexts("one", bytes, 100);
    assert!(check(20).is_ok());
    let refused = check(21).unwrap_err();
    let expected = (80, 100);
    assert!(
        matches!(refused, BuilderError::QueuedContexts { used_bytes, allowed_bytes } if (used_bytes, allowed_bytes) == expected),
        "{refused}"
    );
    assert!(check(u64::MAX).is_err());
    // A build without a context adds nothing, also if there is too much already.
    assert!(registry.check_contexts("one", 0, 10).is_ok());
}

/// The builds that a request for `FROM changed` with tags replaces, by their versions.
fn replaced(registry: &Registry, tags: &[&str]) -> Vec<u32> {
    let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    let new = NewTemplate { tags, ..request("FROM changed\n", None) };
    let found = registry.replaced_by("one", &new).unwrap();
    let mut versions: Vec<u32> = found.into_iter().map(|entry| entry.template.version).collect();
    versions.sort_unstable();
    versions
}

#[test]
fn builds_in_progress_with_the_name_and_a_tag_are_replaced() {
    let other_name = Template { name: "other".to_owned(), ..template(6, 6, Building) };
    let foreign = Template { account: "two".to_owned(), ..template(7, 7, Building) };
    let registry = registry([
        template(1, 1, Queued),
        with_tags(template(2, 2, Building), &["v2", "default"]),
        with_tags(template(3, 3, Building), &["v3"]),
        template(4, 4, Ready),
        template(5, 5, Cancelled),
        other_name,
        foreign,
    ]);
    assert_eq!(replaced(&registry, &[]), [1, 2]);
    assert_eq!(replaced(&registry, &["v2", "v3"]), [2, 3]);
    assert!(replaced(&registry, &["v4"]).is_empty());
    // One that ends already is not replaced again.
    registry.find("one", &template(1, 1, Queued).id).unwrap().cancel(CancelReason::Request);
    assert_eq!(replaced(&registry, &[]), [2]);
}

#[test]
fn an_identical_build_in_progress_is_named_instead_of_replaced() {
    let same = template(1, 1, Building);
    let registry = registry([same.clone(), template(2, 2, Ready)]);
    let refused = registry.replaced_by("one", &request("FROM base\n", None)).unwrap_err();
    assert!(matches!(&refused, BuilderError::InProgress { id } if *id == same.id), "{refused}");
    let of_another_tag = NewTemplate { tags: vec!["v1".to_owned()], ..request("FROM base\n", None) };
    assert!(registry.replaced_by("one", &of_another_tag).unwrap().is_empty());
}
