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
    src/cli/*|src/main.c|bench/*|tests/*) echo 8 ;;
    *) echo unknown ;;
  esac
}
module_of() {
  case $1 in
    src/*/*) echo "$1" | cut -d/ -f1,2 ;;
    *) echo "${1%%/*}" ;;
  esac
}
echo 1..1
found=$(find src offload kernels config bench tests -name '*.[ch]' -o \
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
  done)
test -z "$found" && { echo 'ok 1 - includes point downwards'; exit 0; }
printf '%s\nnot ok 1 - includes point downwards\n' "$found"
exit 1
