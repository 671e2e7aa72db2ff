#!/bin/sh
# Writes what the tables of options and keys say into the man pages, between
#   .\" BEGIN options train        and     .\" END
# Usage: man/update.sh [--check] PROGRAM
# PROGRAM is print_tables out of the build folder.  With --check nothing is
# written: the pages that would change are named, and it ends with status 1.
set -eu
check=no
if test "${1-}" = --check; then
  check=yes
  shift
fi
program=${1:?want the path of print_tables}
case $program in
  /*) ;;
  *) program=$PWD/$program ;;
esac
cd "$(dirname "$0")"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
status=0
for page in *.[157]; do
  # shellcheck disable=SC2086 # the words of a mark are arguments
  sed -n 's/^\.\\" BEGIN //p' "$page" | while read -r what; do
    "$program" $what >"$scratch/$(echo "$what" | tr ' ' -)"
  done
  awk -v folder="$scratch" '
    /^\.\\" END$/ { inside = 0 }
    !inside { print }
    /^\.\\" BEGIN / {
      inside = 1
      name = $0
      sub(/^\.\\" BEGIN /, "", name)
      gsub(/ /, "-", name)
      while ((getline line < (folder "/" name)) > 0) print line
    }' "$page" >"$scratch/page"
  cmp -s "$scratch/page" "$page" && continue
  if test $check = yes; then
    echo "$page is not what the tables say; man/update.sh writes it"
    status=1
  else
    cat "$scratch/page" >"$page"
  fi
done
exit $status
