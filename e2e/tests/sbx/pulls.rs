//! The display while the service pulls an image, and waiting for it.

use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base::IgnorePoison;
use e2e::registry::SlowRegistry;
use e2e::service::ServiceOptions;

use crate::{TestUser, interrupt, skipped, text};

/// The service tells a create to come back after 25 s.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Collects the output of a program.
#[derive(Clone, Default)]
struct OutputCapture(Arc<Mutex<Vec<u8>>>);

impl OutputCapture {
    fn new(mut pipe: impl Read + Send + 'static) -> Self {
        let capture = Self::default();
        let sink = capture.clone();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(bytes @ 1..) = pipe.read(&mut piece) {
                sink.0.lock().ignore_poison().extend(&piece[..bytes]);
            }
        });
        capture
    }

    fn text(&self) -> String {
        text(&self.0.lock().ignore_poison())
    }

    async fn wait_for(&self, wanted: &str) {
        let begin = Instant::now();
        while !self.text().contains(wanted) {
            assert!(begin.elapsed() < TIMEOUT, "no {wanted:?} in {:?}", self.text());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The exit code of a child. One that does not end in time is killed and fails the test.
async fn ended(child: &mut Child) -> Option<i32> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if begin.elapsed() > TIMEOUT {
            child.kill().unwrap();
            panic!("the program did not end in time");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn user(registry: &SlowRegistry) -> TestUser {
    let mut options = ServiceOptions::default().image("slow:1", &registry.reference);
    options.own_images = true;
    TestUser::with_options(&options).await
}

/// On a terminal a progress bar is shown, also across a 503 with Retry-After; otherwise one line names the image.
#[tokio::test(flavor = "multi_thread")]
async fn a_pull_is_shown_and_waited_for() {
    const NAME: &str = "a_pull_is_shown_and_waited_for";
    let registry = SlowRegistry::start().await.unwrap();
    let user = user(&registry).await;
    let mut command = user.on_a_terminal("run slow:1 -- 'echo made of it'");
    let Ok(mut watched) = command.stdout(Stdio::piped()).spawn() else {
        return skipped(NAME, "the program 'script' is not installed");
    };
    let watched_output = OutputCapture::new(watched.stdout.take().unwrap());
    let create = |words: &[&str]| {
        let mut command = user.sbx();
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    watched_output.wait_for("pulling slow:1 [############").await;
    let table = user.stdout(&["images"]);
    assert!(table.starts_with("IMAGE ") && table.contains("slow:1  pulling 5"), "{table}");
    assert_eq!(user.json(&["--json", "images"])[0]["progress"]["stage"], "fetching");

    let (mut patient, mut impatient) = (create(&["create", "slow:1"]), create(&["create", "slow:1"]));
    let mut brief = create(&["create", "slow:1", "--wait", "5s"]);
    let (patient_output, impatient_output) = (
        OutputCapture::new(patient.stderr.take().unwrap()),
        OutputCapture::new(impatient.stderr.take().unwrap()),
    );
    patient_output.wait_for("sbx: waiting: image 'slow:1' is being pulled").await;
    patient_output.wait_for("; retrying for up to 10m; with --wait 0 it fails at once").await;
    impatient_output.wait_for("sbx: waiting: ").await;
    interrupt(&impatient);
    assert_eq!(ended(&mut impatient).await, Some(130));
    assert_eq!(ended(&mut brief).await, Some(125));
    assert_eq!(watched.try_wait().unwrap(), None, "sbx did not wait: {:?}", watched_output.text());

    registry.release();
    assert_eq!(ended(&mut watched).await, Some(0));
    watched_output.wait_for("made of it").await;
    let watched_output = watched_output.text();
    assert!(
        !watched_output.contains("waiting:") && watched_output.contains("\r\x1b[Kmade of it"),
        "{watched_output:?}"
    );
    assert_eq!(ended(&mut patient).await, Some(0));
    let mut created = String::new();
    patient.stdout.take().unwrap().read_to_string(&mut created).unwrap();
    // The commands that did not wait left no sandbox.
    assert_eq!(user.live(), [created.trim()]);
    assert!(user.stdout(&["images"]).contains("slow:1  ready"));
}
