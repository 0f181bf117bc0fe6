//! What is seen while the service fetches an image, and that it is waited for.

use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use e2e::registry::SlowRegistry;
use e2e::service::ServiceOptions;

use crate::{Person, interrupt, skipped, text};

/// The service tells a create to come back after 25 s.
const PATIENCE: Duration = Duration::from_secs(90);

/// What a program has printed so far.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let said = Self::default();
        let kept = said.clone();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(bytes @ 1..) = pipe.read(&mut piece) {
                kept.0.lock().unwrap_or_else(PoisonError::into_inner).extend(&piece[..bytes]);
            }
        });
        said
    }

    fn text(&self) -> String {
        text(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn says(&self, wanted: &str) {
        let begin = Instant::now();
        while !self.text().contains(wanted) {
            assert!(begin.elapsed() < PATIENCE, "no {wanted:?} in {:?}", self.text());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Its exit code; a child that does not end fails the test and not the machine.
async fn ended(child: &mut Child) -> Option<i32> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it does not end");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn person(registry: &SlowRegistry) -> Person {
    let mut options = ServiceOptions::default().image("slow:1", &registry.reference);
    options.own_images = true;
    Person::of(&options).await
}

/// On a terminal a bar says how far it is, over the answer that tells to come back; elsewhere one line says what is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_fetched_is_shown_and_waited_for() {
    const NAME: &str = "an_image_that_is_fetched_is_shown_and_waited_for";
    let registry = SlowRegistry::start().await.unwrap();
    let person = person(&registry).await;
    let mut command = person.on_a_terminal("run slow:1 -- 'echo made of it'");
    let Ok(mut watched) = command.stdout(Stdio::piped()).spawn() else {
        return skipped(NAME, "the program 'script' is not installed");
    };
    let seen = Said::of(watched.stdout.take().unwrap());
    let create = |words: &[&str]| {
        let mut command = person.sbx();
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    seen.says("fetching slow:1 [############").await;
    let table = person.says(&["images"]);
    assert!(table.starts_with("IMAGE ") && table.contains("slow:1  pulling 5"), "{table}");
    assert_eq!(person.json(&["--json", "images"])[0]["progress"]["stage"], "fetching");

    let (mut patient, mut impatient) = (create(&["create", "slow:1"]), create(&["create", "slow:1"]));
    let mut brief = create(&["create", "slow:1", "--wait", "5s"]);
    let (told, waits) =
        (Said::of(patient.stderr.take().unwrap()), Said::of(impatient.stderr.take().unwrap()));
    told.says("sbx: waiting: image 'slow:1' is being fetched").await;
    waits.says("sbx: waiting: ").await;
    interrupt(&impatient);
    assert_eq!(ended(&mut impatient).await, Some(130));
    assert_eq!(ended(&mut brief).await, Some(125));
    assert_eq!(watched.try_wait().unwrap(), None, "it has not waited: {:?}", seen.text());

    registry.release();
    assert_eq!(ended(&mut watched).await, Some(0));
    seen.says("made of it").await;
    let seen = seen.text();
    assert!(!seen.contains("waiting:") && seen.contains("\r\x1b[Kmade of it"), "{seen:?}");
    assert_eq!(ended(&mut patient).await, Some(0));
    let mut made = String::new();
    patient.stdout.take().unwrap().read_to_string(&mut made).unwrap();
    // Of those who did not wait nothing is left.
    assert_eq!(person.live(), [made.trim()]);
    assert!(person.says(&["images"]).contains("slow:1  ready"));
}
