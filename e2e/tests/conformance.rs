//! All backends pass the conformance suite of drivers.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use api::Isolation;
use driver::Sandboxes;
use driver::conformance::{Host, all};
use driver_host::{Backend, DiskRates, HostDriver, Settings};
use driver_native::Native;
use driver_oci::{Gvisor, OciRuntime};

/// The programs that the suite's commands use.
const PROGRAMS: [&str; 5] = ["bash", "cat", "head", "pgrep", "sleep"];
/// Far above the ids of a real service and of other tests.
const UID_BASE: u32 = 0xE000_0000;

/// A driver with its own directories, which are removed on drop.
struct Site {
    driver: HostDriver,
    data: PathBuf,
}

impl Site {
    fn new(isolation: Isolation, backend: Box<dyn Backend>, block: u32) -> Self {
        let name = format!("sandboxd-test-conformance-{}-{block}", std::process::id());
        let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
        let settings = Settings {
            agent: e2e::agent().unwrap(),
            data_dir: data.clone(),
            run_dir: Path::new("/run").join(&name),
            cgroup_parent: name,
            uid_base: UID_BASE + block * 16 * 65_536,
            pids_max: 256,
            disk_rates: DiskRates::default(),
            memory_max_mb: None,
            lxcfs: None,
            minimum_isolation: Isolation::Container,
            resolver: None,
        };
        let backends = [(isolation, backend)].into();
        Self { driver: HostDriver::new(settings, backends).unwrap(), data }
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

async fn conforms(isolation: Isolation, backend: Box<dyn Backend>, block: u32) {
    let site = Site::new(isolation, backend, block);
    let root = site.data.join("root");
    small_root(&root);
    all(Host { driver: Arc::new(site.driver.clone()), isolation, layers: vec![root] }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_launcher_conforms() {
    conforms(Isolation::Container, Box::new(Native::new(e2e::launcher().unwrap()).unwrap()), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runc_conforms() {
    let runc = OciRuntime::new(find("runc").expect("runc is installed"), Vec::new());
    conforms(Isolation::Container, Box::new(runc), 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gvisor_conforms() {
    let gvisor = Gvisor::new(e2e::gvisor().unwrap(), Vec::new()).unwrap();
    conforms(Isolation::Gvisor, Box::new(gvisor), 1).await;
}
