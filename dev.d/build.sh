# shellcheck shell=bash
# Builds the workspace and places the programs in target/bin/. Sourced by ./dev; provides build_all, build_programs, build_sbx
# and is_built.

# The agent runs in every sandbox, and the launcher in every start of one. The build fails if one is larger than this, in bytes.
AGENT_MAX_BYTES=$((3 * 1024 * 1024))

# Its modification time is the start of the last successful build: programs do not contain sources that are newer.
BUILT=target/bin/.built

build_all() {
  touch_new_stamp
  cargo build --release --workspace --locked
  build_agent
  place_programs sandboxd sbx
  place_gvisor
}

# is_built PROGRAM...: whether these programs in target/bin/ are current.
is_built() {
  local program
  for program in "$@"; do
    [ -x "target/bin/$program" ] && [ -e "$BUILT.$program" ] || return 1
    [ -z "$(find crates Cargo.toml Cargo.lock .cargo dev.d/build.sh -newer "$BUILT.$program" -print -quit)" ] || return 1
  done
}

# Builds the programs of the service. The agent is built in parallel, in the time in which the build of the daemon uses only
# one core.
build_programs() {
  local agent log=target/agent.log
  touch_new_stamp
  (build_agent nice -n 19) >"$log" 2>&1 &
  agent=$!
  if ! cargo build --release --locked -p sandboxd; then
    kill "$agent" 2>/dev/null || true
    die "the build failed"
  fi
  wait "$agent" || { cat "$log" >&2; die "the build of the agent failed"; }
  place_programs sandboxd
  place_gvisor
}

# place_gvisor: makes the program that ./dev setup downloaded the one that the service finds.
place_gvisor() {
  if [ -x "$GVISOR_PROGRAM" ]; then ln -sf ../gvisor/runsc target/bin/runsc; fi
}

# build_sbx [PREFIX...]: builds the command line client, which the daemon does not need. PREFIX runs cargo.
build_sbx() {
  touch_new_stamp
  "$@" cargo build --release --locked -p sbx
  place_programs sbx
}

touch_new_stamp() {
  mkdir -p target/bin
  NEW_STAMP=$BUILT.new.$BASHPID
  touch "$NEW_STAMP"
}

# build_agent [PREFIX...]: builds the agent and the launcher. PREFIX runs cargo.
build_agent() {
  local triple
  triple=$(rustc -vV | sed -n 's/^host: //p')
  # Static, so that it runs in any image. Its flags would rebuild other crates in a shared target directory.
  RUSTFLAGS="-C target-feature=+crt-static" \
    "$@" cargo build --profile agent -p sandbox-agent -p launcher --locked --target "$triple" --target-dir target/agent
  place "target/agent/$triple/agent/sandbox-agent"
  place "target/agent/$triple/agent/sandbox-launcher"
  check_static target/bin/sandbox-agent
  check_static target/bin/sandbox-launcher
}

# place_programs NAME...: places programs of target/release/. Requires touch_new_stamp before the build.
place_programs() {
  local name
  for name in "$@"; do
    place "target/release/$name"
    cp -pf "$NEW_STAMP" "$BUILT.$name"
  done
  rm -f "$NEW_STAMP"
}

# place PROGRAM: replaces it in target/bin/ atomically, so that a running daemon is not affected.
place() {
  local name
  name=$(basename "$1")
  mkdir -p target/bin
  cp -f "$1" "target/bin/.$name.new"
  mv -f "target/bin/.$name.new" "target/bin/$name"
}

check_static() {
  local bytes
  bytes=$(stat -c %s "$1")
  [ "$bytes" -le "$AGENT_MAX_BYTES" ] || die "$1 has $bytes bytes; at most $AGENT_MAX_BYTES are allowed"
  if grep -q INTERP <<<"$(readelf -lW "$1")"; then die "$1 is not static: it has a program interpreter"; fi
}
