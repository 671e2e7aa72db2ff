#!/bin/sh
# TAP: train with states on NVMe writes the model that it writes without, to
# the byte; what cannot be is told before anything is trained.
work_in=${BUILDDIR:?}/tests # a disk, not memory
. "${SRCDIR:?}/tests/cases.sh"
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
mkdir disk
sed 's/"hidden_size": 512/"hidden_size": 64/; s/"kv_channels": 128/"kv_channels": 16/
  s/"ffn_hidden_size": 1376/"ffn_hidden_size": 96/
  s/"padded_vocab_size": 2048/"padded_vocab_size": 256/' \
  "$SRCDIR/tests/gpu_model.json" >config.json || exit 99
awk 'BEGIN {
  for (row = 0; row < 12; row++) {
    line = ""
    for (token = 0; token < 20; token++) {
      line = line (token > 0 ? ", " : "") (row * 7 + token * token * 3) % 250
    }
    print "{\"input_ids\": [" line "]}"
  }
}' >rows.jsonl

# trains CODE OUTPUT ARGUMENT...
trains() {
  want=$1 output=$2
  shift 2
  "$program" train --backend host --threads 2 --model config.json \
    --random-weights --data rows.jsonl --output "$output" --max-steps 4 \
    --per-device-train-batch-size 2 --eval-data rows.jsonl --eval-steps 2 \
    "$@" >out 2>err
  test $? -eq "$want"
}
# The build folder may be in memory: that is for testing, too.
on_nvme() {
  code=$1 output=$2
  shift 2
  trains "$code" "$output" --nvme disk:1G \
    --set zero_offload.nvme_allow_memory=true --set zero_offload.fill=false "$@"
}
same_model() {
  for file in "$1"/model/*.safetensors; do
    cmp -s "$file" "$2/model/${file##*/}" || return 1
  done
  test -f "$file"
}

# With clipping no update is due in the first step: it writes nothing, and reads
# weights alone.
moves_when_due() {
  case $as in
  bf16) first='[1-9]' ;;
  *) first='0,' ;;
  esac
  grep '"step":1,' "$1" | grep -q "\"nvme_write_bytes\":$first" &&
    grep '"step":2,' "$1" | grep -q '"nvme_write_bytes":[1-9]'
}

same() { # same NAME OPTION...
  as=$1
  shift
  trains 0 "plain-$as" "$@" && on_nvme 0 "nvme-$as" "$@" &&
    same_model "plain-$as" "nvme-$as" &&
    grep -q 'masters and moments of 5 on NVMe, weights of 4 on NVMe' out &&
    grep -q 'a step reads .* there and writes' out &&
    grep -q '"nvme_write_bytes":[1-9]' "nvme-$as/metrics.jsonl" &&
    moves_when_due "nvme-$as/metrics.jsonl" &&
    grep -q '"nvme_seconds":[0-9.e-]*[1-9]' "nvme-$as/metrics.jsonl" &&
    test -z "$(ls -A disk)"
}
traces() {
  on_nvme 0 traced --bf16 --trace trace.json && grep -q '"NVMe 0"' trace.json &&
    grep -q '"states to NVMe"' trace.json
}
# Saved and resumed on NVMe, a run goes on to the model of one that never stopped
# and had nothing there.
resumes() {
  on_nvme 0 half --bf16 --save-steps 2 &&
    rm -r half/model half/state-00000004 && rm -f half/latest &&
    on_nvme 0 half --bf16 --save-steps 2 --resume &&
    same_model plain-bf16 half
}
# Bytes that change on the disk stop the run, which says where, and what there
# is to go on from.
corrupted() {
  "$program" train --backend host --threads 2 --model config.json --bf16 \
    --random-weights --data rows.jsonl --output damaged --max-steps 100000 \
    --num-train-epochs 100000 --save-steps 10 --nvme disk:1G \
    --set zero_offload.nvme_allow_memory=true --set zero_offload.fill=false \
    >out 2>err &
  pid=$!
  waited=0
  until grep -q '"step":2[0-9],' damaged/metrics.jsonl 2>/dev/null; do
    waited=$((waited + 1))
    test "$waited" -lt 300 && kill -0 "$pid" || break
    sleep 0.2
  done
  for file in /proc/"$pid"/fd/*; do
    case $(readlink "$file") in
    "$work"/disk/*)
      dd if=/dev/urandom of="$file" bs=1048576 count=20 conv=notrunc 2>/dev/null
      ;;
    esac
  done
  waited=0
  while kill -0 "$pid" 2>/dev/null && test "$waited" -lt 300; do
    waited=$((waited + 1))
    sleep 0.2
  done
  kill "$pid" 2>/dev/null
  wait "$pid"
  test $? -eq 4 && grep -q "unit [0-9]*'s" err &&
    grep -q 'the state of step [0-9]*0 is whole in damaged; --resume' err
}
# A JSON may have the weights of an evaluation on NVMe.
evaluates() {
  "$program" eval --backend host --threads 2 --model plain-bf16/model \
    --data rows.jsonl --bf16 >plain-loss 2>err || return 1
  for folder in disk nowhere; do
    echo '{"zero_optimization": {"stage": 3, "offload_param":
      {"device": "nvme", "nvme_path": "'"$folder"'"}},
      "bf16": {"enabled": true},
      "zero_offload": {"fill": false, "nvme_allow_memory": true}}' >ds.json
    "$program" eval --backend host --threads 2 --model plain-bf16/model \
      --data rows.jsonl --config ds.json >"loss-$folder" 2>err
    echo $? >"code-$folder"
  done
  grep -q nowhere err && test "$(cat code-disk code-nowhere)" = '0
2' && test "$(cut -d , -f 1 loss-disk)" = "$(cut -d , -f 1 plain-loss)"
}
no_folder() {
  trains 2 none --nvme nowhere --set zero_offload.fill=false &&
    grep -q 'nowhere' err && ! test -e none
}
no_room() {
  on_nvme 3 small --nvme disk:2M && grep -q -- '--nvme DIR:SIZE' err
}

case_ 'bf16: the model is the same' same bf16 --bf16
case_ 'fp16, clipped: the model is the same' same fp16 --fp16 --max-grad-norm 1
case_ 'a run is saved and resumed with states on NVMe' resumes
if test -d /proc/self/fd; then
  case_ 'bytes that change on the disk stop the run' corrupted
fi
case_ 'a trace has lanes of NVMe' traces
case_ 'weights of an evaluation on NVMe give its loss' evaluates
case_ 'a folder that is missing is told' no_folder
case_ 'a size that is too small does not fit' no_room
echo "1..$number"
exit "$failures"
