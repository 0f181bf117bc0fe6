//! `sbx template`: lists and deletes templates, shows the logs of builds, and cancels builds.

use std::fmt;
use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::{Client, TemplateId, TemplateState, TemplateView};

use super::batch::{BatchForm, ItemResult, for_each};
use super::build::{self, LogDisplay};
use crate::cli::TemplateCommand;
use crate::output::{self, OutputFormat};
use crate::progress::size;
use crate::style::{Paint, Tone};
use crate::table::{age, plain, table};

/// Prints a table, the log of a build, or the ids of what it cancelled or deleted.
pub async fn template(client: &Client, format: OutputFormat, command: TemplateCommand) -> Result<ExitCode> {
    match command {
        TemplateCommand::List { name, metadata, quiet } => {
            let found = list(client, name, metadata).await?;
            if quiet {
                return format.print_ids(&found, |template| template.id.to_string());
            }
            format.print(&found, |paint| render(&found, base::unix_ms(), paint))
        }
        TemplateCommand::Logs { id } => {
            let template = build::follow(client, &id, LogDisplay::beside(format)).await?;
            if format == OutputFormat::Json {
                output::json(&template)?;
            }
            let is_ready = template.state == TemplateState::Ready;
            Ok(if is_ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        TemplateCommand::Cancel { ids } => {
            for_each(&ids, BatchForm::of(format, ids.len()), async |id: &String| {
                ItemResult::new(id, client.cancel_template(id).await?).map(Some)
            })
            .await
        }
        TemplateCommand::Rm { ids, failed } => {
            let found =
                if failed { failed_builds(client).await? } else { with_versions(client, ids).await? };
            for_each(
                &found,
                BatchForm::of(format, found.len()),
                async |found: &Result<String, NoTemplate>| {
                    let id = found.as_ref().map_err(NoTemplate::clone)?;
                    ItemResult::new(id, client.delete_template(id).await?).map(Some)
                },
            )
            .await
        }
    }
}

/// No template has this name.
#[derive(Debug, Clone)]
struct NoTemplate(String);

impl fmt::Display for NoTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no template '{}'; 'sbx template ls' lists templates", self.0.escape_debug())
    }
}

impl std::error::Error for NoTemplate {}

/// The ids of the builds that did not end with a template.
async fn failed_builds(client: &Client) -> Result<Vec<Result<String, NoTemplate>>> {
    let mut all = client.templates().all().await?;
    all.retain(|template| template.state.is_final() && template.state != TemplateState::Ready);
    Ok(all.into_iter().map(|template| Ok(template.id.to_string())).collect())
}

/// Replaces names by the ids of all their versions, and `NAME:VERSION` by the id of this one. A name without a template does not keep the
/// others from being deleted.
async fn with_versions(client: &Client, ids: Vec<String>) -> Result<Vec<Result<String, NoTemplate>>> {
    let mut all = Vec::new();
    for id in ids {
        if id.starts_with(TemplateId::PREFIX) {
            all.push(Ok(id));
            continue;
        }
        let (name, version) = name_and_version(&id);
        let mut versions = client.templates().name(name).all().await?;
        versions.retain(|template| version.is_none_or(|version| template.version == version));
        if versions.is_empty() {
            all.push(Err(NoTemplate(id)));
        }
        all.extend(versions.into_iter().map(|template| Ok(template.id.to_string())));
    }
    Ok(all)
}

/// The name and the version of a template as the list shows them.
fn name_and_version(text: &str) -> (&str, Option<u32>) {
    match text.rsplit_once(':').map(|(name, version)| (name, version.parse())) {
        Some((name, Ok(version))) => (name, Some(version)),
        _ => (text, None),
    }
}

async fn list(
    client: &Client,
    name: Option<String>,
    metadata: Vec<(String, String)>,
) -> Result<Vec<TemplateView>> {
    let named = name.into_iter().fold(client.templates(), |query, name| query.name(name));
    let query = metadata.into_iter().fold(named, |query, (key, value)| query.metadata(key, value));
    Ok(query.all().await?)
}

fn render(templates: &[TemplateView], now_ms: u64, paint: Paint) -> String {
    let rows = templates.iter().map(|template| {
        [
            (template.id.to_string(), Tone::Bold),
            plain(format!("{}:{}", template.name, template.version)),
            plain(template.state.name()),
            plain(&template.base),
            plain(size(template.size_bytes)),
            plain(age(now_ms.saturating_sub(template.created_at.0))),
        ]
    });
    table(["ID", "NAME", "STATE", "BASE", "SIZE", "AGE"], rows, paint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_a_version() {
        assert_eq!(name_and_version("web2:1"), ("web2", Some(1)));
        assert_eq!((name_and_version("web2"), name_and_version("web:x")), (("web2", None), ("web:x", None)));
    }

    #[test]
    fn a_row_shows_name_version_and_state() {
        let json = r#"[{"id":"tpl_abcdefgh","name":"web","version":3,"state":"ready","base":"ubuntu:24.04",
            "isolation":"container","steps":{"total":2,"done":2,"cached":1},"sizeBytes":5000000,"memory":false,
            "metadata":{},"createdAt":"1970-01-01T00:01:00Z","finishedAt":"1970-01-01T00:01:10Z"}]"#;
        let templates: Vec<TemplateView> = serde_json::from_str(json).unwrap();
        assert_eq!(
            render(&templates, 180_000, Paint::None),
            "ID            NAME   STATE  BASE          SIZE    AGE\n\
             tpl_abcdefgh  web:3  ready  ubuntu:24.04  5.0 MB  2m\n"
        );
    }
}
