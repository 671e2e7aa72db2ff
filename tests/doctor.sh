#!/bin/sh
# TAP: doctor as its user sees it: exit codes, lines, and the machine profile.
. "${SRCDIR:?}/tests/cases.sh"
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
mkdir cache folder
XDG_CACHE_HOME=$work/cache
HOME=$work/home
export XDG_CACHE_HOME HOME
profile=zero-offload/machine.json

# exits CODE ARGUMENT...
exits() {
  want=$1
  shift
  "$program" doctor "$@" >out 2>err
  code=$?
  test "$code" -eq "$want"
}
says() { grep -qF -- "$1" err; }
# A profile in a file: one object, with figures, without names or paths.
is_profile() {
  test "$(wc -l <"$1")" -eq 1 &&
    grep -q '^{"format":1,"kind":"machine",.*}$' "$1" &&
    grep -qE '"copy_bytes_per_second":[1-9]' "$1" &&
    grep -qE '"write_bytes_per_second":[1-9]' "$1" &&
    grep -qE '"product_flops_per_second":[1-9]' "$1" &&
    ! grep -qF "$work" "$1" && ! grep -qF "$(uname -n)" "$1" &&
    { ! command -v python3 >/dev/null ||
      python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$1"; }
}

facts() {
  exits 0 && ! test -s err || return 1
  for fact in processor SIMD memory 'group limit' 'lock limit' 'huge pages' \
    'memory rate' products io_uring disk 'disk rate' verdict profile; do
    grep -q "^$fact  *[^ ]" out || return 1
  done
  test "$(grep -c . out)" -eq "$(wc -l <out)"
}
default_place() {
  is_profile cache/"$profile" && test "$(ls cache/zero-offload)" = machine.json
  kept=$?
  rm -rf cache/zero-offload
  return $kept
}
json() {
  (unset XDG_CACHE_HOME && exits 0 --json) && is_profile out &&
    ! grep -v '^warning: ' err >rest && is_profile home/.cache/"$profile"
}
named() {
  mkdir -p one/two && echo old >one/two/new.json &&
    exits 0 --write one/two/new.json --nvme folder --threads 1 &&
    is_profile one/two/new.json && grep -q '^disk  *folder: ' out &&
    test -z "$(ls -A folder)" && ! test -e cache/"$profile"
}
bad_write() {
  echo x >file && exits 2 --write file/machine.json && says 'file' &&
    test "$(wc -l <err)" -eq 1
}
bad_folder() {
  exits 2 --nvme nowhere && says 'nowhere' && exits 2 --nvme file && says file
}
bad_cache() {
  XDG_CACHE_HOME=$work/file exits 0 && grep -q '^fault .*file' out &&
    ! grep -q '^profile' out
}
wrong() {
  exits 2 --model x && says '--model' && exits 2 extra && says extra
}
case_ 'doctor prints a line a fact' facts
case_ 'the profile is in the cache folder, whole' default_place
case_ '--json prints it too; without XDG_CACHE_HOME it is in ~/.cache' json
case_ '--write and --nvme name other places' named
case_ 'a profile that cannot be written where it was named is wrong usage' \
  bad_write
case_ 'a folder that is not there is wrong usage' bad_folder
case_ 'a cache folder that cannot be written is a fault' bad_cache
case_ 'doctor takes no options of other commands' wrong
echo "1..$number"
test "$failures" -eq 0
