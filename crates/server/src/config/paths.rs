//! Relative paths of the file: they are below the directory of the file, wherever the daemon is started.
//!
//! A program without a slash is a name that is looked up in `PATH`; words such as `auto` have none either.

use std::path::Path;

use super::declare::Setting;
use super::http::Tls;
use super::settings::Config;

/// Prefixes of the sources of images that are followed by a path.
const PATH_SOURCES: [&str; 2] = ["oci-layout:", "rootfs:"];
/// The prefix of an object store in a directory. Nothing follows it if there is no object store.
const DIRECTORY_STORE: &str = "file:";

impl Config {
    /// Makes relative paths absolute. `base` is absolute.
    pub(super) fn resolve_paths(&mut self, base: &Path) {
        Setting::resolve(self, base);
        for program in [
            &mut self.runtime.path,
            &mut self.runtime.agent,
            &mut self.runtime.lxcfs,
            &mut self.isolation.container.program,
            &mut self.isolation.gvisor.program,
        ] {
            if program.contains('/') {
                resolve_after("", program, base);
            }
        }
        resolve_after(DIRECTORY_STORE, &mut self.snapshots.store, base);
        for source in self.images.named.values_mut().flatten() {
            PATH_SOURCES.iter().for_each(|prefix| resolve_after(prefix, source, base));
        }
    }

    /// The files that the operator has written, and that a start reads, with their keys.
    pub fn named_files(&self) -> Vec<(&'static str, &Path)> {
        let mut files: Vec<(&'static str, &Path)> = Vec::new();
        if self.http.tls == Tls::Files {
            files.extend([("http.tls_cert", &*self.http.tls_cert), ("http.tls_key", &*self.http.tls_key)]);
        }
        if !self.snapshots.secret_file.as_os_str().is_empty() {
            files.push(("snapshots.secret_file", &*self.snapshots.secret_file));
        }
        if !self.images.credentials.as_os_str().is_empty() {
            files.push(("images.credentials", &*self.images.credentials));
        }
        files
    }
}

/// Resolves what follows the prefix. Texts of the file are UTF-8; below a directory whose path is not, a relative one stays as it is
/// and is refused where it is used.
fn resolve_after(prefix: &str, text: &mut String, base: &Path) {
    let Some(path) = text.strip_prefix(prefix).filter(|path| !path.is_empty()) else { return };
    if let Some(absolute) = base.join(path).to_str() {
        *text = format!("{prefix}{absolute}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn resolved(text: &str) -> Config {
        let mut config = parse(text).unwrap();
        config.resolve_paths(Path::new("/etc/sandboxd"));
        config
    }

    #[test]
    fn relative_paths_are_below_the_directory_of_the_file() {
        let config = resolved(
            r#"
            data_dir = "data"
            run_dir = "./run"
            [http]
            tls_cert = "tls/cert.pem"
            tls_key = "../keys/key.pem"
            [runtime]
            agent = "bin/sandbox-agent"
            [isolation.gvisor]
            program = "bin/runsc"
            [snapshots]
            store = "file:copies"
            secret_file = "secret"
            [images]
            credentials = "docker.json"
            "mine" = ["rootfs:mine.tar", "oci-layout:layouts/mine:tag"]
            "#,
        );
        let paths = [config.data_dir, config.run_dir, config.http.tls_cert, config.http.tls_key];
        let expected = ["data", "run", "tls/cert.pem", "../keys/key.pem"];
        assert_eq!(paths, expected.map(|path| Path::new("/etc/sandboxd").join(path)));
        assert_eq!(config.runtime.agent, "/etc/sandboxd/bin/sandbox-agent");
        assert_eq!(config.isolation.gvisor.program, "/etc/sandboxd/bin/runsc");
        assert_eq!(config.snapshots.store, "file:/etc/sandboxd/copies");
        assert_eq!(config.snapshots.secret_file, Path::new("/etc/sandboxd/secret"));
        let sources = ["rootfs:/etc/sandboxd/mine.tar", "oci-layout:/etc/sandboxd/layouts/mine:tag"];
        assert_eq!(config.images.named["mine"], sources);
        assert_eq!(config.images.credentials, Path::new("/etc/sandboxd/docker.json"));
    }

    #[test]
    fn absolute_paths_names_and_words_stay() {
        let text = r#"
            data_dir = "/srv/data"
            [runtime]
            lxcfs = "off"
            [isolation.container]
            program = "crun"
            [snapshots]
            store = "s3://bucket/prefix"
            [images]
            "mine" = ["docker.io/library/debian:12", "rootfs:/srv/mine"]
        "#;
        for text in ["", text] {
            let [resolved, plain] =
                [resolved(text), parse(text).unwrap()].map(|config| toml::Table::try_from(config).unwrap());
            assert_eq!(resolved, plain);
        }
    }
}
