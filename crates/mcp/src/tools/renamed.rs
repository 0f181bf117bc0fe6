//! Tools of earlier versions, for hosts and prompts that still have their names.

use crate::failure::ToolFailure;

/// A tool that is an action of another one now.
#[derive(Debug)]
pub struct Renamed {
    pub old: &'static str,
    pub tool: &'static str,
    pub action: &'static str,
}

const fn renamed(old: &'static str, tool: &'static str, action: &'static str) -> Renamed {
    Renamed { old, tool, action }
}

/// The tools of earlier versions.
pub const RENAMED: [Renamed; 11] = [
    renamed("list_sandboxes", "manage_sandboxes", "list"),
    renamed("fork_sandbox", "manage_sandboxes", "fork"),
    renamed("terminate_sandbox", "manage_sandboxes", "terminate"),
    renamed("take_snapshot", "manage_snapshots", "take"),
    renamed("list_snapshots", "manage_snapshots", "list"),
    renamed("rollback_sandbox", "manage_snapshots", "rollback"),
    renamed("delete_snapshot", "manage_snapshots", "delete"),
    renamed("build_template", "manage_templates", "build"),
    renamed("read_build_log", "manage_templates", "read_log"),
    renamed("list_templates", "manage_templates", "list"),
    renamed("delete_template", "manage_templates", "delete"),
];

/// The failure of a call of an earlier name; none if no tool has had it.
pub fn failure(name: &str) -> Option<ToolFailure> {
    let Renamed { old, tool, action } = RENAMED.iter().find(|renamed| renamed.old == name)?;
    Some(ToolFailure::new(
        format!("There is no tool {old} any more; {tool} does this."),
        format!("Call {tool} with \"action\": \"{action}\" and the same other arguments."),
    ))
}
