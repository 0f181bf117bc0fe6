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
        let mut changed = Template::clone(&*self.find(&template.account, &template.id)?);
        changed.content.tags.retain(|tag| !tags.contains(tag));
        changed.content.tags.extend_from_slice(tags);
        let others = self.list(&template.account).into_iter();
        let others = others.filter(|other| other.name == template.name && other.id != template.id);
        let mut all: Vec<Template> = others.filter_map(|other| without(&other, tags)).collect();
        all.push(changed.clone());
        self.put_all(all).await?;
        Ok(Arc::new(changed))
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

/// The template without the tags, if it has one of them.
fn without(template: &Template, tags: &[String]) -> Option<Template> {
    let has_some = template.content.tags.iter().any(|tag| tags.contains(tag));
    has_some.then(|| {
        let mut changed = template.clone();
        changed.content.tags.retain(|tag| !tags.contains(tag));
        changed
    })
}
