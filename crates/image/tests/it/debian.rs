//! Builds the Debian fallback. The root is stored in the target directory under the digest of the building code, so
//! that only the first run builds it.

use std::path::PathBuf;

use image::{Catalogue, Images, Options};
use tokio::sync::OnceCell;

use crate::support::*;

const BASE: &str = "debian:bookworm+ca-certificates+curl+git+iproute2+iputils-ping+jq+less+procps+socat+sudo";

static IMAGES: OnceCell<Images> = OnceCell::const_new();

/// An unreachable source before each Debian source.
const UNREACHABLE: &str = "127.0.0.1:1/library/none:1";

async fn images() -> &'static Images {
    IMAGES
        .get_or_init(async || {
            let code = [
                include_str!("../../src/debian.rs"),
                include_str!("../../src/debian/node.rs"),
                include_str!("../../src/debian/about.rs"),
                include_str!("../../src/debian/users.rs"),
            ];
            let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
            let root = target.join(format!("debian-{}", &sha256(code.concat().as_bytes())[7..23]));
            for stale in names_in(&target).into_iter().filter(|name| name.starts_with("debian-")) {
                if target.join(&stale) != root {
                    std::fs::remove_dir_all(target.join(stale)).unwrap();
                }
            }
            let mut catalogue = Catalogue::default();
            catalogue.set("ubuntu:24.04", &[UNREACHABLE, BASE]).unwrap();
            catalogue.set("node:22", &[UNREACHABLE, &format!("{BASE}+node22+user-node")]).unwrap();
            catalogue
                .set("python:3.12", &[UNREACHABLE, &format!("{BASE}+python3+python3-pip+python3-venv")])
                .unwrap();
            catalogue.set("plain", &[BASE]).unwrap();
            catalogue.set("wrong", &["debian:bookworm+no-such-package-anywhere"]).unwrap();
            Images::open(&root, catalogue, Options::default()).unwrap()
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_base_is_a_stand_in_with_a_description() {
    let images = images().await;
    let (got, plain) =
        tokio::join!(images.ensure("ubuntu:24.04", silent()), images.ensure("plain", silent()));
    let (got, plain) = (got.unwrap(), plain.unwrap());
    let stand_in = got.stand_in.clone().unwrap();
    assert!(
        stand_in.contains("ubuntu:24.04 on this host is a stand-in built from Debian bookworm"),
        "{stand_in}"
    );
    assert!(stand_in.contains("cannot be reached") && stand_in.contains("bash 5."), "{stand_in}");
    // Requested by itself it is not a stand-in, and shares the layer.
    assert_eq!(plain.stand_in, None);
    assert_eq!(plain.layers.last(), got.layers.last());
    let root = Mounted::new(&got.layers);
    let text = root.run("cat /etc/sandbox-image");
    assert!(text.contains("stand-in for ubuntu:24.04") && text.contains("bash 5."), "{text}");
    assert!(!text.contains(UNREACHABLE), "{text}");
    let version = |program: &str| got.versions.iter().find(|(name, _)| name == program).unwrap().1.clone();
    assert!(root.run("bash --version").contains(&version("bash")));
    assert!(root.run("git --version").contains(&version("git")));
    assert!(root.run("curl --version; ls --version").contains(&version("curl")));
    assert_eq!(names_in(&got.layers[0].join("dev")), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn node_is_a_layer_over_the_same_base() {
    let images = images().await;
    let (got, base) = tokio::join!(images.ensure("node:22", silent()), images.ensure("plain", silent()));
    let (got, base) = (got.unwrap(), base.unwrap());
    assert_eq!(got.layers.len(), 3);
    assert_eq!(got.layers.last(), base.layers.last());
    let root = Mounted::new(&got.layers);
    let version = |program: &str| got.versions.iter().find(|(name, _)| name == program).unwrap().1.clone();
    assert_eq!(root.run("node --version").trim(), format!("v{}", version("node")));
    assert!(version("node").starts_with("22."));
    assert_eq!(root.run("npm --version").trim(), version("npm"));
    assert_eq!(root.run("npx --version").trim(), version("npm"));
    assert_eq!(root.run("cd /usr/local/lib/node_modules/npm && test -x node_modules/node-gyp/gyp/gyp && test -x bin/npm-cli.js && echo yes").trim(), "yes");
    assert_eq!(root.run("node -e 'console.log(6 * 7)'").trim(), "42");
    // The official image has this user.
    assert_eq!(root.run("id node").trim(), "uid=1000(node) gid=1000(node) groups=1000(node)");
    assert_eq!(root.run("stat -c '%u:%g %a' ~node /etc/shadow").trim(), "1000:1000 755\n0:42 640");
    assert_eq!(root.run("head -n 1 /etc/passwd /etc/shadow | grep -c ^root:").trim(), "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn python_reports_its_real_version() {
    let images = images().await;
    let (got, base) = tokio::join!(images.ensure("python:3.12", silent()), images.ensure("plain", silent()));
    let (got, base) = (got.unwrap(), base.unwrap());
    assert_eq!(got.layers.len(), 3);
    assert_eq!(got.layers.last(), base.layers.last());
    let python = got.versions.iter().find(|(name, _)| name == "python").unwrap().1.clone();
    assert!(python.starts_with("3.11."), "{python}");
    assert!(got.stand_in.as_ref().unwrap().contains(&format!("python {python}")));
    let root = Mounted::new(&got.layers);
    assert_eq!(root.run("python --version").trim(), format!("Python {python}"));
    assert!(root.run("cat /etc/sandbox-image").contains(&format!("python {python}")));
    assert!(root.run("pip --version").contains("python 3.11"));
    assert!(root.run("dpkg --audit; dpkg -l python3-pip").contains("ii  python3-pip"));
    assert_eq!(root.run("ls -d /etc/resolv.conf /usr/sbin/policy-rc.d 2>/dev/null || true"), "");
    root.run("python3 -m venv /tmp/v && /tmp/v/bin/python -c 'import ssl, sqlite3'");
    assert_eq!(root.run("ls /usr/lib/python3.11 | grep -c EXTERNALLY || true").trim(), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_package_is_reported() {
    let e = images().await.ensure("wrong", silent()).await.unwrap_err();
    assert!(e.to_string().contains("no-such-package-anywhere"), "{e}");
}
