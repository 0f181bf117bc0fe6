# shellcheck shell=bash
# Tests that sandboxes survive an upgrade from another commit: builds its programs once, in a temporary worktree, and runs the
# test e2e/tests/upgrade with them. Sourced by ./dev; provides cmd_upgrade.

# Programs of other commits, by commit.
PREVIOUS_PROGRAMS=target/previous

cmd_upgrade() {
  need_root upgrade
  [ $# -le 1 ] || die "upgrade: expected at most one COMMIT"
  setup build run test
  local commit programs
  commit=$(previous_commit "${1:-}")
  programs=$PREVIOUS_PROGRAMS/$commit
  if [ ! -d "$programs" ]; then
    build_previous "$commit" "$programs"
  fi
  # The service finds it beside its own program.
  if [ -x "$GVISOR_PROGRAM" ]; then ln -sf ../../gvisor/runsc "$programs/runsc"; fi
  say "testing the upgrade from $(git log -1 --format='%h %s' "$commit")"
  SANDBOXD_PREVIOUS="$ROOT/$programs" cmd_test --test upgrade -- --ignored
}

# previous_commit [COMMIT]: the commit to upgrade from. The default is the commit of origin/main that this branch is based on, or
# its parent if HEAD is already on origin/main.
previous_commit() {
  local commit=$1
  if [ -z "$commit" ]; then
    commit=$(git merge-base HEAD origin/main 2>/dev/null) || die "upgrade: there is no origin/main; name a commit to upgrade from"
    [ "$commit" != "$(git rev-parse HEAD)" ] || commit=HEAD^
  fi
  commit_of upgrade "$commit"
}

# commit_of COMMAND COMMIT: the hash of the commit that was named to a command.
commit_of() {
  git rev-parse --quiet --verify "$2^{commit}" || die "$1: there is no commit $2"
}

# build_previous COMMIT DIRECTORY: the directory appears only when it is complete.
build_previous() (
  local name tree
  tree=$(mktemp -d)
  trap 'git worktree remove --force "$tree"; rm -rf "$tree"' EXIT
  say "building the programs of $1; this takes minutes, once"
  git worktree add --quiet --detach --force "$tree" "$1"
  "$tree/dev" build
  rm -rf "$2.new"
  mkdir -p "$2.new"
  for name in sandboxd sandbox-agent sandbox-launcher sbx; do
    # Commits before ADR 0018 have no launcher.
    [ ! -e "$tree/target/bin/$name" ] || cp "$tree/target/bin/$name" "$2.new/"
  done
  mv "$2.new" "$2"
)
