//! Snapshots, rollbacks and forks, with and without processes.

mod disks;
mod fork;
mod kills;
mod processes;
mod rollback;

use e2e::service::{Client, small, with};
use serde_json::json;

use crate::{SANDBOXES, output, run_command, text};

/// A process that keeps a number and a secret in memory only. It takes another number from the file `set`, and writes both, its pid,
/// and whether its clock went backwards, into `answer`.
const HOLDER: &str = r#"
    use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
    my ($number, $secret, $last, $clock) = (0, join('', map { int rand 10 } 1 .. 30), 0, 'forwards');
    while (1) {
        my $now = clock_gettime(CLOCK_MONOTONIC);
        $clock = 'backwards' if $now < $last;
        $last = $now;
        if (open(my $set, '<', 'set')) { $number = <$set> + 0; close $set; unlink 'set' }
        if (!-e 'answer') { open(my $file, '>', 'new'); print $file "$number $$ $secret $clock\n"; close $file; rename 'new', 'answer' }
        select(undef, undef, undef, 0.01);
    }
"#;

/// A sandbox in which [`HOLDER`] runs.
pub async fn with_holder(client: &Client) -> String {
    let body = with(small(), "isolation", json!("gvisor"));
    let id = text(&client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap()["id"]);
    run_command(client, &id, json!({ "command": "cat > holder", "stdin": HOLDER })).await;
    output(client, &id, "setsid perl holder < /dev/null > /dev/null 2>&1 &").await;
    id
}

/// What the process answers: number, pid, secret, and the clock.
pub async fn ask(client: &Client, id: &str) -> Vec<String> {
    let ask = "rm -f answer; for n in $(seq 1000); do [ -e answer ] && break; sleep 0.01; done; cat answer";
    output(client, id, ask).await.split_whitespace().map(str::to_owned).collect()
}

/// A new sandbox from a snapshot: its id.
pub async fn create_from(client: &Client, snapshot: &str) -> String {
    let body = with(small(), "image", json!(snapshot));
    text(&client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap()["id"])
}
