# shellcheck shell=bash
# Compares benches of this tree with those of another commit. Sourced by ./dev after upgrade.sh; provides cmd_compare.
#
# Most benches run the engine in their own process, so the other commit's bench program is needed and not only its daemon.

# The worktree of the other commit, with its target directory. It stays, so that the next commit is built incrementally.
COMPARED_TREE=$PREVIOUS_PROGRAMS/bench-tree
# Of each side. Their number is odd, so that the median of the blocks is a measured one.
COMPARED_BLOCKS='1 2 3 4 5'

# cmd_compare [NAME...] --compare COMMIT [NAME...] [--full]
cmd_compare() {
  need_root bench
  local commit='' benches=() flags=()
  while [ $# -gt 0 ]; do
    case $1 in
      --compare)
        [ $# -ge 2 ] || die "bench: --compare needs a COMMIT"
        commit=$2
        shift
        ;;
      --full) flags+=("$1") ;;
      -*) die "bench: $1 cannot be combined with --compare" ;;
      *) benches+=("$1") ;;
    esac
    shift
  done
  [ ${#benches[@]} -gt 0 ] || die "bench: --compare needs the names of benches, for example: execute churn"
  commit=$(commit_of bench "$commit")
  setup build run bench
  build_all
  build_compared "$commit"
  run_blocks "${benches[@]}" ${flags[@]+"${flags[@]}"}
}

# build_compared COMMIT: builds all programs of a commit in its worktree.
build_compared() {
  if [ -e "$COMPARED_TREE/.git" ]; then
    git -C "$COMPARED_TREE" checkout --quiet --force --detach "$1"
  else
    git worktree add --quiet --detach --force "$COMPARED_TREE" "$1"
  fi
  say "building $(git log -1 --format='%h %s' "$1"); the first time this takes minutes"
  "$COMPARED_TREE/dev" build
}

# run_blocks ARGUMENT...: runs the bench programs of both trees with these arguments in blocks, and prints the ratios. The order is
# ABBA, so that a machine which becomes slower or faster does not favour one side.
run_blocks() {
  local results=target/bench-compare block order side
  # Also the same files of both: each tree would unpack an image of its own, and files that have just been written are read faster.
  export SANDBOXD_TEST_ROOTFS=${SANDBOXD_TEST_ROOTFS:-$(target/release/bench root-fs)}
  rm -rf "$results"
  mkdir -p "$results"
  for block in $COMPARED_BLOCKS; do
    order='this other'
    [ $((block % 2)) -eq 1 ] || order='other this'
    for side in $order; do
      say "block $block: $side"
      run_block "$side" "$ROOT/$results/$side-$block" "$@"
    done
  done
  target/release/bench compare-blocks "$results"
}

# run_block SIDE FILE ARGUMENT...: one run of a side, whose rows are in FILE.json and whose output is in FILE.log.
run_block() {
  local tree=$ROOT file=$2
  [ "$1" = this ] || tree=$ROOT/$COMPARED_TREE
  shift 2
  SANDBOXD_AGENT="$tree/target/bin/sandbox-agent" "$tree/target/release/bench" "$@" --json "$file.json" >"$file.log" 2>&1 ||
    die "bench: a block failed; its output is in $file.log"
}
