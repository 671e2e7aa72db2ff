#!/bin/sh
# TAP: the programs that ThreadSanitizer is spared cannot start a thread: what
# they link does not ask for pthread_create.
echo 1..1
sentence='no program of threadless_tests can start a thread'
cd "${BUILDDIR:?}" || exit 99
found=''
for program in ${THREADLESS:?}; do
  symbols=$(nm "$program") || exit 99
  case $symbols in
    *' U pthread_create'*) found="$found $program" ;;
  esac
done
test -z "$found" && { echo "ok 1 - $sentence"; exit 0; }
echo "# these can:$found"
echo "not ok 1 - $sentence"
exit 1
