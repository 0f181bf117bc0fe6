use super::*;

async fn all(reader: &mut LogReader) -> Vec<LogEvent> {
    let mut all = Vec::new();
    while let Some(events) = reader.next().await.unwrap() {
        all.extend(events);
    }
    all
}

#[tokio::test]
async fn readers_continue_behind_any_event() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = BuildLog::open(&path).unwrap();
    log.note("one");
    log.output(BuildEvent::Stdout, "two \u{2028} \"quoted\"");
    let mut reader = log.read_from(0).unwrap().unwrap();
    let first = reader.next().await.unwrap().unwrap();
    assert_eq!(first.len(), 2);
    assert_eq!(first[1].data, "two \u{2028} \"quoted\"");
    // A reader waits for the rest.
    let (rest, ()) = tokio::join!(all(&mut reader), async {
        log.note("three");
        log.complete();
    });
    assert_eq!(rest[0].data, "three");
    let mut from_second = log.read_from(first[0].id).unwrap().unwrap();
    assert_eq!(all(&mut from_second).await.len(), 2);
    for position in [1, first[0].id + 1, 10_000] {
        assert!(log.read_from(position).unwrap().is_none(), "{position}");
    }
    log.note("too late");
    assert_eq!(all(&mut BuildLog::of_finished(&path).read_from(0).unwrap().unwrap()).await.len(), 3);
}

#[tokio::test]
async fn a_torn_line_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    BuildLog::open(&path).unwrap().note("whole");
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"e\":\"no").unwrap();
    let log = BuildLog::open(&path).unwrap();
    log.note("next");
    log.complete();
    let events = all(&mut log.read_from(0).unwrap().unwrap()).await;
    assert_eq!(events.iter().map(|event| event.data.as_str()).collect::<Vec<_>>(), ["whole", "next"]);
}

#[tokio::test]
async fn output_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let log = BuildLog::open(&dir.path().join("log")).unwrap();
    let line = "x".repeat(64 * 1024);
    for _ in 0..300 {
        log.output(BuildEvent::Stdout, &line);
    }
    log.step(&BuildStep { number: 1, total: 1, line: 1, text: "RUN".to_owned(), cached: false });
    log.complete();
    let events = all(&mut log.read_from(0).unwrap().unwrap()).await;
    let output = events.iter().filter(|event| event.kind == BuildEvent::Stdout).count();
    assert_eq!(output, 256);
    assert_eq!(events.len(), 258, "a note and the step follow");
}

/// Lines without text, and lines that are stored as six times their text.
#[test]
fn the_file_is_bounded_whatever_the_lines_are() {
    let dir = tempfile::tempdir().unwrap();
    for line in [String::new(), "\u{1}".repeat(64 * 1024)] {
        let log = BuildLog::open(&dir.path().join(format!("log {}", line.len()))).unwrap();
        let lines = if line.is_empty() { 1 << 20 } else { 200 };
        for _ in 0..lines {
            log.output(BuildEvent::Stdout, &line);
        }
        let bytes = log.file_bytes();
        assert!((MAX_FILE_BYTES..MAX_FILE_BYTES + (1 << 20)).contains(&bytes), "{bytes} bytes");
    }
}

#[tokio::test]
async fn the_readers_of_a_removed_log_end() {
    let dir = tempfile::tempdir().unwrap();
    let log = BuildLog::open(&dir.path().join("log")).unwrap();
    log.note("one");
    let mut behind = log.read_from(0).unwrap().unwrap();
    let first = behind.next().await.unwrap().unwrap();
    let mut before = log.read_from(0).unwrap().unwrap();
    log.complete();
    log.remove().unwrap();
    assert_eq!((all(&mut behind).await.len(), all(&mut before).await.len()), (0, 0));
    assert_eq!(all(&mut log.read_from(0).unwrap().unwrap()).await.len(), 0);
    assert!(log.read_from(first[0].id).unwrap().is_none());
    log.remove().unwrap();
}
