//! Files of a real sandbox through the client library.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bytes::Bytes;
use e2e::wait_until;
use futures_util::{StreamExt, TryStreamExt};
use sandboxd_client::{Code, FileBody, FileType};

use crate::{client, code, service};

/// Content in which pieces differ, so that misplaced pieces are found.
fn content(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_written_and_read_unchanged() {
    let service = service().await;
    let sandbox = client(&service).await.create(e2e::service::Service::image()).await.unwrap();
    let files = sandbox.files();
    let large = content(30_000_000);
    let local = tempfile::tempdir().unwrap();
    let (source, back) = (local.path().join("source"), local.path().join("back"));
    std::fs::write(&source, &large).unwrap();
    let entry = files.write("deep/er/large", FileBody::file(&source)).mode(0o750).parents().await.unwrap();
    assert_eq!((entry.size_bytes, entry.mode.as_str()), (30_000_000, "0750"));
    assert_eq!(files.read("deep/er/large").to_file(&back).await.unwrap(), 30_000_000);
    assert!(std::fs::read(&back).unwrap() == large);
    let inside = sandbox.execute("sha256sum < deep/er/large").await.unwrap().stdout;
    let local_sum = std::process::Command::new("sha256sum").arg(&source).output().unwrap().stdout;
    assert_eq!(inside.split(' ').next(), String::from_utf8(local_sum).unwrap().split(' ').next());
    assert_eq!(&files.read("deep/er/large").range(7..1000).await.unwrap()[..], &large[7..1000]);
    assert_eq!(&files.read("deep/er/large").last(99).await.unwrap()[..], &large[large.len() - 99..]);
    assert_eq!(files.read("deep/er/large").range(30_000_000..).await.unwrap_err().status(), Some(416));

    let pieces = futures_util::stream::iter((0..1000).map(|n| Ok(Bytes::from(format!("{n}\n")))));
    files.write("numbers", FileBody::stream(pieces)).await.unwrap();
    assert_eq!(sandbox.execute("tail -1 numbers; wc -l < numbers").await.unwrap().stdout, "999\n1000\n");
    // A file that reports no length.
    assert!(files.read("/proc/self/status").text().await.unwrap().contains("Pid:"));
    let odd = Path::new(std::ffi::OsStr::from_bytes(b"odd \xff&=%?#\n"));
    files.write(odd, "odd").await.unwrap();
    assert_eq!(files.read(odd).text().await.unwrap(), "odd");
    files.delete(odd).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_are_listed_created_moved_and_deleted() {
    let service = service().await;
    let sandbox = client(&service).await.create(e2e::service::Service::image()).await.unwrap();
    let files = sandbox.files();
    files.mkdir("a/b").recursive().await.unwrap();
    sandbox.execute("cd a; for n in $(seq -w 250); do echo $n > $n; done; ln -s 001 link").await.unwrap();
    let names: Vec<String> =
        files.list("a").stream().map(|entry| entry.unwrap().name).collect::<Vec<_>>().await;
    assert_eq!((names.len(), names[0].as_str(), names[251].as_str()), (252, "001", "link"));
    let few: Vec<_> = files.list("a").page_size(7).stream().try_collect().await.unwrap();
    assert_eq!(few.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>(), names);
    let link = files.stat("a/link").await.unwrap();
    assert_eq!((link.kind, link.link_target.as_deref()), (FileType::Symlink, Some("001")));
    assert_eq!(files.stat_target("a/link").await.unwrap().kind, FileType::File);
    assert_eq!(code(files.mkdir("a").await), Code::FileExists);
    assert_eq!(code(files.read("a").await), Code::NotAFile);
    assert_eq!(code(files.list("a/001").page(0).await), Code::NotADirectory);
    assert_eq!(code(files.delete("a").await), Code::DirectoryNotEmpty);
    assert_eq!(code(files.write("no/such/dir", "x").await), Code::FileNotFound);
    assert_eq!(code(files.delete("/proc/version").await), Code::PermissionDenied);
    files.rename("a", "c").await.unwrap();
    assert!(!files.exists("a").await.unwrap() && files.exists("c/link").await.unwrap());
    assert_eq!(files.delete("c").recursive().await.unwrap(), 253);
    let fill = "fallocate -l $(($(df --output=avail -B1 . | tail -1) - 50000000)) fill";
    assert_eq!(sandbox.execute(fill).await.unwrap().exit_code, Some(0));
    let full = files.write("full", FileBody::reader(tokio::io::repeat(0))).await.unwrap_err();
    assert_eq!((full.code(), full.retryable(), full.repeats()), (Code::DiskFull, false, 0));
    assert!(!files.exists("full").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_are_uploaded_and_downloaded_completely() {
    let service = service().await;
    let sandbox = client(&service).await.create(e2e::service::Service::image()).await.unwrap();
    let files = sandbox.files();
    let local = tempfile::tempdir().unwrap();
    let (source, back) = (local.path().join("source"), local.path().join("back"));
    std::fs::create_dir_all(source.join("src/deep")).unwrap();
    std::fs::write(source.join("src/deep/main"), content(1_000_000)).unwrap();
    std::fs::set_permissions(source.join("src/deep/main"), PermissionsExt::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("deep/main", source.join("src/link")).unwrap();
    let long = format!("src/{}", "n".repeat(250));
    std::fs::write(source.join(&long), "long").unwrap();
    for n in 0..300 {
        std::fs::write(source.join(format!("file-{n}")), n.to_string()).unwrap();
    }
    let unpacked = files.unpack("project", FileBody::directory(&source)).await.unwrap();
    assert_eq!((unpacked.files, unpacked.links, unpacked.skipped), (302, 1, 0));
    let listing =
        sandbox.execute("cd project; stat -c '%u %a' src/deep/main; cat file-299; readlink src/link");
    assert_eq!(listing.await.unwrap().stdout, "0 755\n299deep/main\n");
    sandbox.execute("cd project; mkfifo fifo; rm file-0").await.unwrap();
    let unpacked = files.pack("project").to_directory(&back).await.unwrap();
    assert_eq!((unpacked.files, unpacked.links), (301, 1));
    let differ = std::process::Command::new("diff").arg("-r").args([&source, &back]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&differ.stdout), format!("Only in {}: file-0\n", source.display()));
    assert_eq!(code(files.pack("project/file-1").stream().await), Code::NotADirectory);
    assert_eq!(code(files.unpack("x", "not an archive").await), Code::InvalidRequest);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_transfers_leave_nothing() {
    let service = service().await;
    let sandbox = client(&service).await.create(e2e::service::Service::image()).await.unwrap();
    let files = sandbox.files();
    files.write("kept", "old").await.unwrap();
    let endless = files.write("kept", FileBody::reader(tokio::io::repeat(b'x')));
    let timeout = std::time::Duration::from_millis(500);
    assert!(tokio::time::timeout(timeout, endless).await.is_err());
    assert_eq!(files.read("kept").text().await.unwrap(), "old");
    wait_until("no temporary file is left", async || {
        sandbox.execute("ls -A | wc -l").await.unwrap().stdout == "1\n"
    })
    .await;
    sandbox.execute("head -c 50M /dev/zero > large").await.unwrap();
    let mut stream = files.read("large").stream().await.unwrap();
    stream.next().await.unwrap().unwrap();
    drop(stream);
    assert!(files.exists("kept").await.unwrap());
}
