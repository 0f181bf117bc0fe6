//! The bounds of the figures, and whether they are met.

use crate::report::{Figure, OURS, Row, aligned, find};

/// A bound on one of our rows.
struct Bound {
    bench: &'static str,
    subject: &'static str,
    words: &'static str,
    test: Test,
}

enum Test {
    P50AtMost(f64),
    P99AtMost(f64),
    /// For figures that are one number.
    AtMost(f64),
    AtLeast(f64),
    /// Our median as a multiple of theirs.
    MultipleAtMost(Peer, f64),
    /// Our median exceeds theirs by at most this many milliseconds.
    MoreAtMost(Peer, f64),
    /// Our figure as a fraction of theirs.
    ShareAtLeast(Peer, f64),
    /// Their median as a multiple of ours.
    FasterThan(Peer, f64),
    /// No problem occurred in at least this number of rounds.
    CleanAfter(usize),
}

/// A row of another subject.
struct Peer {
    bench: &'static str,
    subject: &'static str,
}

const fn peer(bench: &'static str, subject: &'static str) -> Peer {
    Peer { bench, subject }
}

const fn bound(bench: &'static str, words: &'static str, test: Test) -> Bound {
    Bound { bench, subject: OURS, words, test }
}

const fn bound_on(bench: &'static str, subject: &'static str, words: &'static str, test: Test) -> Bound {
    Bound { bench, subject, words, test }
}

const BOUNDS: [Bound; 95] = [
    bound("execute", "p50 <= 1.6 x bare bash", Test::MultipleAtMost(peer("execute", "bash"), 1.6)),
    bound("execute", ">= 25 x faster than Docker exec", Test::FasterThan(peer("execute", "docker"), 25.0)),
    bound("create-warm", "p50 <= 5 ms", Test::P50AtMost(5.0)),
    bound("create-warm", ">= 40 x faster than Docker", Test::FasterThan(peer("create", "docker"), 40.0)),
    bound("create-cold", "p50 <= 0.3 x runc run", Test::MultipleAtMost(peer("create", "runc"), 0.3)),
    bound("create-cold", "p50 <= 2 x bwrap", Test::MultipleAtMost(peer("create", "bwrap"), 2.0)),
    bound("create-cold", ">= 3 x faster than Docker", Test::FasterThan(peer("create", "docker"), 3.0)),
    bound("burst", "50 at once: p99 <= 60 ms", Test::P99AtMost(60.0)),
    bound("burst", "50 at once: all succeed", Test::CleanAfter(50)),
    bound(
        "at-once",
        "20 at once with the default pool to the first output: p50 <= 150 ms",
        Test::P50AtMost(150.0),
    ),
    bound("at-once", "all succeed", Test::CleanAfter(100)),
    bound("at-once-cold", "200 at once without a pool: p99 <= 2 s", Test::P99AtMost(2000.0)),
    bound("at-once-cold", "all succeed", Test::CleanAfter(200)),
    bound("churn", ">= 150 a second", Test::AtLeast(150.0)),
    bound("churn", "no failures, nothing left after 5,000", Test::CleanAfter(5000)),
    bound("snapshot", "of 100 MB: p50 <= 0.5 s", Test::P50AtMost(500.0)),
    bound("snapshot-frozen", "of 100 MB: p50 <= 100 ms", Test::P50AtMost(100.0)),
    bound("snapshot-frozen", "of 100 MB: p99 <= 100 ms", Test::P99AtMost(100.0)),
    bound(
        "create-from-snapshot",
        "p50 <= 2 x a cold create",
        Test::MultipleAtMost(peer("create-cold", OURS), 2.0),
    ),
    bound("fork", "20 until all run: p50 <= 1 s", Test::P50AtMost(1000.0)),
    bound("hibernate-256-mb", "p50 <= 1.5 s", Test::P50AtMost(1500.0)),
    bound("wake-256-mb", "to the first command's answer: p50 <= 1 s", Test::P50AtMost(1000.0)),
    bound("wake", "to the first command's answer: p50 <= 0.5 s", Test::P50AtMost(500.0)),
    bound("memory-fork", "10 of 256 MB until all answer: p50 <= 5 s", Test::P50AtMost(5000.0)),
    bound("template-rebuild", "five steps: p50 <= 0.5 s", Test::P50AtMost(500.0)),
    bound("hibernated-memory", "within 100 MB of before", Test::AtMost(100.0)),
    bound("hibernated-restart", "<= 3 s", Test::P50AtMost(3000.0)),
    bound(
        "hibernated-list",
        "as fast as with one",
        Test::MultipleAtMost(peer("hibernated-list", "one"), 1.2),
    ),
    bound("gvisor-create-warm", "p50 <= 5 ms", Test::P50AtMost(5.0)),
    bound(
        "gvisor-execute",
        "p50 <= 1.3 x fork and exec inside",
        Test::MultipleAtMost(peer("gvisor-execute", "inside"), 1.3),
    ),
    bound("pause", "p50 <= 3 ms", Test::P50AtMost(3.0)),
    bound("pause", ">= 4 x faster than Docker", Test::FasterThan(peer("pause", "docker"), 4.0)),
    bound("resume", "p50 <= 3 ms", Test::P50AtMost(3.0)),
    bound("resume", ">= 4 x faster than Docker", Test::FasterThan(peer("resume", "docker"), 4.0)),
    bound("destroy", "p50 until answered <= 3 ms", Test::P50AtMost(3.0)),
    bound("destroy-gone", "every trace gone <= 1 s later", Test::P99AtMost(1000.0)),
    bound("density", "one idle sandbox <= 0.35 MB of host memory", Test::AtMost(0.35)),
    bound("density", "500 at once", Test::CleanAfter(500)),
    bound_on("density", "daemon-idle", "daemon <= 1 % of a core when idle", Test::AtMost(1.0)),
    bound("output", ">= 300 MB/s", Test::AtLeast(300.0)),
    bound_on("output", "stopped-reader", "memory does not grow (<= 2 MB)", Test::AtMost(2.0)),
    bound("recovery", "200 sandboxes p50 <= 2 s", Test::P50AtMost(2000.0)),
    bound("recovery", "slowest of them <= 2 s", Test::P99AtMost(2000.0)),
    bound("recovery", "all found", Test::CleanAfter(1)),
    bound("http-execute", "p50 <= 2 x bare bash", Test::MultipleAtMost(peer("http-execute", "bash"), 2.0)),
    bound("http-execute", "p50 <= engine + 0.7 ms", Test::MoreAtMost(peer("http-execute", "engine"), 0.7)),
    bound("code", "p50 <= inside + 15 ms", Test::MoreAtMost(peer("code", "inside"), 15.0)),
    bound("http-create", "p50 <= 8 ms", Test::P50AtMost(8.0)),
    bound("get", ">= 65 % of a bare hello", Test::ShareAtLeast(peer("get", "axum"), 0.65)),
    bound("list", "no filter: p99 <= 10 ms", Test::P99AtMost(10.0)),
    bound("list", "no filter: 1,000,000 <= 2 x 10,000", Test::MultipleAtMost(peer("list", "10k"), 2.0)),
    bound("list-state", "state: p99 <= 10 ms", Test::P99AtMost(10.0)),
    bound(
        "list-state",
        "state: 1,000,000 <= 2 x 10,000",
        Test::MultipleAtMost(peer("list-state", "10k"), 2.0),
    ),
    bound("list-image", "image: p99 <= 10 ms", Test::P99AtMost(10.0)),
    bound(
        "list-image",
        "image: 1,000,000 <= 2 x 10,000",
        Test::MultipleAtMost(peer("list-image", "10k"), 2.0),
    ),
    bound("list-metadata", "metadata of 100: p99 <= 10 ms", Test::P99AtMost(10.0)),
    bound(
        "list-metadata",
        "metadata: 1,000,000 <= 2 x 10,000",
        Test::MultipleAtMost(peer("list-metadata", "10k"), 2.0),
    ),
    bound("list", "1,000,000 records", Test::CleanAfter(1_000_000)),
    bound("events", "no filter: p99 <= 10 ms", Test::P99AtMost(10.0)),
    bound("events-type", "one type: p99 <= 10 ms", Test::P99AtMost(10.0)),
    bound("events-types", "several types, newest first: p99 <= 10 ms", Test::P99AtMost(10.0)),
    bound("events-sandbox", "sandbox: p99 <= 10 ms", Test::P99AtMost(10.0)),
    bound("events-run", "run: p99 <= 10 ms", Test::P99AtMost(10.0)),
    bound("events-time", "a period: p99 <= 10 ms", Test::P99AtMost(10.0)),
    bound("events", "1,000,000 events", Test::CleanAfter(1_000_000)),
    bound("sse-first-line", "p50 <= 3 ms", Test::P50AtMost(3.0)),
    bound("sse", "100,000 lines of 100 bytes: p50 <= 1 s", Test::P50AtMost(1000.0)),
    bound_on("sse", "stopped-reader", "memory does not grow (<= 2 MB)", Test::AtMost(2.0)),
    bound("streams", "2,000 open streams: daemon <= 150 MB", Test::AtMost(150.0)),
    bound("streams", "2,000 served", Test::CleanAfter(2000)),
    bound_on("streams", "idle-connections", "2,000 idle connections: daemon <= 150 MB", Test::AtMost(150.0)),
    bound_on("streams", "idle-connections", "all served", Test::CleanAfter(2000)),
    bound(
        "egress-stream",
        "proxy >= 60 % of direct",
        Test::ShareAtLeast(peer("egress-stream", "direct"), 0.6),
    ),
    bound_on(
        "egress-stream",
        "allow",
        "default allow >= 90 % of direct",
        Test::ShareAtLeast(peer("egress-stream", "direct"), 0.9),
    ),
    bound(
        "egress-first-byte",
        "proxy p50 <= direct + 1 ms",
        Test::MoreAtMost(peer("egress-first-byte", "direct"), 1.0),
    ),
    bound("policy-apply", "p50 <= 5 ms", Test::P50AtMost(5.0)),
    bound(
        "egress-create-cold",
        "p50 <= without + 8 ms",
        Test::MoreAtMost(peer("egress-create-cold", "no-network"), 8.0),
    ),
    bound(
        "egress-create-warm",
        "p50 <= without + 1 ms",
        Test::MoreAtMost(peer("egress-create-warm", "no-network"), 1.0),
    ),
    bound("proxy-connections", "daemon <= 100 MB", Test::AtMost(100.0)),
    bound("proxy-connections", "5,000 held", Test::CleanAfter(5000)),
    bound("terminal-echo", "p50 <= 5 ms", Test::P50AtMost(5.0)),
    bound("client", "p50 <= bare hyper + 0.1 ms", Test::MoreAtMost(peer("client", "hyper"), 0.1)),
    bound("sbx-run", "start to finish: p50 <= 60 ms", Test::P50AtMost(60.0)),
    bound("upload", "100 MB over HTTPS: p50 <= 130 ms", Test::P50AtMost(130.0)),
    bound("files-in", "1 GB over HTTPS >= 200 MB/s", Test::AtLeast(200.0)),
    bound("files-out", "1 GB over HTTPS >= 200 MB/s", Test::AtLeast(200.0)),
    bound_on("files", "growth", "the daemon's memory stays flat (<= 16 MB)", Test::AtMost(16.0)),
    bound("ports", "200 websockets at once through a port", Test::CleanAfter(2000)),
    bound("files-tar-in", "10,000 small files <= 2 s", Test::P50AtMost(2000.0)),
    bound("files-tar-out", "10,000 small files <= 2 s", Test::P50AtMost(2000.0)),
    bound("sdk-python", "p50 <= bare httpx + 0.3 ms", Test::MoreAtMost(peer("sdk-python", "httpx"), 0.3)),
    bound(
        "sdk-python-asyncio",
        "p50 <= bare httpx + 0.3 ms",
        Test::MoreAtMost(peer("sdk-python-asyncio", "httpx"), 0.3),
    ),
    bound("e2b-python", "create and a command: p50 <= 30 ms", Test::P50AtMost(30.0)),
    bound("e2b-javascript", "create and a command: p50 <= 30 ms", Test::P50AtMost(30.0)),
    bound(
        "sdk-typescript",
        "p50 <= bare fetch + 0.2 ms",
        Test::MoreAtMost(peer("sdk-typescript", "fetch"), 0.2),
    ),
];

/// The bounds of the selected benches, with the results.
pub fn table(rows: &[Row], selected: &[&'static str]) -> String {
    let mut lines = vec![
        ["bench", "bound", "measured", ""].map(str::to_owned),
        ["---", "---", "---:", "---"].map(str::to_owned),
    ];
    let wanted = BOUNDS
        .iter()
        .filter(|bound| find(rows, bound.bench, bound.subject).is_some() || selected.contains(&bound.bench));
    lines.extend(wanted.map(|bound| {
        let (seen, verdict) = judge(bound, rows);
        [bound.bench.to_owned(), bound.words.to_owned(), seen, verdict.to_owned()]
    }));
    aligned(&lines)
}

fn judge(bound: &Bound, rows: &[Row]) -> (String, &'static str) {
    let Some(row) = find(rows, bound.bench, bound.subject) else { return (String::new(), "not measured") };
    let main = row.figure.main();
    let (seen, holds) = match &bound.test {
        Test::P50AtMost(most) => (format!("{main:.2} ms"), main <= *most),
        Test::P99AtMost(most) => {
            let Figure::Times { p99_ms, .. } = row.figure else { return (String::new(), "not measured") };
            (format!("{p99_ms:.2} ms"), p99_ms <= *most)
        }
        Test::AtMost(most) => (format!("{main:.2}"), main <= *most),
        Test::AtLeast(least) => (format!("{main:.1}"), main >= *least),
        Test::MultipleAtMost(peer, most) => {
            return compare(peer, rows, |theirs| (format!("{:.2} x", main / theirs), main / theirs <= *most));
        }
        Test::MoreAtMost(peer, most) => {
            return compare(peer, rows, |theirs| {
                (format!("{:+.2} ms", main - theirs), main - theirs <= *most)
            });
        }
        Test::ShareAtLeast(peer, least) => {
            return compare(peer, rows, |theirs| {
                (format!("{:.0} %", main / theirs * 100.0), main / theirs >= *least)
            });
        }
        Test::FasterThan(peer, least) => {
            return compare(peer, rows, |theirs| {
                (format!("{:.1} x", theirs / main), theirs / main >= *least)
            });
        }
        Test::CleanAfter(n) => {
            let problems = format!("{} problems in {}", row.problems.len(), row.n);
            if row.problems.is_empty() && row.n < *n {
                return (problems, "not measured: run with --full");
            }
            (problems, row.problems.is_empty())
        }
    };
    (seen, verdict(holds))
}

fn compare(peer: &Peer, rows: &[Row], judge: impl FnOnce(f64) -> (String, bool)) -> (String, &'static str) {
    let Some(theirs) = find(rows, peer.bench, peer.subject) else {
        return (format!("no {}", peer.subject), "not measured");
    };
    let (seen, holds) = judge(theirs.figure.main());
    (seen, verdict(holds))
}

fn verdict(holds: bool) -> &'static str {
    if holds { "reached" } else { "NOT reached" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(bench: &'static str, subject: &'static str, p50_ms: f64) -> Row {
        Row::new(bench, subject, Figure::Times { p50_ms, p99_ms: p50_ms * 2.0 }, 500)
    }

    #[test]
    fn ratios_go_the_right_way_round() {
        let rows = [
            times("execute", "sandboxd", 2.0),
            times("execute", "bash", 1.0),
            times("execute", "docker", 60.0),
        ];
        let text = table(&rows, &["execute"]);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert!(lines[0].contains("2.00 x") && lines[0].contains("NOT reached"), "{text}");
        assert!(lines[1].contains("30.0 x") && !lines[1].contains("NOT reached"), "{text}");
    }

    #[test]
    fn what_was_not_measured_is_not_called_reached() {
        let row = Row::new("churn", "sandboxd", Figure::PerSecond(90.0), 300);
        let text = table(std::slice::from_ref(&row), &["churn", "pause"]);
        assert!(text.contains("run with --full"), "{text}");
        assert_eq!(text.matches("not measured").count(), 3, "{text}");
        let text = table(&[row.problem("one failed")], &["churn"]);
        assert!(text.contains("NOT reached"), "{text}");
    }
}
