#!/bin/sh
# TAP: no file includes a header of a higher row than its own, nor one of a
# neighbour in its own row; kernels and devices know no configuration.
cd "$SRCDIR" || exit 99
row_of() {
  case $1 in
    src/base/*) echo 0 ;;
    config/*) echo 1 ;;
    src/device/*) echo 2 ;;
    kernels/*) echo 3 ;;
    src/comm/*) echo 4 ;;
    offload/*) echo 5 ;;
    src/model/*|src/data/*|src/checkpoint/*) echo 6 ;;
    src/train/*) echo 7 ;;
    src/cli/*|src/main.c|bench/*|man/*|tests/*) echo 8 ;;
    *) echo unknown ;;
  esac
}
module_of() {
  case $1 in
    src/*/*) echo "$1" | cut -d/ -f1,2 ;;
    *) echo "${1%%/*}" ;;
  esac
}
# Prints each include of the current folder that breaks the rule.
violations() {
  find src offload kernels config bench man tests -name '*.[ch]' -o \
    -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' |
  sort | while read -r file; do
    own=$(row_of "$file")
    test "$own" != unknown || echo "# $file has no row"
    sed -n 's/^ *# *include "\(.*\)".*/\1/p' "$file" | while read -r header; do
      theirs=$(row_of "$header")
      if test "$theirs" = unknown; then
        test "$header" = config.h || echo "# $file: \"$header\" has no row"
      elif test "$own" = 8; then
        :
      elif test "$theirs" -gt "$own"; then
        echo "# $file (row $own) includes $header (row $theirs)"
      elif test "$theirs" -eq "$own" &&
        test "$(module_of "$header")" != "$(module_of "$file")"; then
        echo "# $file includes $header, a neighbour"
      elif test "$theirs" -eq 1 && test "$own" -ge 2 && test "$own" -le 5; then
        echo "# $file includes $header; rows 2 to 5 get numbers, not settings"
      fi
    done
  done
}

status=0
echo 1..2
found=$(violations)
if test -z "$found"; then
  echo 'ok 1 - includes point downwards'
else
  printf '%s\nnot ok 1 - includes point downwards\n' "$found"
  status=1
fi

# One include of each kind that is wrong, and two that are right.
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 99
mkdir -p src/base src/model src/data src/comm offload kernels config bench man tests
echo '#include "src/model/model.h"' >src/base/upwards.c
echo '#include "src/data/rows.h"' >src/model/neighbour.c
echo '#include "config/settings.h"' >kernels/settings.c
echo '#include "elsewhere/x.h"' >offload/unknown.c
printf '#include "src/model/model.h"\n#include "offload/units.h"\n' \
  >src/model/right.c
if test "$(violations | wc -l)" -eq 4; then
  echo 'ok 2 - each planted include is found'
else
  violations
  echo 'not ok 2 - each planted include is found'
  status=1
fi
exit $status
