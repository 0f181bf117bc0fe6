//! Standard input reaches a command as it comes, and does not keep `sbx` from ending.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use e2e::service::Service;

use crate::TestUser;

/// Far above what a command needs that does not wait for its input, and below the 20 s for which the tests keep it open.
const SOON: Duration = Duration::from_secs(15);
/// Answers each line, and says when its input has ended.
const ECHO: &str = "while read line; do echo \"got $line\"; done; echo over";

struct Dialogue {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Dialogue {
    fn begin(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dialogue_over_pipes() {
    let user = TestUser::new().await;
    let id = user.stdout(&["create", Service::image(), "--idle", "0"]);
    let (id, image) = (id.trim(), Service::image());
    for words in [
        &["exec", "-i", id, "--", ECHO][..],
        &["run", "-i", image, "--", ECHO],
        &["run", "-i", "--timeout", "600s", image, "--", ECHO],
    ] {
        let mut sbx = user.sbx();
        sbx.args(words);
        let mut dialogue = Dialogue::begin(sbx);
        for number in 0..200 {
            dialogue.say(&number.to_string());
            assert_eq!(dialogue.hear(), format!("got {number}"), "{words:?}");
        }
        // Longer than the pause at which a request of the input ends.
        std::thread::sleep(Duration::from_millis(1500));
        dialogue.say("after a pause");
        assert_eq!(dialogue.hear(), "got after a pause", "{words:?}");
        let Dialogue { mut child, input, mut output } = dialogue;
        drop(input);
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!((rest.as_str(), child.wait().unwrap().code()), ("over\n", Some(0)), "{words:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dialogue_survives_a_pause_and_a_restart_of_the_service() {
    let user = TestUser::new().await;
    let id = user.stdout(&["create", Service::image(), "--timeout", "1h", "--idle", "0"]);
    let mut sbx = user.sbx();
    sbx.args(["exec", "-i", id.trim(), "--", ECHO]);
    let mut dialogue = Dialogue::begin(sbx);
    let mut ask = async |line: &str| {
        dialogue.say(line);
        assert_eq!(dialogue.hear(), format!("got {line}"));
        // Longer than the pause at which a request of the input ends.
        tokio::time::sleep(Duration::from_millis(1500)).await;
    };
    ask("at first").await;
    user.service.restart().await.unwrap();
    ask("after a restart").await;
    // Input resumes the sandbox.
    user.stdout(&["pause", id.trim()]);
    ask("after a pause").await;
    user.service.kill().unwrap();
    dialogue.say("while the service is away");
    tokio::time::sleep(Duration::from_secs(3)).await;
    user.service.start_process().await.unwrap();
    assert_eq!(dialogue.hear(), "got while the service is away");
    let Dialogue { mut child, input, mut output } = dialogue;
    drop(input);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), child.wait().unwrap().code()), ("over\n", Some(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn input_that_flows_during_a_restart_arrives_once() {
    let user = TestUser::new().await;
    let id = user.stdout(&["create", Service::image(), "--timeout", "1h", "--idle", "0"]);
    let mut sbx = user.sbx();
    sbx.args(["exec", "-i", id.trim(), "--", "wc -c"]);
    let Dialogue { child, mut input, mut output } = Dialogue::begin(sbx);
    let writing = std::thread::spawn(move || {
        for _ in 0..1000 {
            input.write_all(&[b'x'; 10_000]).unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    tokio::time::sleep(Duration::from_secs(2)).await;
    user.service.restart().await.unwrap();
    writing.join().unwrap();
    let mut count = String::new();
    output.read_to_string(&mut count).unwrap();
    assert_eq!(count.trim(), "10000000");
    assert!(child.wait_with_output().unwrap().status.success());
}

/// More messages than the service allows requests a minute.
#[tokio::test(flavor = "multi_thread")]
async fn a_dialogue_is_not_slowed_down_by_the_rates() {
    let user = TestUser::new().await;
    let id = user.stdout(&["create", Service::image(), "--idle", "0"]);
    let mut sbx = user.sbx();
    sbx.args(["exec", "-i", id.trim(), "--", ECHO]);
    let mut dialogue = Dialogue::begin(sbx);
    for number in 0..2_000 {
        dialogue.say(&number.to_string());
        assert_eq!(dialogue.hear(), format!("got {number}"));
    }
    drop(dialogue.input);
    assert!(dialogue.child.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn input_that_stays_open_does_not_keep_sbx_from_ending() {
    let user = TestUser::new().await;
    let id = user.stdout(&["create", Service::image(), "--idle", "0"]);
    let (id, image) = (id.trim(), Service::image());
    for (words, code) in [
        (&["exec", "-i", id, "true"][..], 0),
        (&["exec", "-i", id, "--", "exit 3"][..], 3),
        (&["exec", "-i", id, "--", "exec <&-; sleep 1"][..], 0),
        (&["exec", "-i", "--detach", id, "true"][..], 0),
        (&["run", "-i", image, "true"][..], 0),
        (&["run", "-i", "--timeout", "600s", image, "true"][..], 0),
    ] {
        let mut sbx = user.sbx();
        sbx.args(words);
        let begin = Instant::now();
        let mut dialogue = Dialogue::begin(sbx);
        // The command does not read it.
        dialogue.say("unread");
        assert_eq!(dialogue.child.wait().unwrap().code(), Some(code), "{words:?}");
        assert!(begin.elapsed() < SOON, "{words:?}: {:?}", begin.elapsed());
        drop(dialogue.input);
    }
    // Without any input.
    let mut child = user.sbx().args(["exec", "-i", id, "true"]).stdin(Stdio::piped()).spawn().unwrap();
    let (input, begin) = (child.stdin.take(), Instant::now());
    assert!(child.wait().unwrap().success() && begin.elapsed() < SOON);
    drop(input);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_reads_slowly_holds_its_input_back() {
    let user = TestUser::new().await;
    let id = user.stdout(&["create", Service::image(), "--idle", "0"]);
    let mut sbx = user.sbx();
    sbx.args(["exec", "-i", id.trim(), "--", "echo ready; sleep 8; wc -c"]);
    let mut dialogue = Dialogue::begin(sbx);
    assert_eq!(dialogue.hear(), "ready");
    let begin = Instant::now();
    dialogue.input.write_all(&vec![b'x'; 50_000_000]).unwrap();
    assert!(begin.elapsed() > Duration::from_secs(3), "all of it was taken in {:?}", begin.elapsed());
    drop(dialogue.input);
    let mut count = String::new();
    dialogue.output.read_to_string(&mut count).unwrap();
    assert_eq!(count.trim(), "50000000");
    assert!(dialogue.child.wait().unwrap().success());
}
