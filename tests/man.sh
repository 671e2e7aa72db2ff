#!/bin/sh
# TAP: the man pages are clean to mandoc's linter, and the linter does find;
# what leads from them leads somewhere, and names in them stay in one piece.
cd "$SRCDIR" || exit 99
echo 1..5
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

# Installed, they name the folders of the prefix, and in the source those of
# the default one.
sentence='installed pages name the folders that this was installed in'
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
unset MAKEFLAGS MFLAGS
found=$("${MAKE:-make}" -C "$BUILDDIR" install-data DESTDIR="$scratch" \
  prefix=/opt/zo >"$scratch/log" 2>&1 || tail -n 20 "$scratch/log"
  pages=$scratch/opt/zo/share/man/man1
  grep -lr /usr/local "$scratch/opt"
  presets=$(sed -n 's/^\.It Pa \(.*presets\)$/\1/p' \
    "$pages/zero-offload-plan.1")
  test -f "$scratch$presets/24g-host128.json" || echo "no folder $presets"
  grep -q '^ExecStart=/opt/zo/bin/zero-offload ' \
    "$pages/zero-offload-train.1" || echo 'no program in zero-offload-train.1'
  find "$scratch/opt" -name '*.new')
if test -z "$found"; then
  echo "ok 4 - $sentence"
else
  printf '%s\n' "$found" | sed 's/^/# /'
  echo "not ok 4 - $sentence"
  status=1
fi

# Lines that end within a word, or in a dash of an option or a path.
sentence='at no width a line ends within a word, or within a name'
broken() {
  LC_ALL=C sed "s/.$(printf '\b')//g" |
    LC_ALL=C grep -E -- '[a-z]‐$|(--[a-z-]*|/[a-z/-]*)-$' | sed "s|^|# $1, $2: |"
}
if command -v mandoc >/dev/null && command -v groff >/dev/null; then
  printf '.Dd x\n.Dt X 1\n.Os\n.Sh NAME\n%s %s\n' \
    "$(yes word | head -n 12 | tr '\n' ' ')" --gradient-accumulation-steps \
    >"$scratch/bad.1"
  bad=$(mandoc -T utf8 -O width=78 "$scratch/bad.1" | broken bad mandoc)
  found=$(test -n "$bad" || echo '# a broken name is not found'
    for width in 60 66 72 78 84; do
      for page in man/*.[1-8]; do
        mandoc -T utf8 -O width=$width "$page" | broken "$page" "$width"
        groff -mdoc -T utf8 -P -c -rLL=${width}n "$page" 2>/dev/null |
          broken "$page" "$width"
      done
    done)
  if test -z "$found"; then
    echo "ok 5 - $sentence"
  else
    printf '%s\nnot ok 5 - %s\n' "$found" "$sentence"
    status=1
  fi
else
  echo "ok 5 - $sentence # SKIP no mandoc, or no groff"
fi
exit $status
