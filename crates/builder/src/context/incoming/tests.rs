use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::*;
use crate::context::spool::tests::{files_in, spool, spool_with};
use crate::context::tests::archive;
use crate::context::tests::bombs;

async fn uploaded(content: Vec<u8>, most: u64) -> Result<StoredContext, BuilderError> {
    let incoming = Incoming::new(&Arc::new(spool(most)), "one").unwrap();
    incoming.write(content.into()).await?.finish().await
}

async fn text(stored: &StoredContext, path: &str) -> String {
    Arc::new(spool(1 << 20)).text("one", stored, path.to_owned(), 100).await.unwrap()
}

#[tokio::test]
async fn archives_may_be_compressed_and_are_bounded() {
    let plain = std::fs::read(archive(&[("Dockerfile", "FROM a")]).path()).unwrap();
    let compressed = bombs::gzip(&plain);
    for content in [plain.clone(), compressed.clone()] {
        let stored = uploaded(content, 1 << 20).await.unwrap();
        assert_eq!(text(&stored, "Dockerfile").await, "FROM a");
    }
    for (content, most) in [(plain, 1000), (compressed, 1000)] {
        let error = uploaded(content, most).await.unwrap_err();
        assert!(error.to_string().contains("larger than"), "{error}");
    }
    assert!(uploaded(Vec::new(), 1000).await.unwrap_err().to_string().contains("empty"));
    assert!(uploaded(b"\x1f\x8bnot gzip".to_vec(), 1000).await.unwrap_err().to_string().contains("gzip"));
}

#[tokio::test]
async fn a_text_in_base64_is_released_before_the_archive_is_read() {
    struct Text {
        digits: String,
        _held: Arc<()>,
    }
    impl AsRef<[u8]> for Text {
        fn as_ref(&self) -> &[u8] {
            self.digits.as_bytes()
        }
    }
    // More than one piece, and less than a group at the end.
    let content = std::fs::read(archive(&[("Dockerfile", &"FROM a\n".repeat(100_000))]).path()).unwrap();
    let (held, spool) = (Arc::new(()), Arc::new(spool(1 << 20)));
    let text = Bytes::from_owner(Text { digits: STANDARD.encode(&content), _held: Arc::clone(&held) });
    let incoming = Incoming::new(&spool, "one").unwrap().write_base64(text).await.unwrap();
    assert_eq!(Arc::strong_count(&held), 1);
    assert_eq!(incoming.finish().await.unwrap().size_bytes, content.len() as u64);
    let refused = Incoming::new(&spool, "one").unwrap().write_base64("====".into()).await.err().unwrap();
    assert!(refused.to_string().contains("nor base64"), "{refused}");
}

#[tokio::test]
async fn contexts_are_merged_below_their_names() {
    let (small, large) = (Arc::new(spool(2000)), Arc::new(spool(1 << 20)));
    let mut contexts = BTreeMap::new();
    for name in ["first", "second"] {
        let content = std::fs::read(archive(&[("dir/file", name)]).path()).unwrap();
        contexts.insert(name.to_owned(), uploaded(content, 1 << 20).await.unwrap());
    }
    let merged = large.merge("one", contexts.clone()).await.unwrap();
    assert_eq!(text(&merged, "second/dir/file").await, "second");
    assert!(small.merge("one", contexts).await.unwrap_err().to_string().contains("larger than"));
}

#[tokio::test]
async fn uploads_that_begin_together_leave_the_reserve_of_the_disk() {
    // The room for three MiB, of which each check sees what is written until then.
    let free = Arc::new(AtomicU64::new(3));
    let seen = Arc::clone(&free);
    let (spool, dir) = spool_with(1 << 30, move |_| match seen.load(Ordering::SeqCst) {
        0 => Err(BuilderError::UploadsBusy { allowed: 0 }),
        _ => Ok(()),
    });
    let spool = Arc::new(spool);
    let mut uploads: Vec<_> = (0..4).map(|_| Some(Incoming::new(&spool, "one").unwrap())).collect();
    let part = Bytes::from(vec![7; 1 << 20]);
    let mut refused = 0;
    for upload in &mut uploads {
        match upload.take().unwrap().write(part.clone()).await {
            Ok(more) => {
                *upload = Some(more);
                free.fetch_sub(1, Ordering::SeqCst);
            }
            Err(error) => {
                assert!(matches!(error, BuilderError::UploadsBusy { .. }), "{error}");
                refused += 1;
            }
        }
    }
    assert_eq!((refused, files_in(&dir)), (1, 3));
    assert!(Incoming::new(&spool, "two").is_err());
    drop(uploads);
    assert_eq!(files_in(&dir), 0);
}

#[tokio::test]
async fn uploads_of_an_account_have_bounded_bytes_together() {
    let spool = Arc::new(spool(1 << 20));
    let part = Bytes::from(vec![7; 1 << 20]);
    let mut uploads = Vec::new();
    for _ in 0..4 {
        uploads.push(Incoming::new(&spool, "one").unwrap().write(part.clone()).await.unwrap());
    }
    let refused = Incoming::new(&spool, "one").unwrap().write(part.clone()).await.err().unwrap();
    assert!(matches!(refused, BuilderError::UploadedBytes { .. }), "{refused}");
    Incoming::new(&spool, "two").unwrap().write(part.clone()).await.unwrap();
    drop(uploads.pop());
    Incoming::new(&spool, "one").unwrap().write(part).await.unwrap();
}

#[tokio::test]
async fn an_upload_whose_client_is_gone_ends_and_leaves_nothing() {
    let (spool, dir) = spool_with(1 << 40, |_| Ok(()));
    let spool = Arc::new(spool);
    // It decompresses to 64 GiB.
    let bomb = bombs::gzip_of_zeros(64 << 20).repeat(1024);
    let incoming = Incoming::new(&spool, "one").unwrap().write(bomb.into()).await.unwrap();
    let finishing = tokio::time::timeout(Duration::from_millis(100), incoming.finish()).await;
    assert!(finishing.is_err());
    for _ in 0..6000 {
        if files_in(&dir) == 0 {
            // The account may upload again.
            drop(spool.read("one", |_| Ok(())).await);
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the upload continues without its client");
}
