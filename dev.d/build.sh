# shellcheck shell=bash
# Builds the workspace and lays the programs out in target/bin/. Sourced by ./dev; gives build_all, build_programs, is_built.

# The agent sits in every sandbox and is tested against this bound, in bytes.
AGENT_MAX_BYTES=$((3 * 1024 * 1024))

# Touched when a build that succeeded began: what changed after that is not in the programs.
BUILT=target/bin/.built

build_all() {
  touch_new_stamp
  cargo build --release --workspace --locked
  build_agent
  place_programs
}

is_built() {
  [ -e "$BUILT" ] && [ -x target/bin/sandboxd ] && [ -x target/bin/sbx ] && [ -x target/bin/sandbox-agent ] &&
    [ -z "$(find crates Cargo.toml Cargo.lock .cargo dev.d/build.sh -newer "$BUILT" -print -quit)" ]
}

# Only what serves, and what talks to it.
build_programs() {
  touch_new_stamp
  cargo build --release --locked -p sandboxd -p sbx
  build_agent
  place_programs
}

touch_new_stamp() {
  mkdir -p target/bin
  touch "$BUILT.new"
}

build_agent() {
  local triple
  triple=$(rustc -vV | sed -n 's/^host: //p')
  # Static, so that it starts in any image; a target directory of its own keeps its flags from rebuilding the rest.
  RUSTFLAGS="-C target-feature=+crt-static" \
    cargo build --profile agent -p sandbox-agent --locked --target "$triple" --target-dir target/agent
  place "target/agent/$triple/agent/sandbox-agent"
  check_agent target/bin/sandbox-agent
}

place_programs() {
  place target/release/sandboxd
  place target/release/sbx
  mv -f "$BUILT.new" "$BUILT"
}

# place PROGRAM: puts it in target/bin/ in one step, so that a running daemon keeps the file it started from.
place() {
  local name
  name=$(basename "$1")
  mkdir -p target/bin
  cp -f "$1" "target/bin/.$name.new"
  mv -f "target/bin/.$name.new" "target/bin/$name"
}

check_agent() {
  local bytes
  bytes=$(stat -c %s "$1")
  [ "$bytes" -le "$AGENT_MAX_BYTES" ] || die "$1 has $bytes bytes; at most $AGENT_MAX_BYTES are allowed"
  if readelf -lW "$1" | grep -q INTERP; then die "$1 is not static: it names a loader"; fi
}
