# shellcheck shell=bash
# All checks of the sources. A failed check does not stop the next one. Sourced by ./dev; provides cmd_lint.

FAILED_CHECKS=()

# check NAME COMMAND...: runs it and records a failure.
check() {
  local name=$1
  shift
  say "lint: $name"
  "$@" || FAILED_CHECKS+=("$name")
}

# The types, and whether generated files are current.
lint_python() {
  local bin=$ROOT/target/venv-sdk/bin status=0
  (
    cd sdk/python || exit 1
    "$bin/python" tools/generate_models.py --check || exit 1
    "$bin/python" tools/generate_sync.py --check || exit 1
    "$bin/mypy" --no-error-summary --cache-dir "$ROOT/target/mypy" src || exit 1
    # The programs of the cookbook, except the one that needs the packages of E2B.
    MYPYPATH=src "$bin/mypy" --strict --no-error-summary --cache-dir "$ROOT/target/mypy" \
      ../../docs/architecture/draw.py ../../docs/cookbook/[!e]*.py ../../docs/cookbook/e2b_moved.py || exit 1
    "$bin/pyright" --pythonpath "$bin/python" --warnings
  ) || status=1
  return "$status"
}

cmd_lint() {
  # If shellcheck cannot be installed, its check fails; the others still run.
  if present shellcheck || [ "$(id -u)" -eq 0 ]; then setup build lint; else need_cargo; fi
  check "cargo fmt" cargo fmt --all --check
  check "cargo clippy" cargo clippy --workspace --all-targets --release --locked --quiet -- -D warnings
  check "cargo xtask tidy" cargo xtask tidy
  check "shellcheck" shellcheck --external-sources dev dev.d/*.sh .ci/run e2e/vm/make.sh docs/cookbook/*.sh
  check "docs/architecture" python3 docs/architecture/draw.py --check
  check "sdk/typescript" npm run --silent --prefix sdk/typescript lint
  check "sdk/python" lint_python
  # xtask tidy checks deny.toml (licences, versions, bans, sources). cargo-deny adds the advisories, which need the network.
  if cargo deny --version >/dev/null 2>&1; then
    check "cargo deny" cargo deny --workspace check
  else
    say "lint: cargo deny is not installed: deny.toml was checked by xtask tidy, without security advisories"
  fi
  if [ ${#FAILED_CHECKS[@]} -gt 0 ]; then
    say "failed:"
    printf '  %s\n' "${FAILED_CHECKS[@]}" >&2
    exit 1
  fi
  say "all checks passed"
}
