#!/bin/sh
# TAP: the man pages are clean to mandoc's linter, and the linter does find.
cd "$SRCDIR" || exit 99
echo 1..3
lint() { mandoc -T lint -W warning "$@" 2>&1 | sed 's/^/# /'; }

status=0
if command -v mandoc >/dev/null; then
  found=$(lint man/*.[1-8])
  if test -z "$found"; then
    echo 'ok 1 - man pages are clean'
  else
    printf '%s\nnot ok 1 - man pages are clean\n' "$found"
    status=1
  fi
  found=$(printf '.Dd x\n.Dt X 1\n.Sh NAME\n.Bogus\n' | lint)
  if test -n "$found"; then
    echo 'ok 2 - a bad page is found'
  else
    echo 'not ok 2 - a bad page is found'
    status=1
  fi
else
  echo 'ok 1 - man pages are clean # SKIP no mandoc'
  echo 'ok 2 - a bad page is found # SKIP no mandoc'
fi

# A reference to a page of ours is to a page that exists.
found=$(sed -n 's/^\.Xr \(zero-offload[^ ]*\) \([1-8]\).*/man\/\1.\2/p' \
  man/*.[1-8] | sort -u | while read -r page; do
    test -f "$page" || echo "# $page is referred to and does not exist"
  done)
if test -z "$found"; then
  echo 'ok 3 - references lead somewhere'
else
  printf '%s\nnot ok 3 - references lead somewhere\n' "$found"
  status=1
fi
exit $status
