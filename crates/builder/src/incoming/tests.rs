use super::*;
use crate::context::tests::archive;

async fn uploaded(content: Vec<u8>, most: u64) -> Result<StoredContext, BuilderError> {
    let incoming = Incoming::new(&std::env::temp_dir(), most).unwrap();
    incoming.write(content.into()).await?.finish().await
}

#[tokio::test]
async fn archives_may_be_compressed_and_are_bounded() {
    let plain = std::fs::read(archive(&[("Dockerfile", "FROM a")]).path()).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&plain).unwrap();
    let compressed = encoder.finish().unwrap();
    for content in [plain.clone(), compressed.clone()] {
        let stored = uploaded(content, 1 << 20).await.unwrap();
        assert_eq!(stored.text("Dockerfile".to_owned(), 100).await.unwrap(), "FROM a");
    }
    for (content, most) in [(plain, 1000), (compressed, 1000)] {
        let error = uploaded(content, most).await.unwrap_err();
        assert!(error.to_string().contains("larger than"), "{error}");
    }
    assert!(uploaded(Vec::new(), 1000).await.unwrap_err().to_string().contains("empty"));
    assert!(uploaded(b"\x1f\x8bnot gzip".to_vec(), 1000).await.unwrap_err().to_string().contains("gzip"));
}
