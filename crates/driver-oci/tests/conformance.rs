//! The OCI backends pass the conformance suite of drivers.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use driver::Driver;
use driver::conformance::{Host, all};
use driver_oci::{DiskRates, OciDriver, Settings};

/// The programs that the suite's commands use.
const PROGRAMS: [&str; 5] = ["bash", "cat", "head", "pgrep", "sleep"];
/// Far above the ids of a real service and of other tests.
const UID_BASE: u32 = 0xE000_0000;

/// A driver with its own directories, which are removed on drop.
struct Site {
    driver: OciDriver,
    data: PathBuf,
}

impl Site {
    fn new(runtime: &Path, arguments: &[&str], block: u32) -> Self {
        let name = format!("sandboxd-test-conformance-{}-{block}", std::process::id());
        let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
        let settings = Settings {
            runtime: runtime.to_owned(),
            flavour: Settings::flavour_of(runtime),
            runtime_args: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            agent: agent(),
            data_dir: data.clone(),
            run_dir: Path::new("/run").join(&name),
            cgroup_parent: name,
            uid_base: UID_BASE + block * 16 * 65_536,
            pids_max: 256,
            disk_rates: DiskRates::default(),
            memory_max_mb: None,
            lxcfs: None,
            resolver: None,
        };
        Self { driver: OciDriver::new(settings).unwrap(), data }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(async {
                    for id in self.driver.list().await.unwrap() {
                        self.driver.destroy(&id).await.unwrap();
                    }
                    self.driver.retire().await.unwrap();
                });
                fs::remove_dir_all(&self.data).unwrap();
            });
        });
    }
}

/// The agent that `./dev build` built.
fn agent() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bin/sandbox-agent");
    let path = std::env::var_os("SANDBOXD_AGENT").map_or(built, PathBuf::from);
    path.canonicalize().unwrap_or_else(|_| panic!("no agent at {}: run './dev build' first", path.display()))
}

fn find(program: &str) -> Option<PathBuf> {
    let places = ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"];
    places.iter().map(|place| Path::new(place).join(program)).find(|path| path.exists())
}

/// A root file system with a few of the host's programs and their libraries.
fn small_root(root: &Path) {
    for dir in ["usr/bin", "usr/lib", "usr/lib64"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    for link in ["bin", "lib", "lib64"] {
        std::os::unix::fs::symlink(format!("usr/{link}"), root.join(link)).unwrap();
    }
    for program in PROGRAMS {
        let path = find(program).unwrap_or_else(|| panic!("this host has no {program}"));
        fs::copy(&path, root.join("usr/bin").join(program)).unwrap();
        let loads = Command::new("ldd").arg(&path).output().unwrap();
        let loads = String::from_utf8(loads.stdout).unwrap();
        for library in loads.split_whitespace().filter(|word| word.starts_with('/')) {
            let target = root.join(library.trim_start_matches('/'));
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            fs::copy(library, target).unwrap();
        }
    }
}

async fn conforms(runtime: &Path, arguments: &[&str], block: u32) {
    let site = Site::new(runtime, arguments, block);
    let root = site.data.join("root");
    small_root(&root);
    all(Host { driver: Arc::new(site.driver.clone()), layers: vec![root] }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runc_conforms() {
    conforms(&find("runc").expect("runc is installed"), &[], 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gvisor_conforms() {
    let Some(runsc) = find("runsc") else {
        if let Some(log) = std::env::var_os("SANDBOXD_SKIP_LOG") {
            use std::io::Write;
            let mut log = fs::File::options().append(true).create(true).open(log).unwrap();
            writeln!(log, "gvisor_conforms: this host has no runsc").unwrap();
        }
        return;
    };
    // The only platform that every supported version has.
    conforms(&runsc, &["--platform=ptrace"], 1).await;
}
