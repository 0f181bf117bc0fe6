//! The web servers of this internet: one nginx on every address, with HTTP/1.1 and 2, TLS under the test's authority, a
//! websocket, git, and package indexes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::certificates::Certificates;
use super::namespace::Namespace;
use super::server_process::ServerProcess;

const TIMEOUT: Duration = Duration::from_secs(10);
/// The size of `/big`, for throughput measurements.
pub const BIG_MB: u64 = 256;

/// The web servers.
pub struct Web {
    _servers: Vec<ServerProcess>,
    pub log: PathBuf,
}

impl Web {
    pub fn start(outside: &Namespace, dir: &Path, certificates: &Certificates) -> Result<Self> {
        let root = dir.join("web");
        for below in ["files", "simple/tiny-package", "git", "tmp", "npm"] {
            std::fs::create_dir_all(root.join(below))?;
        }
        let big = std::fs::File::create(root.join("files/big"))?;
        big.set_len(BIG_MB << 20)?;
        run("python3", &["-c", PACKAGES, &root.display().to_string(), super::ZONE])?;
        run("sh", &["-c", REPOSITORY, "sh", &root.display().to_string()])?;
        let script = dir.join("ws_echo.py");
        std::fs::write(&script, include_str!("ws_echo.py"))?;
        let (echo, git) = (dir.join("ws.sock"), dir.join("git.sock"));
        let config = dir.join("nginx.conf");
        std::fs::write(&config, nginx(dir, certificates))?;
        let path = |path: &Path| path.display().to_string();
        let servers = outside.inside(|| {
            Ok(vec![
                ServerProcess::new(["python3", &path(&script), &path(&echo)])?,
                ServerProcess::new(["fcgiwrap", "-s", &format!("unix:{}", git.display())])?,
                ServerProcess::new(["nginx", "-p", &path(dir), "-c", &path(&config)])?,
            ])
        })?;
        await_file(&echo)?;
        await_file(&git)?;
        let begin = Instant::now();
        while outside.inside(|| Ok(std::net::TcpStream::connect(("127.0.0.1", 80)).is_err()))? {
            ensure!(begin.elapsed() < TIMEOUT, "nginx does not accept connections");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self { _servers: servers, log: dir.join("access.log") })
    }
}

fn await_file(path: &Path) -> Result<()> {
    let begin = Instant::now();
    while !path.exists() {
        ensure!(begin.elapsed() < TIMEOUT, "{} was not created in time", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn run(program: &str, words: &[&str]) -> Result<()> {
    let output = Command::new(program).args(words).output()?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Every page names the host and address that its server assumed.
fn nginx(dir: &Path, certificates: &Certificates) -> String {
    let dir = dir.display();
    let (certificate, key) = (certificates.certificate.display(), certificates.key.display());
    format!(
        r#"
daemon off;
master_process off;
worker_rlimit_nofile 65536;
pid {dir}/nginx.pid;
error_log {dir}/error.log;
events {{ worker_connections 30000; }}
http {{
  log_format requests '$server_addr:$server_port $scheme host=$host sni=$ssl_server_name $request';
  access_log {dir}/access.log requests;
  client_body_temp_path {dir}/web/tmp/body; proxy_temp_path {dir}/web/tmp/proxy; fastcgi_temp_path {dir}/web/tmp/fastcgi;
  uwsgi_temp_path {dir}/web/tmp/uwsgi; scgi_temp_path {dir}/web/tmp/scgi;
  sendfile on; tcp_nodelay on; keepalive_timeout 600s; keepalive_requests 1000000; client_header_timeout 600s;
  client_max_body_size 1g; types {{ text/html html; application/json json; }} default_type application/octet-stream;
  server {{
    listen 80 default_server backlog=8192; listen [::]:80 default_server;
    listen 8080 default_server; listen 443 ssl http2 default_server backlog=8192; listen [::]:443 ssl http2 default_server;
    listen 853 ssl default_server; listen 8443 ssl http2 default_server;
    ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_session_cache off;
    root {dir}/web;
    location = /hello {{ default_type text/plain; return 200 "hello host=$host sni=$ssl_server_name at=$server_addr:$server_port by=$server_protocol\n"; }}
    location = /dns-query {{ default_type application/dns-message; return 200 "an answer"; }}
    location = /latest/meta-data/ {{ default_type text/plain; return 200 "the-secret-of-the-cloud\n"; }}
    location = /upload {{ client_body_buffer_size 64k; proxy_pass http://127.0.0.1:80/nothing; }}
    location = /nothing {{ return 200 "taken\n"; }}
    location = /socket {{ proxy_pass http://unix:{dir}/ws.sock:/; proxy_http_version 1.1; proxy_read_timeout 600s;
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; proxy_set_header Host $host; }}
    location /git/ {{
      fastcgi_pass unix:{dir}/git.sock; include /etc/nginx/fastcgi_params;
      fastcgi_param SCRIPT_FILENAME /usr/lib/git-core/git-http-backend; fastcgi_param GIT_HTTP_EXPORT_ALL 1;
      fastcgi_param GIT_PROJECT_ROOT {dir}/web/git; fastcgi_param GIT_CONFIG_COUNT 1;
      fastcgi_param GIT_CONFIG_KEY_0 safe.directory; fastcgi_param GIT_CONFIG_VALUE_0 *;
      rewrite ^/git(/.*)$ $1 break; fastcgi_param PATH_INFO $uri; fastcgi_param SCRIPT_NAME "";
    }}
    location /simple/ {{ autoindex on; index index.html; }}
    location = /tiny-package {{ default_type application/json; alias {dir}/web/npm/tiny-package.json; }}
    location / {{ }}
  }}
}}
"#
    )
}

/// A git repository with one commit.
const REPOSITORY: &str = r#"set -eu
git=$1/git/project.git
unset GIT_DIR GIT_WORK_TREE
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
git init -q --bare -b main "$git"
blob=$(echo 'what was cloned' | git -C "$git" hash-object -w --stdin)
tree=$(printf '100644 blob %s\tREADME\n' "$blob" | git -C "$git" mktree)
commit=$(git -C "$git" -c user.name=t -c user.email=t@web.example commit-tree -m one "$tree")
git -C "$git" update-ref refs/heads/main "$commit"
git -C "$git" update-server-info
"#;

/// A wheel and an index page; the same for npm. The files are on another host than the index.
const PACKAGES: &str = r#"
import base64, hashlib, io, json, sys, tarfile, zipfile
root, zone = sys.argv[1:]
name = "tiny_package-1.0-py3-none-any.whl"
with zipfile.ZipFile(f"{root}/files/{name}", "w") as wheel:
    record = []
    def add(path, text):
        wheel.writestr(path, text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(text)}")
    add("tiny_package.py", "WORD = 'installed'\n")
    add("tiny_package-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-package\nVersion: 1.0\n")
    add("tiny_package-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    record.append("tiny_package-1.0.dist-info/RECORD,,")
    wheel.writestr("tiny_package-1.0.dist-info/RECORD", "\n".join(record) + "\n")
with open(f"{root}/simple/tiny-package/index.html", "w") as page:
    page.write(f'<!DOCTYPE html><html><body><a href="https://files.{zone}/files/{name}">{name}</a></body></html>')
packed = io.BytesIO()
with tarfile.open(fileobj=packed, mode="w:gz") as tar:
    for path, text in {
        "package/package.json": json.dumps({"name": "tiny-package", "version": "1.0.0", "main": "index.js"}),
        "package/index.js": "module.exports = 'installed';\n",
    }.items():
        member = tarfile.TarInfo(path)
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text.encode()))
open(f"{root}/files/tiny-package-1.0.0.tgz", "wb").write(packed.getvalue())
integrity = "sha512-" + base64.b64encode(hashlib.sha512(packed.getvalue()).digest()).decode()
dist = {"tarball": f"https://files.{zone}/files/tiny-package-1.0.0.tgz", "integrity": integrity}
version = {"name": "tiny-package", "version": "1.0.0", "main": "index.js", "dist": dist}
json.dump({"name": "tiny-package", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}, open(f"{root}/npm/tiny-package.json", "w"))
"#;
