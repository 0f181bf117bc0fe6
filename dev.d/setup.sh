# shellcheck shell=bash
# The packages that each command of ./dev needs, in groups. setup installs the missing ones (dev.d/apt.sh).
# Sourced by ./dev; provides setup and need_cargo.

# One row per line: GROUP PACKAGE CHECK. CHECK is a command to find on the path, or a file. `?` after a package marks one
# that some distributions lack; `without` then reports the consequence. `cargo xtask tidy` compares this table with the
# programs that code, tests and scripts start.
wanted() {
  cat <<'TABLE'
build  gcc                    cc
build  libc6-dev              /usr/include/stdio.h
build  pkg-config             pkg-config
build  ca-certificates        /etc/ssl/certs/ca-certificates.crt
run    runc                   runc
run    e2fsprogs              mkfs.ext4
run    util-linux             lsns
run    mount                  losetup
run    procps                 ps
run    iproute2               ip
run    nftables               nft
run    lxcfs?                 lxcfs
run    mmdebstrap             mmdebstrap
run    debian-archive-keyring /usr/share/keyrings/debian-archive-keyring.gpg
run    npm                    npm
run    zstd                   zstd
run    xz-utils               xz
test   docker-registry        docker-registry
test   python3                python3
test   python3-venv           /usr/share/doc/python3-venv/copyright
run    curl                   curl
test   curl                   curl
test   sqlite3                sqlite3
test   qemu-system-x86        qemu-system-x86_64
test   busybox-static         busybox
test   bind9-dnsutils         dig
test   git                    git
test   tmux                   tmux
test   conntrack              conntrack
test   util-linux             mkswap
test   mount                  swapon
test   openssl                openssl
test   nodejs                 node
test   npm                    npm
lint   nodejs                 node
lint   npm                    npm
lint   python3                python3
lint   python3-venv           /usr/share/doc/python3-venv/copyright
test   nginx-light            nginx
test   fcgiwrap               fcgiwrap
bench  bubblewrap             bwrap
bench  python3                python3
bench  python3-venv           /usr/share/doc/python3-venv/copyright
bench  git                    git
bench  nodejs                 node
bench  npm                    npm
bench  nginx-light            nginx
bench  curl                   curl
bench  fcgiwrap               fcgiwrap
docker docker.io              dockerd
lint   shellcheck             shellcheck
lint   git                    git
fuzz   g++                    c++
runtimes chromium             chromium
runtimes npm                  npm
runtimes nodejs               node
fresh  mmdebstrap             mmdebstrap
fresh  debian-archive-keyring /usr/share/keyrings/debian-archive-keyring.gpg
fresh  iproute2               ip
fresh  nftables               nft
fresh  mount                  mount
fresh  procps                 sysctl
fresh  git                    git
TABLE
}

present() {
  case $1 in
    /*) [ -e "$1" ] ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

without() {
  case $1 in
    lxcfs) say "this distribution has no package lxcfs: /proc/meminfo inside a sandbox will show the memory of the host" ;;
  esac
}

# setup GROUP...: installs the missing packages of the groups. It does not start apt if none is missing.
setup() {
  local group package check missing=() optional=()
  while read -r group package check; do
    case " $* " in *" $group "*) ;; *) continue ;; esac
    present "$check" && continue
    case " ${missing[*]-} ${optional[*]-} " in *" ${package%?} "* | *" $package "*) continue ;; esac
    case $package in
      *'?') optional+=("${package%?}") ;;
      *) missing+=("$package") ;;
    esac
  done <<<"$(wanted)"
  if [ ${#missing[@]} -gt 0 ] || [ ${#optional[@]} -gt 0 ]; then
    install_packages
  fi
  case " $* " in *' build '*) need_cargo ;; esac
  case " $* " in *' run '*) gvisor ;; esac
  case " $* " in *' test '*) venv target/venv "$SCHEMATHESIS" ;; esac
  case " $* " in *' test '* | *' lint '*)
    npm_packages sdk/typescript
    venv target/venv-sdk sdk/python/requirements-dev.txt
    ;;
  esac
  case " $* " in *' test '* | *' bench '*) s3_server ;; esac
  case " $* " in *' test '*) mcp_clients; e2b_packages; works_with_ci ;; esac
}

# No distribution packages it.
SCHEMATHESIS=schemathesis==4.32.5
MCP_PYTHON=mcp==2.3.0

# The official MCP clients, below target/: they are only for tests of the MCP server.
mcp_clients() {
  venv target/venv-mcp "$MCP_PYTHON"
  mkdir -p target/npm-mcp
  cp e2e/tests/mcp/package.json e2e/tests/mcp/package-lock.json e2e/tests/mcp/.npmrc target/npm-mcp/
  npm_packages target/npm-mcp
}

S3_SERVER=0.14.1

# An S3 server, which no distribution packages, below target/: it is only for tests and benchmarks of the object store.
s3_server() {
  local marker=target/s3/.version
  [ "$(cat "$marker" 2>/dev/null)" = "$S3_SERVER" ] && return
  say "building the S3 server s3s-fs $S3_SERVER into target/s3/"
  if cargo install --quiet --locked --root target/s3 --target-dir target/s3/build --features binary \
    "s3s-fs@$S3_SERVER" >&2; then
    rm -rf target/s3/build
    printf '%s\n' "$S3_SERVER" >"$marker"
  else
    say "the S3 server could not be built: the tests of the object store fail"
  fi
}

# venv DIRECTORY REQUIREMENT...: a Python virtual environment with these requirements. An argument that ends in .txt is a
# file of requirements. It does nothing if the environment has them.
venv() {
  local directory=$1 marker wanted interpreter=
  shift
  marker=$directory/.requirements
  wanted=$(for requirement in "$@"; do
    case $requirement in *.txt) cat "$requirement" ;; *) printf '%s\n' "$requirement" ;; esac
  done)
  # Its programs name their interpreter by absolute path, which is wrong after the checkout was moved or copied.
  if [ "$(cat "$marker" 2>/dev/null)" = "$wanted" ]; then
    read -r interpreter <"$directory/bin/pip" || interpreter=
    [[ $interpreter = "#!$PWD/$directory/bin/python"* ]] && return
  fi
  say "installing into $directory: ${wanted//$'\n'/ }"
  mkdir -p "$(dirname "$directory")"
  if python3 -m venv --clear "$directory" && "$directory/bin/python" -m pip install -q --disable-pip-version-check \
    -r <(printf '%s\n' "$wanted") >&2; then
    printf '%s\n' "$wanted" >"$marker"
  else
    say "the packages could not be installed: the tests that need $directory will be skipped"
    rm -rf "$directory"
  fi
}

# npm_packages DIRECTORY: the packages of its package-lock.json, in its node_modules/. It does nothing if they are installed.
npm_packages() {
  local directory=$1 marker=$1/node_modules/.lock
  cmp -s "$directory/package-lock.json" "$marker" && return
  say "installing the packages of $directory/package-lock.json"
  if npm ci --prefix "$directory" --no-audit --no-fund --loglevel=error >&2; then
    cp "$directory/package-lock.json" "$marker"
  else
    say "the packages could not be installed: the tests and checks of $directory will be skipped"
    rm -rf "$directory/node_modules"
  fi
}

# Rust comes from rustup, because the distributions' compilers are too old.
need_cargo() {
  local want have
  want=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
  if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then
    say "cargo is missing; this project needs Rust $want or newer."
    how_to_get_cargo
    exit 1
  fi
  have=$(rustc --version | awk '{print $2}')
  if [ "$(printf '%s\n%s\n' "$want" "${have%%-*}" | sort -V | sed -n 1p)" != "$want" ]; then
    say "rustc is $have; this project needs $want or newer."
    if command -v rustup >/dev/null; then say "run: rustup update stable && rustup default stable"; else how_to_get_cargo; fi
    exit 1
  fi
}

how_to_get_cargo() {
  if [ -n "$(apt-cache madison rustup 2>/dev/null)" ]; then
    say "run: apt-get install -y rustup && rustup default stable"
    say "or, from the Rust project itself:"
  else
    say "run (curl is installed by: apt-get install -y curl):"
  fi
  say "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal -c clippy -c rustfmt"
  say "then run ./dev again"
}
