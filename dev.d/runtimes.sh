# shellcheck shell=bash
# Runs the TypeScript SDK on Bun, Deno and in Chromium against a service. Sourced by ./dev; provides cmd_runtimes.

# Installed by npm into target/runtimes/.
RUNTIMES=(bun@1.4.5 deno@2.9.6)

cmd_runtimes() {
  need_root runtimes
  setup build run runtimes
  build_all
  npm_packages sdk/typescript
  npm run --silent --prefix sdk/typescript build
  mkdir -p target/runtimes
  npm install --prefix target/runtimes --no-save --no-audit --no-fund --loglevel=error "${RUNTIMES[@]}" >&2
  SANDBOXD_AGENT="$ROOT/target/bin/sandbox-agent" \
    cargo test --release --locked -p e2e --test sdk -- --ignored --nocapture runtimes
}
