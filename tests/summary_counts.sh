#!/bin/sh
# TAP: the line that CI reads counts right, and is red when it has to be.
folder=$(mktemp -d) || exit 99
trap 'rm -rf "$folder"' EXIT
number=0 failed=0

# says SENTENCE LINE STATUS FILE...: the summary of the files is LINE, STATUS.
says() {
  number=$((number + 1))
  sentence=$1 line=$2 status=$3
  shift 3
  got=$("$SRCDIR/tests/summary.sh" "$@")
  got_status=$?
  if test "$got" = "$line" && test "$got_status" = "$status"; then
    echo "ok $number - $sentence"
  else
    echo "# want '$line', exit $status; got '$got', exit $got_status"
    echo "not ok $number - $sentence"
    failed=1
  fi
}

result() { printf ':test-result: %s a sentence\n' "$@"; }
result PASS PASS SKIP >"$folder/good"
result PASS FAIL >"$folder/bad"
result SKIP >"$folder/skip"
result PASS ERROR >"$folder/crash"

echo 1..6
says 'passes and skips are a success' \
  '2 passed, 0 failed, 1 skipped' 0 "$folder/good"
says 'one failure is a failure' \
  '3 passed, 1 failed, 1 skipped' 1 "$folder/good" "$folder/bad"
says 'a crash is a failure' '1 passed, 1 failed, 0 skipped' 1 "$folder/crash"
says 'only skips is a failure' '0 passed, 0 failed, 1 skipped' 1 "$folder/skip"
says 'no test at all is a failure' '0 passed, 0 failed, 0 skipped' 1
says 'a test that left no result is a failure' \
  '2 passed, 1 failed, 1 skipped' 1 "$folder/good" "$folder/none"
exit $failed
