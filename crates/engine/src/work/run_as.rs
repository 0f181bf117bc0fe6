//! On whose behalf a command runs, and its environment. Used by the starts of attached and detached executions.

use std::collections::BTreeMap;

use api::SandboxConfig;
use guest_proto::{NewPrivileges, RunAs};
use store::SandboxRecord;

/// Set by the agent for a command with a user, unless the sandbox or the command sets them.
const OF_USER: [&str; 3] = ["HOME", "LOGNAME", "USER"];

/// `None` for root, which needs no lookup.
pub fn run_as<'a>(config: &SandboxConfig, user: Option<&'a str>) -> Option<RunAs<'a>> {
    let new_privileges = if config.default_user { NewPrivileges::Allowed } else { NewPrivileges::Denied };
    user.map(|user| RunAs { user, new_privileges })
}

/// All variables of a command.
pub fn environment(
    sandbox: &SandboxRecord,
    env: &BTreeMap<String, String>,
    user: Option<&str>,
) -> BTreeMap<String, String> {
    let mut all = rules::environment(&sandbox.image_env, &sandbox.config.env, env);
    if user.is_some() {
        all.retain(|name, _| {
            !OF_USER.contains(&name.as_str())
                || env.contains_key(name)
                || sandbox.config.env.contains_key(name)
        });
    }
    all
}
