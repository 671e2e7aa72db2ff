# Read by shell tests that run the program in a folder of their own: numbered
# TAP cases, and what the program said behind one that fails.  Sets program,
# work (where the test goes on; in work_in, if that is set), number and failures.
program=${BUILDDIR:?}/zero-offload
LC_ALL=C
export LC_ALL
work=$(mktemp -d "${work_in:-${TMPDIR:-/tmp}}/zero-offload.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
test -x "$program" || { echo "Bail out! no $program"; exit 99; }
cd "$work" || exit 99

number=0
failures=0
code=
# case_ NAME COMMAND...: passes if COMMAND does; the program's words of the
# last run are in out and err, its exit code in $code.
case_() {
  name=$1
  shift
  number=$((number + 1))
  if "$@"; then
    echo "ok $number - $name"
  else
    failures=$((failures + 1))
    echo "not ok $number - $name"
    sed 's/^/# out: /' out 2>/dev/null | head -60
    sed 's/^/# err: /' err 2>/dev/null | head -20
    echo "# exit code: $code"
  fi
}
# skip NAME REASON
skip() {
  number=$((number + 1))
  echo "ok $number - $1 # SKIP $2"
}
