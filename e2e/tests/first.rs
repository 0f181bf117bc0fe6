//! The thinnest path: create, run, pause, resume, restart, destroy.
use e2e::{Rig, RigOptions};

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_lives_and_dies() {
    let rig = Rig::new(RigOptions::default()).await.unwrap();
    let t = std::time::Instant::now();
    let id = rig.create().await.unwrap();
    println!("create {:?}", t.elapsed());
    for _ in 0..20 { let t = std::time::Instant::now(); rig.output(&id, "true").await.unwrap(); println!("exec {:?}", t.elapsed()); }
    rig.output(&id, "echo hi > f; sleep 1000 >/dev/null 2>&1 &").await.unwrap();
    let t = std::time::Instant::now();
    rig.engine.pause("test", &id).await.unwrap();
    println!("pause {:?}", t.elapsed());
    let t = std::time::Instant::now();
    rig.engine.resume("test", &id).await.unwrap();
    println!("resume {:?}", t.elapsed());
    let rig = rig.restart().await.unwrap();
    println!("{:?}", rig.recovered);
    println!("{}", rig.output(&id, "cat f; ps aux | grep sleep").await.unwrap());
    let t = std::time::Instant::now();
    rig.engine.terminate("test", &id, "request").await.unwrap();
    println!("terminate {:?}", t.elapsed());
    rig.clear().await.unwrap();
}
