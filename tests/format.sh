#!/bin/sh
# TAP: sources are as clang-format leaves them.  Versions of clang-format
# differ in small things, so one version decides: 14, that of Debian 12.
cd "$SRCDIR" || exit 99
echo 1..1
sentence='sources are as clang-format 14 leaves them'
for program in ${CLANG_FORMAT:-clang-format-14 clang-format} ''; do
  command -v "$program" >/dev/null 2>&1 || continue
  "$program" --version | grep -q 'version 14\.' && break
done
if test -z "$program"; then
  echo "ok 1 - $sentence # SKIP no clang-format 14; CLANG_FORMAT= names one"
  exit 0
fi
found=$(find src offload kernels config bench man tests -type f \( -name '*.[ch]' \
  -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' \) \
  -exec "$program" --style=file --dry-run -Werror {} + 2>&1 |
  grep 'error:' | cut -d: -f1 | sort | uniq -c | sed 's|$| (places)|')
test -z "$found" && { echo "ok 1 - $sentence"; exit 0; }
printf '%s\n' "$found" | sed 's/^/# /'
echo '# clang-format -i FILE puts it right'
echo "not ok 1 - $sentence"
exit 1
