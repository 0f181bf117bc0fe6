# shellcheck shell=bash
# Builds the workspace and lays the programs out in target/bin/. Sourced by ./dev; gives build_all.

# The agent sits in every sandbox and is tested against this bound, in bytes.
AGENT_MAX_BYTES=$((3 * 1024 * 1024))

build_all() {
  local triple
  triple=$(rustc -vV | sed -n 's/^host: //p')
  cargo build --release --workspace --locked
  # Static, so that it starts in any image; a target directory of its own keeps its flags from rebuilding the rest.
  RUSTFLAGS="-C target-feature=+crt-static" \
    cargo build --profile agent -p sandbox-agent --locked --target "$triple" --target-dir target/agent
  place "target/agent/$triple/agent/sandbox-agent"
  place target/release/sandboxd
  # Part of the design, not of every version: the client program.
  if [ -d crates/cli ]; then place target/release/sbx; fi
  check_agent target/bin/sandbox-agent
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
