#!/bin/sh
# TAP: every file of the repository is in the tarball, but for those that only
# the repository needs.  A header missing from a local.mk shows here, not on
# the machine of the first user.
echo 1..1
sentence='every file of the repository is in the tarball'
skip() { echo "ok 1 - $sentence # SKIP $1"; exit 0; }
test -e "$SRCDIR/.git" || skip 'this is a tarball'
files=$(git -C "$SRCDIR" ls-files 2>/dev/null)
test -n "$files" || skip 'git does not list the files'

unset MAKEFLAGS MFLAGS
folder=dist-test.tmp
trap 'cd "$BUILDDIR" && chmod -R u+w "$folder" 2>/dev/null; rm -rf "$folder"' \
  EXIT
cd "$BUILDDIR" || exit 99
"${MAKE:-make}" distdir distdir="$folder" >dist-test.log 2>&1 || {
  tail -n 20 dist-test.log | sed 's/^/# /'
  echo "not ok 1 - $sentence: make distdir failed"
  exit 1
}
found=$(printf '%s\n' "$files" | while read -r file; do
  case $file in
    .ci/*|.gitignore|*/.gitkeep) continue ;;
  esac
  test ! -f "$SRCDIR/$file" || test -f "$folder/$file" || echo "# $file"
done)
test -z "$found" && { echo "ok 1 - $sentence"; exit 0; }
printf '%s\nnot ok 1 - %s\n' "$found" "$sentence"
exit 1
