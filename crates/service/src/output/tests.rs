use admission::output_memory::OutputMemory;
use axum::body::HttpBody;
use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt;
use proptest::prelude::{any, prop, prop_assert_eq, proptest};

use super::*;

const MIB: usize = 1 << 20;

fn result() -> ExecutionResult {
    ExecutionResult {
        stdout: String::new(),
        stderr: String::new(),
        exit_code: Some(3),
        duration_ms: 12,
        signal: None,
        reason: None,
        message: None,
        stdout_truncated: true,
        stderr_truncated: false,
        encoding: OutputEncoding::Text,
    }
}

fn captured(chunks: &[Vec<u8>], limit: usize) -> rules::Captured {
    let mut output = CappedOutput::new(limit);
    chunks.iter().for_each(|chunk| output.push(chunk));
    output.finish()
}

async fn buffered(stdout: Vec<Vec<u8>>, stderr: Vec<Vec<u8>>) -> BufferedOutput {
    BufferedOutput::new(stdout, stderr, OutputEncoding::Text, &result(), None).await.unwrap()
}

fn expected(stdout: &rules::Captured, stderr: &rules::Captured) -> Vec<u8> {
    let (stdout, stderr) = (stdout.clone().into_text(), stderr.clone().into_text());
    serde_json::to_vec(&ExecutionResult { stdout, stderr, ..result() }).unwrap()
}

async fn read(content: Content) -> (Option<u64>, Vec<u8>) {
    let response = content.into_response(Response::new(()));
    assert_eq!(response.status(), StatusCode::OK);
    let length = response.body().size_hint().exact();
    let mut body = response.into_body();
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        assert!(data.len() <= 48 << 10, "a piece of {}", data.len());
        all.extend_from_slice(&data);
    }
    (length, all)
}

/// Bytes that are often text, and often nearly.
fn chunk() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
    prop::collection::vec(
        proptest::prelude::prop_oneof![
            any::<u8>(),
            prop::sample::select("\u{1}\"\\\n\t\u{7f}aé€😀".as_bytes().to_vec()),
        ],
        0..60,
    )
}

proptest! {
    #[test]
    fn the_json_is_that_of_serde(out in prop::collection::vec(chunk(), 0..8), err in chunk(), limit in 0usize..300) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (out, err) = (captured(&out, limit), captured(&[err], limit));
        let whole = expected(&out, &err);
        let output = runtime.block_on(buffered(out.segments.clone(), err.segments.clone()));
        prop_assert_eq!(output.length, whole.len());
        let (length, json) = runtime.block_on(read(Content::Output(Arc::new(output))));
        prop_assert_eq!(length, Some(whole.len() as u64));
        prop_assert_eq!(String::from_utf8(json), String::from_utf8(whole.clone()));
        let output = runtime.block_on(buffered(out.segments, err.segments));
        prop_assert_eq!(runtime.block_on(read(output.into())).1, whole);
    }
}

#[tokio::test]
async fn base64_has_the_exact_bytes_and_survives_a_record() {
    let memory = OutputMemory::default();
    let account: Arc<str> = "one".into();
    for length in [0, 1, 2, 3, 4095, 4096, 100_000, MIB + 1] {
        let all: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap() ^ 0xff).collect();
        let segments = all.chunks(4097).map(<[u8]>::to_vec).collect();
        let object = ExecutionResult { encoding: OutputEncoding::Base64, ..result() };
        let output =
            BufferedOutput::new(segments, vec![b"err".to_vec()], OutputEncoding::Base64, &object, None).await;
        let content = Content::from(output.unwrap());
        let again =
            Content::of_record(&memory, &account, content.to_record(&memory).await.bytes).await.unwrap();
        // The record is JSON, which is sent as it is.
        let Content::Json(recorded) = again else { panic!("{length} bytes") };
        let (size, json) = read(content).await;
        assert_eq!(size, Some(json.len() as u64));
        for json in [json, recorded.to_vec()] {
            let result: ExecutionResult = serde_json::from_slice(&json).unwrap();
            assert_eq!((result.encoding, result.stderr.as_str()), (OutputEncoding::Base64, "ZXJy"));
            assert!(STANDARD.decode(result.stdout).unwrap() == all, "{length} bytes");
        }
    }
}

#[tokio::test]
async fn large_outputs_are_encoded_in_pieces_and_survive_a_record() {
    let memory = OutputMemory::default();
    let account: Arc<str> = "one".into();
    let text: Vec<u8> = "\u{1}aé€😀\n".bytes().cycle().take(3 * MIB + 1).chain([0xff, 0xe2, 0x82]).collect();
    for limit in [16 * MIB, MIB] {
        let (out, err) = (captured(std::slice::from_ref(&text), limit), captured(&[b"err".to_vec()], limit));
        let whole = expected(&out, &err);
        let content = Content::from(buffered(out.segments, err.segments).await);
        let record = content.to_record(&memory).await.bytes;
        assert!(record.len() < text.len() + 1000);
        let (length, json) = read(content).await;
        assert!(length == Some(whole.len() as u64) && json == whole);
        let again = Content::of_record(&memory, &account, record).await.unwrap();
        assert!(memory.reserved_bytes() > 0);
        assert!(read(again).await.1 == whole);
        assert_eq!(memory.reserved_bytes(), 0, "the response was read");
    }
    let old = br#"{"stdout":"","stderr":"","exitCode":0,"durationMs":1,"signal":null}"#.to_vec();
    let kept = Content::of_record(&memory, &account, old.clone()).await.unwrap();
    assert_eq!(kept.to_record(&memory).await.bytes, old);
    for damaged in [vec![0], vec![0, 1], [&[0, 1][..], &[0xff; 8], b"x"].concat()] {
        let content = Content::of_record(&memory, &account, damaged.clone()).await;
        assert!(content.is_err() || damaged == [0], "{damaged:?}");
    }
}
