//! What the `FROM` of a Dockerfile can name: an image of the catalogue or one that the account may name, a template or a snapshot of the
//! account, by its id or its name.

use std::sync::{Arc, Weak};
use std::time::Duration;

use api::bounds::WORKDIR_DEFAULT;
use api::{SnapshotId, TemplateId};
use async_trait::async_trait;
use builder::{Base, Bases, BuildError};
use dockerfile::ImageSettings;
use rules::IsolationRules;

use crate::Service;
use crate::error::{OperationKind, of_engine};
use crate::images::{self, PullWait, find_image};
use crate::snapshot_names;

/// A build waits this long for a pull. Its own timeout may end it earlier.
const PULL_TIMEOUT: Duration = Duration::from_secs(3600);

/// Does not keep the service alive.
struct ServiceBases(Weak<Service>);

/// The bases that builds of this service can name.
pub fn bases(service: &Arc<Service>) -> Arc<dyn Bases> {
    Arc::new(ServiceBases(Arc::downgrade(service)))
}

#[async_trait]
impl Bases for ServiceBases {
    async fn find(&self, account: &str, name: &str) -> Result<Base, BuildError> {
        let service = self.0.upgrade().ok_or_else(|| BuildError::new("the service is stopping"))?;
        if let Some(template) = service.builder.named(account, name) {
            return of_template(&service, &template);
        }
        if name.starts_with(TemplateId::PREFIX) {
            return Err(BuildError::new(format!("template {} does not exist", rules::quoted(name))));
        }
        if name.starts_with(SnapshotId::PREFIX) {
            let missing = || BuildError::new(format!("snapshot {} does not exist", rules::quoted(name)));
            let id: SnapshotId = name.parse().map_err(|_| missing())?;
            return of_snapshot(&service, account, name, &id).await;
        }
        if let Some(id) = snapshot_names::image_named(&service, account, name) {
            return of_snapshot(&service, account, name, &id).await;
        }
        let found = find_image(&service, account, name, PullWait::of_build(PULL_TIMEOUT)).await;
        let found = found.map_err(|error| BuildError::new(error.message))?;
        let (image, config) = (images::template(&found), found.config.clone());
        let settings = ImageSettings {
            env: config.env,
            workdir: config.workdir.filter(|path| path.starts_with('/') && path.len() > 1),
            user: config.user.filter(|user| !["", "0", "root", "0:0", "root:root"].contains(&user.as_str())),
            ..ImageSettings::default()
        };
        let identity = format!("image {}", image.digest);
        // Otherwise a template would be a way around the minimum of an image.
        let isolation = IsolationRules::new(&service.isolation, account).minimum(name);
        Ok(Base { image, settings, identity, isolation, disk_mb: 0, stand_in: found.stand_in.clone() })
    }
}

fn of_template(service: &Service, template: &builder::Template) -> Result<Base, BuildError> {
    let failed = |error: builder::BuilderError| BuildError::new(error.to_string());
    let (resources, isolation) = service.builder.minimum(template).map_err(failed)?;
    let mut image = service.builder.image(template).map_err(failed)?;
    // The steps run without the start command of the base.
    image.processes_from = None;
    Ok(Base {
        image,
        settings: template.content.settings.clone(),
        identity: format!("snapshot {:?}", template.result()),
        isolation,
        disk_mb: resources.disk_mb,
        stand_in: None,
    })
}

/// `name`: what the Dockerfile has, the id of the snapshot or its name.
async fn of_snapshot(
    service: &Service,
    account: &str,
    name: &str,
    id: &SnapshotId,
) -> Result<Base, BuildError> {
    let found = service.engine.snapshot_template(account, id).await;
    let (mut image, snapshot) =
        found.map_err(|error| BuildError::new(of_engine(error, None, OperationKind::Other).message))?;
    image.processes_from = None;
    let pair = |variable: &String| {
        let (name, value) = variable.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    let env = snapshot.image_env.iter().filter_map(pair).collect();
    Ok(Base {
        image,
        // The default one is not chosen by anybody: steps above an image begin in the root directory, too.
        settings: ImageSettings {
            env,
            workdir: snapshot.workdir.clone().filter(|path| path != WORKDIR_DEFAULT && path != "/"),
            ..ImageSettings::default()
        },
        identity: format!("snapshot {id}"),
        isolation: IsolationRules::new(&service.isolation, account)
            .above(snapshot.isolation, &service.engine.images_below(&snapshot))
            .minimum(name),
        disk_mb: snapshot.resources.disk_mb,
        stand_in: None,
    })
}
