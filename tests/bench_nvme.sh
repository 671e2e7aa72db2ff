#!/bin/sh
# TAP: zero-offload bench nvme: its figures, with a fio that is there, one that
# is not, and ones that fail; and that nothing stays behind.
work_in=${BUILDDIR:?}/tests # a disk, not memory
. "${SRCDIR:?}/tests/cases.sh"
mkdir disk none good bad nonsense

case $(stat -f -c %T disk) in
  tmpfs|ramfs)
    echo '1..0 # SKIP the build is on a file system in memory'
    exit 0
    ;;
esac

# A fio that says what it was asked for, and a rate.
cat >good/fio <<'EOF'
#!/bin/sh
echo "$*" >>"$0.log"
echo 'note: a line of its own'
echo '{"jobs": [{"read": {"bw_bytes": 1000000000},
  "write": {"bw_bytes": 250000000.5}}]}'
EOF
printf '#!/bin/sh\ntest "$1" = --version || exit 3\n' >bad/fio
printf '#!/bin/sh\necho "{]"\n' >nonsense/fio
chmod +x good/fio bad/fio nonsense/fio

# run FOLDER-OF-FIO ARGUMENT...
run() {
  path=$work/$1:/usr/bin:/bin
  test "$1" != none || path=$work/none
  shift
  PATH=$path "$program" bench nvme --nvme disk:16M "$@" >out 2>err
}
# Three rows; the columns that $1 says.
has_rows() {
  for kind in write read mixed; do
    grep -q "^$kind$(printf ' *[0-9][0-9]*\.[0-9]*%.0s' 1 2 3)$1\$" out ||
      return 1
  done
}

absent() {
  run none && has_rows ' *- *-' &&
    grep -q 'comparison with fio is skipped: there is no fio' err
}
present() {
  run good && has_rows ' *1.250 *[0-9.]*%' && ! grep -q skipped err
}
asked() {
  grep -q -e '--bs=65536 .*--rw=write .*--iodepth=7' good/fio.log &&
    grep -q -e '--rw=read ' good/fio.log &&
    grep -q -e '--rw=rw --rwmixread=50 ' good/fio.log
}
same() {
  rm -f good/fio.log
  run good --block-size 64K --queue-depth 7 || return 1
  # Where io_uring is refused, threads stand in, in fio too.
  grep -q 'io_uring is refused' err || asked
}
fails() {
  run bad && has_rows ' *- *-' &&
    grep -q 'is skipped: fio fails (exit code 3)' err
}
no_json() {
  run nonsense && has_rows ' *- *-' &&
    grep -q 'is skipped: what fio says is no JSON' err
}
json() {
  run good --json && test "$(wc -l <out)" -eq 3 &&
    test "$(grep -c '^{"format":1,"suite":"nvme","transfer":"' out)" -eq 3 &&
    grep -q '"transfer":"mixed".*,"fio_bytes_per_second":125000' out &&
    run none --json && grep -q '"fio_bytes_per_second":null}$' out
}
bad_block() {
  run none --block-size 5000
  test $? -eq 2 && grep -q 'multiple of 4096' err
}
no_folder() {
  PATH=$work/none "$program" bench nvme --nvme missing >out 2>err
  test $? -eq 2 && grep -q 'NVMe folder missing: .*make it first' err
}
nothing_left() { test -z "$(ls -A disk)"; }
real() {
  "$program" bench nvme --nvme disk:16M >out 2>err && has_rows ' *[0-9.]* *[0-9.]*%'
}

echo 1..10
case_ 'without fio the comparison is skipped, and the rest stands' absent
case_ 'with fio its rate and the share of it stand beside' present
case_ 'fio is asked for the same blocks, depth and mix' same
case_ 'a fio that fails is said' fails
case_ 'a fio that says nonsense is said' no_json
case_ '--json is a line of JSON for each kind' json
case_ 'a block that no disk takes is wrong usage' bad_block
case_ 'a folder that is missing is said' no_folder
if fio --version >/dev/null 2>&1; then
  case_ 'the fio of this machine is understood' real
else
  number=$((number + 1))
  echo "ok $number - the fio of this machine is understood # SKIP no fio"
fi
case_ 'nothing is left in the folder' nothing_left
test "$failures" -eq 0
