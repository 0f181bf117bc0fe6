//! What users of Docker type, and what sbx has instead.

/// Names with the same hint.
pub type Names = &'static [&'static str];

const PROCESSES: &str = "'sbx ls' lists sandboxes; 'sbx ps SANDBOX' lists the processes in one";
pub const NETWORKS: &str = "each sandbox has a network of its own, which reaches all public addresses: --network of 'sbx create' restricts it, and \
    'sbx network allow' changes that";
const IMAGES: &str = "'sbx images' lists images; 'sandboxd image' on the machine of the service pulls, imports and removes them";
const NO_PRIVILEGES: &str =
    "a sandbox has no privileges or devices of the host; --isolation sets what separates it from the host";
const COPIES: &str =
    "nothing is mounted; -v LOCAL:PATH of 'sbx run' copies files into the sandbox, and 'sbx cp' copies later";
const INSPECTED: &str = "it prints JSON, which 'jq' can select from: sbx inspect SANDBOX | jq -r '.[].state'";
pub const HOST_NAME: &str = "--hostname has no counterpart, as the host name is made from the id of the sandbox; --name names the sandbox";
const NO_COUNTERPART: &str = "leave it out: sbx has no counterpart";
const ISOLATED: &str = "leave it out: nothing of the host or of other sandboxes is shared";
const ADDRESSES: &str = "leave it out: the service chooses the addresses of a sandbox";
const UNCONNECTED: &str = "not possible: sandboxes are not connected to each other, and do not reach each other's exposed ports; run both programs in one \
    sandbox, where they reach each other at localhost: 'sbx exec -d SANDBOX COMMAND' starts each";
const KEPT: &str = "'sbx run' has no such option: 'sbx create' has, and 'sbx exec -d SANDBOX COMMAND' starts a command in its sandbox";
const MEMORY: &str = "leave it out: --memory sets the memory, and nothing is swapped";
const NO_COMMAND: &str = "'sbx create' starts no command: 'sbx run -d IMAGE COMMAND' does, and 'sbx exec SANDBOX COMMAND' runs one later";
pub const FAILED_BUILDS: &str = "'sbx template rm --failed' deletes what is left of failed builds";
pub const NEW_SNAPSHOT: &str =
    "'sbx snapshot create SANDBOX' stores the disk and prints the id of the snapshot";
const TABLES: &str = "--json prints everything, which 'jq' can select from";

/// Commands of Docker, and common names of such commands, that sbx does not have.
pub const COMMANDS: &[(Names, &str)] = &[
    (&["stop"], "'sbx pause SANDBOX' freezes a sandbox and keeps it, 'sbx rm SANDBOX' terminates it"),
    (&["start", "unpause"], "'sbx resume SANDBOX' resumes a paused sandbox; so does the next command"),
    (
        &["restart"],
        "'sbx pause SANDBOX' and 'sbx resume --cold SANDBOX' end all processes and keep the disk, and start nothing again: 'sbx exec -d SANDBOX \
         COMMAND' does, and the start command of a template ('sbx build --start') starts with each new sandbox",
    ),
    (
        &["commit"],
        "'sbx snapshot create --name NAME SANDBOX' stores the disk, and 'sbx run NAME COMMAND' starts from it",
    ),
    (
        &["attach"],
        "'sbx logs -f SANDBOX EXECUTION' follows a command; 'sbx shell --attach EXECUTION SANDBOX' attaches to a terminal",
    ),
    (&["wait"], "'sbx logs -f SANDBOX EXECUTION' waits for a detached command and exits with its code"),
    (&["port"], "'sbx ports SANDBOX' lists exposed ports, 'sbx expose SANDBOX PORT' exposes one"),
    (&["compose"], UNCONNECTED),
    (&["history"], "'sbx template logs TEMPLATE' shows how a template was built"),
    (&["diff"], "'sbx exec SANDBOX find / -xdev -mmin -60' lists the files that changed in the last hour"),
    (
        &["search"],
        "'sbx images' lists images; 'sbx run NAME COMMAND' also pulls others of registries, if the operator allows it",
    ),
    (
        &["logout"],
        "'sbx login' saves another key; the keys are in sbx/config.toml in $XDG_CONFIG_HOME or ~/.config",
    ),
    (
        &["context"],
        "'sbx login --profile NAME' saves another service, and --profile NAME or SBX_PROFILE selects it",
    ),
    (&["rename"], "--name of 'sbx create' names a sandbox, for as long as it lives"),
    (&["update"], "'sbx timeout' and 'sbx network' change a sandbox; its size is set when it is created"),
    (&["container"], "leave 'container' out: 'sbx ls', 'sbx run', 'sbx rm SANDBOX'"),
    (
        &["pull"],
        "'sbx run' and 'sbx create' pull a missing image; 'sandboxd image pull NAME' does so on the machine of the service",
    ),
    (&["image", "load", "import"], IMAGES),
    (
        &["rmi"],
        "'sbx template rm' and 'sbx snapshot rm' delete your own; 'sandboxd image remove NAME' removes an image on the machine of the service",
    ),
    (&["tag", "push"], "'sbx build -t NAME' names a template; templates stay in the service"),
    (
        &["save", "export"],
        "'sbx snapshot create SANDBOX' stores the disk; 'sbx cp SANDBOX:DIR -' prints a tar archive",
    ),
    (&["volume"], COPIES),
    (
        &["system", "prune"],
        "'sbx usage' shows what you use; 'sbx rm', 'sbx snapshot rm' and 'sbx template rm' free it",
    ),
    (&["buildx", "builder"], "'sbx build -t NAME [PATH]' builds a template from a Dockerfile"),
    (&["version"], "'sbx --version' prints the version of sbx, 'sbx info' that of the service"),
    (&["remove", "delete", "terminate", "destroy"], "'sbx rm SANDBOX' terminates a sandbox"),
    (&["sh", "bash", "ssh", "enter"], "'sbx shell SANDBOX' opens a terminal"),
    (&["serve", "daemon"], "'sandboxd serve' starts the service"),
];

/// Options of Docker's commands that those of sbx do not have.
pub const OPTIONS: &[(Names, Names, &str)] = &[
    (&["network"], &["--all"], "'sbx network offline SANDBOX' denies all connections"),
    (&["expose"], &["-q", "--quiet"], "leave it out: only the URLs are on standard output"),
    (
        &["run", "create"],
        &["-P", "--publish-all", "--expose"],
        "-p PORT gives a port a URL, and so does 'sbx expose SANDBOX PORT' later",
    ),
    (
        &["create"],
        &["-u", "--user"],
        "commands run as root; -u of 'sbx run' and 'sbx exec' runs one as another user of the sandbox",
    ),
    (&["create"], &["-i", "--interactive", "-t", "--tty", "-d", "--detach"], NO_COMMAND),
    (
        &["run", "create"],
        &["--entrypoint"],
        "the entrypoint of an image is not used: write the program after the image",
    ),
    (&["run", "create"], &["--hostname"], HOST_NAME),
    (
        &["run", "create", "exec"],
        &[
            "--privileged",
            "--cap-add",
            "--cap-drop",
            "--device",
            "--gpus",
            "--security-opt",
            "--runtime",
            "--userns",
        ],
        NO_PRIVILEGES,
    ),
    (
        &["run", "create"],
        &["--ipc", "--pid", "--uts", "--cgroupns", "--cgroup-parent", "--group-add", "--sysctl"],
        ISOLATED,
    ),
    (&["run", "create"], &["--ip", "--ip6", "--mac-address", "--link-local-ip"], ADDRESSES),
    (&["run", "create"], &["--link", "--network-alias", "--net-alias"], UNCONNECTED),
    (
        &["run", "create"],
        &[
            "--memory-swap",
            "--memory-reservation",
            "--memory-swappiness",
            "--kernel-memory",
            "--shm-size",
            "--oom-kill-disable",
            "--oom-score-adj",
        ],
        MEMORY,
    ),
    (
        &["run", "create"],
        &["--stop-timeout", "--stop-signal"],
        "leave it out: the processes are killed when a sandbox ends; 'sbx kill --signal TERM' ends a command before",
    ),
    (
        &["run", "create"],
        &[
            "--pids-limit",
            "--log-driver",
            "--log-opt",
            "--attach",
            "-a",
            "--health-cmd",
            "--health-interval",
            "--health-retries",
            "--health-start-period",
            "--health-timeout",
            "--no-healthcheck",
            "--sig-proxy",
            "-q",
            "--quiet",
            "-c",
            "--cpu-shares",
            "--cpu-period",
            "--cpu-quota",
            "--cpuset-cpus",
            "--cpuset-mems",
            "--blkio-weight",
            "--annotation",
            "--label-file",
            "--volume-driver",
            "--disable-content-trust",
            "--domainname",
        ],
        NO_COUNTERPART,
    ),
    (&["run", "create"], &["--storage-opt"], "--disk 10g sets the size of the disk"),
    (&["run"], &["--pause-on-timeout", "--idle", "--no-auto-resume"], KEPT),
    (&["run", "create"], &["--mount", "--volumes-from"], COPIES),
    (&["run", "create"], &["--tmpfs"], "leave it out: all files end with their sandbox"),
    (
        &["run", "create"],
        &["--read-only"],
        "leave it out: each sandbox has a disk of its own, which ends with it",
    ),
    (&["run", "create"], &["--ulimit"], "the command line can set limits, such as 'ulimit -n 4096; COMMAND'"),
    (
        &["run", "create"],
        &["--add-host"],
        "a line in /etc/hosts of the sandbox adds a name; 'sbx exec' and 'sbx cp' can write it",
    ),
    (
        &["run", "create"],
        &["--dns", "--dns-search", "--dns-option"],
        "the service resolves names; --network sets which domains are allowed",
    ),
    (&["create"], &["-v", "--volume"], COPIES),
    (
        &["create"],
        &["--rm"],
        "leave it out: a sandbox ends at its --timeout and nothing of it stays; 'sbx run' removes its sandbox after the command",
    ),
    (
        &["run", "create"],
        &["--restart"],
        "a sandbox ends at its timeout; --pause-on-timeout of 'sbx create' pauses it instead",
    ),
    (
        &["run", "create", "build"],
        &["--pull"],
        "a missing image is pulled; 'sandboxd image pull NAME' on the machine of the service pulls it again",
    ),
    (
        &["run", "create", "build"],
        &["--platform"],
        "leave it out: sandboxes and images have the architecture of the service's host",
    ),
    (&["run", "create"], &["--init"], "leave it out: every sandbox has an init process"),
    (
        &["build"],
        &["--secret", "--ssh"],
        "leave it out: steps get no secrets; -e of 'sbx create' and 'sbx run' passes one to a sandbox, --build-arg values that may be stored",
    ),
    (
        &["build"],
        &["--iidfile"],
        "'sbx build' prints the id on standard output: ID=$(sbx build -t NAME PATH)",
    ),
    (&["build"], &["--label"], "-m adds metadata to the template"),
    (
        &["build"],
        &["--cache-from", "--cache-to"],
        "leave it out: the service keeps the results of steps, and --no-cache runs them again",
    ),
    (
        &["run", "create"],
        &["--cidfile"],
        "'sbx create' prints the id on standard output: ID=$(sbx create IMAGE); --name names the sandbox",
    ),
    (
        &["run", "exec"],
        &["--detach-keys"],
        "leave it out: no keys leave a terminal; 'sbx exec -d' starts a command that goes on without one",
    ),
    (
        &["build"],
        &["--rm", "--progress", "--load", "--push"],
        "leave it out: it has no meaning for templates",
    ),
    (
        &["logs"],
        &["--since", "--until", "-t", "--timestamps", "--details"],
        "the output has no times: --tail N prints the last lines, 'sbx events SANDBOX' when commands began and ended",
    ),
    (&["ps"], &["-a", "--all", "-q", "--quiet", "-f", "--filter", "--format"], PROCESSES),
    (
        &["ls"],
        &["-f", "--filter", "--name"],
        "'sbx ls NAME' selects by a part of the name; --state, --image and --metadata by others",
    ),
    (&["ls"], &["-l", "--latest", "--last"], "-n 1 lists the newest one"),
    (&["ls"], &["-s", "--size"], "'sbx stats' shows the size of disks"),
    (&["stats"], &["-a", "--all"], "leave it out: terminated sandboxes use nothing"),
    (&["stats"], &["--format", "--no-trunc"], TABLES),
    (&["ls"], &["--no-trunc"], "--wide shows more, --json everything"),
    (&["ls", "images", "info", "events"], &["--format"], TABLES),
    (&["inspect"], &["--format", "-f"], INSPECTED),
    (&["images"], &["-f", "--filter"], TABLES),
    (
        &["open"],
        &["--print", "--url", "--no-browser"],
        "leave it out: 'sbx open SANDBOX PORT' always prints the URL, and opens a browser only on a desktop",
    ),
    (&["rm"], &["-v", "--volumes"], "leave it out: the disk ends with its sandbox"),
    (&["cp"], &["-L", "--follow-link"], "leave it out: a link that is given as FROM is followed"),
    (
        &["cp"],
        &["-r", "-R", "-a", "--archive"],
        "leave it out: directories are copied with all they contain; the copy belongs to root, or to the user of --chown",
    ),
];

/// Arguments that a command of Docker can do without.
pub const MISSING: &[(&str, &str, &str)] = &[
    ("ps", "<SANDBOX>", PROCESSES),
    ("run", "<COMMAND>...", "the CMD of an image is not used: write the command, or -it for a shell"),
    ("exec", "<COMMAND>...", "'sbx shell SANDBOX' opens a terminal"),
    (
        "kill",
        "<EXECUTION>...",
        "'sbx rm SANDBOX' terminates the sandbox; 'sbx logs --list SANDBOX' lists executions",
    ),
];

/// Commands with a word too many: the command, its subcommand or nothing, and the hint.
pub const EXTRA: &[(&str, &str, &str)] = &[
    ("snapshot", "create", "'sbx snapshot create --name NAME SANDBOX' names the snapshot"),
    ("create", "", NO_COMMAND),
];

/// The command, a part of the argument, whether the value is meant, and the hint.
pub type ValueHint = (Names, &'static str, fn(&str) -> bool, &'static str);

/// Values that Docker accepts.
pub const VALUES: &[ValueHint] = &[
    (
        &["expose"],
        "<PORT>",
        |value| value.contains(':'),
        "only the port in the sandbox: it gets a URL instead of a port of the host",
    ),
    (
        &["expose"],
        "<PORT>",
        |value| begins_with_digit(value) && value.contains('-'),
        "write each port of a range: 'sbx expose SANDBOX 8000 8001'",
    ),
    (
        &["expose"],
        "<PORT>",
        |value| begins_with_digit(value) && value.contains('/'),
        "write the port alone: only HTTP passes through its URL",
    ),
    (
        &["expose"],
        "<PORT>",
        |value| !begins_with_digit(value),
        "the sandbox comes first: 'sbx expose SANDBOX PORT'",
    ),
    (&["run", "create"], "--metadata", any, "-m adds a tag; --memory 4g sets the memory"),
    (&["run", "create"], "--network", any, NETWORKS),
    (&["timeout"], "<TIME>", any, "the time comes first: 'sbx timeout 1h SANDBOX'"),
];

fn any(_: &str) -> bool {
    true
}

fn begins_with_digit(value: &str) -> bool {
    value.starts_with(|first: char| first.is_ascii_digit())
}
