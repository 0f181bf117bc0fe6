//! Tags of templates: other names for one version, as `NAME:TAG`.

use std::sync::Arc;

use store::Batch;

use crate::builder::Builder;
use crate::error::BuilderError;
use crate::template::{SharedTemplate, Template};

impl Builder {
    /// Adds tags to a template. Other versions of its name lose them.
    pub async fn add_tags(
        &self,
        template: &Template,
        tags: &[String],
    ) -> Result<SharedTemplate, BuilderError> {
        let _creating = self.shared.creating.acquire(&template.account).await;
        let current = self.find(&template.account, &template.id)?;
        let (tagged, mut changed) = with_tags(&current, tags, &self.list(&template.account));
        changed.push(tagged.clone());
        self.put_all(changed).await?;
        Ok(Arc::new(tagged))
    }

    /// Removes tags from all versions of a name. Returns the number of versions that had some.
    pub async fn remove_tags(
        &self,
        account: &str,
        name: &str,
        tags: &[String],
    ) -> Result<usize, BuilderError> {
        let _creating = self.shared.creating.acquire(account).await;
        let own = self.list(account).into_iter().filter(|template| template.name == name);
        let changed: Vec<Template> = own.filter_map(|template| without(&template, tags)).collect();
        let count = changed.len();
        self.put_all(changed).await?;
        Ok(count)
    }

    async fn put_all(&self, templates: Vec<Template>) -> Result<(), BuilderError> {
        let put = |batch: Batch, template: &Template| batch.put_template(template.to_record());
        self.shared.store.commit(templates.iter().fold(Batch::new(), put)).await?;
        for template in templates {
            self.shared.registry.update(Arc::new(template));
        }
        Ok(())
    }
}

/// The template with the tags, and the other versions of its name that lose some of them. `own` are all templates of the account.
fn with_tags(template: &Template, tags: &[String], own: &[SharedTemplate]) -> (Template, Vec<Template>) {
    let mut tagged = template.clone();
    tagged.content.tags.retain(|tag| !tags.contains(tag));
    tagged.content.tags.extend_from_slice(tags);
    let others = own.iter().filter(|other| other.name == template.name && other.id != template.id);
    (tagged, others.filter_map(|other| without(other, tags)).collect())
}

/// The template without the tags, if it has one of them.
fn without(template: &Template, tags: &[String]) -> Option<Template> {
    let has_some = template.content.tags.iter().any(|tag| tags.contains(tag));
    has_some.then(|| {
        let mut changed = template.clone();
        changed.content.tags.retain(|tag| !tags.contains(tag));
        changed
    })
}

#[cfg(test)]
mod tests {
    use api::TemplateState;

    use super::*;
    use crate::template::tests::template;

    fn tagged(number: u8, tags: &[&str]) -> Template {
        let mut template = template(number, number.into(), TemplateState::Ready);
        template.content.tags = texts(tags);
        template
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_version_keeps_its_other_tags_and_has_none_twice() {
        let template = tagged(1, &["default", "stable", "v1"]);
        let (changed, others) = with_tags(&template, &texts(&["stable", "latest"]), &[]);
        assert_eq!(changed.content.tags, ["default", "v1", "stable", "latest"]);
        assert!(others.is_empty());
    }

    #[test]
    fn other_versions_of_the_name_lose_the_tags() {
        let template = tagged(1, &["default"]);
        let other_name = Template { name: "other".to_owned(), ..tagged(4, &["stable"]) };
        let own = [
            template.clone(),
            tagged(2, &["stable", "v2"]),
            // It has none of the tags, and its record is not written.
            tagged(3, &["default"]),
            other_name,
        ];
        let own = own.map(Arc::new);
        let (changed, others) = with_tags(&template, &texts(&["stable"]), &own);
        assert_eq!(changed.content.tags, ["default", "stable"]);
        let lost: Vec<_> = others.into_iter().map(|other| (other.version, other.content.tags)).collect();
        assert_eq!(lost, [(2, texts(&["v2"]))]);
    }

    #[test]
    fn a_version_without_the_tags_does_not_change() {
        assert_eq!(without(&tagged(1, &["v1"]), &texts(&["v2"])), None);
        assert_eq!(without(&tagged(1, &[]), &texts(&["v2"])), None);
        let changed = without(&tagged(1, &["v1", "v2", "v3"]), &texts(&["v3", "v1", "v4"])).unwrap();
        assert_eq!(changed.content.tags, ["v2"]);
    }
}
