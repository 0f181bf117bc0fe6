//! Exhaustion of processes, memory, disk, inodes and descriptors.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use crate::{
    agent_start_time, assert_neighbour_unaffected, in_sandbox, measure_neighbour, run_for, small, wait_until,
};

async fn run_fork_bomb(text: &str) {
    in_sandbox(async |rig, id| {
        let neighbour = small(rig).await;
        let agent = agent_start_time(rig, id).await;
        let begun = Instant::now();
        let (result, took) = measure_neighbour(rig, &neighbour, run_for(rig, id, text, 1500)).await;
        assert_eq!(result.signal.as_deref(), Some("SIGKILL"), "{result:?}");
        assert!(begun.elapsed() < Duration::from_secs(20), "ended after {:?}", begun.elapsed());
        assert_neighbour_unaffected(took);
        assert_eq!(agent_start_time(rig, id).await, agent);
        wait_until("all processes of the fork bomb have ended", async || {
            rig.host_pids(id).unwrap().len() == 1
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_ends_with_its_command() {
    run_fork_bomb("bomb() { bomb | bomb & }; bomb 2>/dev/null; sleep 60").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_that_hides_its_processes_ends() {
    run_fork_bomb("exec perl -e 'use POSIX; %ENV = (); $SIG{$_} = q(IGNORE) for qw(TERM HUP INT); while (1) { fork; setsid() }'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_process_table_is_reported_and_emptied_with_its_command() {
    in_sandbox(async |rig, id| {
        let fill = "exec perl -e 'for (1..600) { my $p = fork(); if (defined $p && !$p) { sleep 100; exit } } sleep 100'";
        let filling = rig
            .engine
            .sandbox("test", id).execute(api::ExecuteRequest { timeout_ms: 4000, ..e2e::command(fill) })
            .await
            .unwrap();
        let filling = tokio::spawn(filling.collect(1000));
        wait_until("the process table is full", async || rig.host_pids(id).unwrap().len() == 512).await;
        // At most bash can start. The response reports the failure in both cases.
        let begun = Instant::now();
        match rig.run(id, "/bin/true; /bin/true && echo ran").await {
            Ok(result) => assert_ne!(result.exit_code, Some(0), "a command ran with a full process table: {result:?}"),
            Err(error) => assert!(error.to_string().contains("limit of processes"), "{error}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        assert_eq!(filling.await.unwrap().unwrap().signal.as_deref(), Some("SIGKILL"));
        agent_start_time(rig, id).await;
        wait_until("the process table is empty", async || rig.host_pids(id).unwrap().len() == 1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_command_that_exceeds_memory_is_killed() {
    in_sandbox(async |rig, id| {
        let neighbour = small(rig).await;
        let agent = agent_start_time(rig, id).await;
        let bystander = rig.output(id, "sleep 1000 >/dev/null 2>&1 & echo $!").await.unwrap();
        for hog in [
            "exec perl -e '$x = q(x) x (1 << 30); sleep 100'",
            "for i in 1 2 3 4 5 6; do perl -e '$x = q(x) x (1 << 27); sleep 100' & done; wait; kill -9 $$",
        ] {
            let (result, took) = measure_neighbour(rig, &neighbour, run_for(rig, id, hog, 4000)).await;
            assert_eq!(result.signal.as_deref(), Some("SIGKILL"), "{result:?}");
            assert_neighbour_unaffected(took);
        }
        assert_eq!(agent_start_time(rig, id).await, agent);
        assert_eq!(rig.output(id, &format!("cat /proc/{}/comm", bystander.trim())).await.unwrap(), "sleep\n");
    })
    .await;
}

/// Files in memory count as the sandbox's memory and have their own limits.
#[tokio::test(flavor = "multi_thread")]
async fn files_in_memory_are_bounded() {
    in_sandbox(async |rig, id| {
        let agent = agent_start_time(rig, id).await;
        for (dir, most_kb) in [
            ("/dev", 64),
            ("/dev/shm", 128 * 1024),
            ("/sys/fs/cgroup", 0),
            ("/dev/mqueue", 1),
            ("/dev/pts", 0),
            ("/proc", 0),
        ] {
            let result = run_for(rig, id, &format!("head -c 300M /dev/zero > {dir}/fill"), 10_000).await;
            assert_eq!(result.exit_code, Some(1), "{dir}: {result:?}");
            let size = rig
                .output(
                    id,
                    &format!("[ -e {dir}/fill ] && stat -c %s {dir}/fill || echo 0; rm -f {dir}/fill"),
                )
                .await
                .unwrap();
            assert!(size.trim().parse::<u64>().unwrap() <= most_kb * 1024, "{dir} stored {size}");
        }
        // Empty files use memory but no blocks: their number is limited.
        for (dir, most) in [("/dev", 1024), ("/dev/shm", 256 * 64)] {
            let script = format!(
                r"exec perl -e 'for (1..1e6) {{ open F, q(>), qq({dir}/fill$_) or do {{ print $_; last }} }}'"
            );
            let result = run_for(rig, id, &script, 20_000).await;
            assert!(result.stdout.parse::<u64>().is_ok_and(|count| count <= most), "{dir}: {result:?}");
            rig.output(id, &format!("cd {dir}; ls -U | grep fill | xargs rm")).await.unwrap();
        }
        assert_eq!(agent_start_time(rig, id).await, agent);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_cannot_grow_beyond_its_size() {
    in_sandbox(async |rig, id| {
        let disk = rig.data.join("sandboxes").join(id.as_str()).join("disk.img");
        let result = run_for(rig, id, "head -c 1G /dev/urandom > fill", 20_000).await;
        assert!(
            result.exit_code == Some(1) && result.stderr.contains("No space left on device"),
            "{result:?}"
        );
        // The whole root file system is full, but commands still run.
        let result = rig.run(id, "echo more > /opt/more").await.unwrap();
        assert!(result.stderr.contains("No space left on device"), "{result:?}");
        let used = rig.output(id, "sync; stat -c %s fill").await.unwrap().trim().parse::<u64>().unwrap();
        assert!((40 << 20..64 << 20).contains(&used), "{used}");
        let on_host = std::fs::metadata(&disk).unwrap();
        assert!(
            on_host.len() == 64 << 20 && on_host.blocks() * 512 <= 65 << 20,
            "{} {}",
            on_host.len(),
            on_host.blocks()
        );
        // Space cannot be allocated beyond the size of the disk.
        assert_eq!(rig.run(id, "fallocate -l 1T big").await.unwrap().exit_code, Some(1));
        rig.output(id, "rm fill; echo x > f; sync").await.unwrap();
        // Space freed in the sandbox is returned to the host.
        wait_until("the space is returned to the host", async || {
            std::fs::metadata(&disk).unwrap().blocks() * 512 < 40 << 20
        })
        .await;
        assert_eq!(rig.output(id, "cat f").await.unwrap(), "x\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inodes_are_exhausted_only_in_the_sandbox() {
    in_sandbox(async |rig, id| {
        let script = "mkdir many; exec perl -e 'for (1..1e6) { open F, q(>), qq(many/$_) or die qq($_ $!) }'";
        let result = run_for(rig, id, script, 20_000).await;
        assert!(result.stderr.contains("No space left on device"), "{result:?}");
        assert_eq!(
            rig.output(id, "echo works; df -i / | tail -n 1 | awk '{print $4}'").await.unwrap(),
            "works\n0\n"
        );
        rig.output(id, "rm -r many; echo x > f").await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn descriptors_are_exhausted_only_in_the_sandbox() {
    in_sandbox(async |rig, id| {
        let neighbour = small(rig).await;
        let agent = agent_start_time(rig, id).await;
        // Many processes open files, full pipes and sockets until each call fails.
        let hog = r#"for i in $(seq 30); do perl -e '
            use Socket; my @open; my $fill = q(x) x 65536;
            for (1 .. 20000) { open(my $f, q(<), q(/etc/passwd)) or last; push @open, $f }
            while (pipe(my $r, my $w)) { fcntl($w, 4, 04001); syswrite $w, $fill; push @open, $r, $w }
            while (socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, 0)) { push @open, $a, $b }
            sleep 100' & done 2>/dev/null; wait"#;
        let (result, took) = measure_neighbour(rig, &neighbour, run_for(rig, id, hog, 2500)).await;
        assert_eq!(result.signal.as_deref(), Some("SIGKILL"), "{result:?}");
        assert_neighbour_unaffected(took);
        assert_eq!(agent_start_time(rig, id).await, agent);
        wait_until("all processes of the command have ended", async || rig.host_pids(id).unwrap().len() == 1)
            .await;
    })
    .await;
}
