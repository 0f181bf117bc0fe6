//! The user and the directory of commands that name none: the last `USER` and `WORKDIR` of a template. Pure.
//!
//! They belong to a template, to the options of its sandboxes, and to the metadata of the snapshots of these.

use std::collections::BTreeMap;

use builder::Template;

use crate::options::E2bOptions;

/// The user of commands and files if the template says nothing.
const USER: &str = "user";
const ROOT: &str = "root";
/// Where homes are.
const HOMES: &str = "/home/"; // tidy: allow(machine-path): inside of sandboxes
const ROOT_DIRECTORY: &str = "/";
const USER_KEY: &str = "e2b.user";
const WORKDIR_KEY: &str = "e2b.workdir";

/// `None` where the template says nothing: [`USER`], and the home of the user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunDefaults {
    pub user: Option<String>,
    pub workdir: Option<String>,
}

impl RunDefaults {
    pub fn of_template(template: &Template) -> Self {
        let (settings, config) = (&template.content.settings, &template.content.config);
        let (user, workdir) = (settings.user.clone(), settings.workdir.clone());
        if !config.default_user {
            return Self { user, workdir };
        }
        // Builds of this API begin with a user and a directory. Settings without them are those of root.
        let or = |given: Option<String>, other: &str| given.or_else(|| Some(other.to_owned()));
        Self { user: or(user, ROOT), workdir: or(workdir, ROOT_DIRECTORY) }
    }

    pub fn of_sandbox(options: &E2bOptions) -> Self {
        Self { user: options.user.clone(), workdir: options.workdir.clone() }
    }

    /// Of a snapshot that has them in its metadata.
    pub fn of_snapshot(metadata: &BTreeMap<String, String>) -> Self {
        let value = |key: &str| metadata.get(key).filter(|value| !value.is_empty()).cloned();
        Self { user: value(USER_KEY), workdir: value(WORKDIR_KEY) }
    }

    /// Adds them to the metadata of a snapshot.
    pub fn add_to(self, metadata: &mut BTreeMap<String, String>) {
        let given = [(USER_KEY, self.user), (WORKDIR_KEY, self.workdir)];
        metadata.extend(given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    }

    pub fn user(&self) -> &str {
        self.user.as_deref().unwrap_or(USER)
    }

    /// The directory of a command of a user that names none; `None` is the user's home. The clients write the home of the default user
    /// into templates that say nothing: for another user that is the home of the other user, below which relative paths of files are.
    pub fn workdir_of(&self, user: &str) -> Option<String> {
        let home = format!("{HOMES}{}", self.user());
        self.workdir.clone().filter(|workdir| user == self.user() || *workdir != home)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_of_the_default_user_is_no_directory_of_others() {
        let defaults = |workdir: &str| RunDefaults { user: None, workdir: Some(workdir.to_owned()) };
        let path = format!("{HOMES}user");
        let home = defaults(&path);
        assert_eq!((home.workdir_of("user").as_ref(), home.workdir_of("root")), (Some(&path), None));
        assert_eq!(defaults("/srv").workdir_of("root").as_deref(), Some("/srv"));
        assert_eq!(RunDefaults::default().workdir_of("user"), None);
        let of_app = RunDefaults { user: Some("app".to_owned()), ..home };
        assert_eq!(of_app.workdir_of("root"), Some(path));
    }

    #[test]
    fn a_snapshot_keeps_them() {
        for (user, workdir) in [(None, None), (Some("root"), None), (Some("app"), Some("/srv"))] {
            let given = RunDefaults { user: user.map(str::to_owned), workdir: workdir.map(str::to_owned) };
            let mut metadata = BTreeMap::from([("own".to_owned(), "kept".to_owned())]);
            given.clone().add_to(&mut metadata);
            assert_eq!(RunDefaults::of_snapshot(&metadata), given);
            assert_eq!(metadata["own"], "kept");
        }
    }
}
