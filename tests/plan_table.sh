#!/bin/sh
# TAP: plan without a configuration: the table of stages and offloads, and the
# configuration that it writes; what is assumed where there is no GPU.
. "${SRCDIR:?}/tests/cases.sh"
cp "$SRCDIR/tests/gpu_model.json" "$work/config.json" || exit 99
XDG_CACHE_HOME=$work/cache
CUDA_VISIBLE_DEVICES= # as on a machine without a GPU
export XDG_CACHE_HOME CUDA_VISIBLE_DEVICES

plans() { # plans CODE ARGUMENT...
  want=$1
  shift
  "$program" plan "$@" >out 2>err
  test $? -eq "$want"
}
chatglm() {
  code=$1
  shift
  plans "$code" --model chatglm2-6b "$@"
}

table() {
  chatglm 0 --bf16 --profile 4090 && grep -q '^1 device of 23.50 GiB' out &&
    grep -q 'context of the device  *512.0 MiB' out &&
    grep -q '^2 devices of' out && grep -q '^4 devices of' out &&
    test "$(grep -c '^  [0-3]  ' out)" -eq 27 &&
    test "$(grep -c 'fastest that fits' out)" -eq 3 &&
    ! grep '^  [0-3]  ' out | grep -qE '^.{81}'
}
# DeepSpeed's own figures for ChatGLM2-6B stand beside ours.
estimates() {
  grep -q '^  2     optimizer cpu .* 11.63  139.55$' out &&
    grep -q '^  3     both cpu .* 0.99  157.00$' out &&
    grep -q '^  2     none .* 116.30   34.89$' out
}
# Each figure ends where the head of its column does, and NVMe has one where it
# is used: what is not known is a dash.
columns() {
  chatglm 0 --bf16 --profile 4090 --num-devices 2 --nvme disk:500G &&
    grep -q '^2 devices of 23.50 GiB each$' out &&
    grep -q '  GPU  *host  *NVMe  *step fits  *GPU  *host$' out && awk '
    /takes, in GiB .*DeepSpeed says$/ { heads++; next }
    /^  stage offload/ { at = 0; n = 0; line = $0; split("", ends)
      while (match(line, /[^ ]+/)) { at += RSTART + RLENGTH - 1
        if (++n > 2) ends[n] = at
        line = substr(line, RSTART + RLENGTH) }
      next }
    /^  [0-3]  / { rows++
      for (i in ends) if (substr($0, ends[i], 1) == " " ||
        substr($0, ends[i] + 1, 1) !~ /^ ?$/) bad++
      if (length($0) != ends[n]) bad++ }
    END { exit !(heads == 2 && rows == 24 && bad == 0) }' out &&
    grep -q '^  3     both nvme .* 5.75 *13.51 *69.39 .* yes  *-  *-$' out
}
# What needs least is found, not presumed.
smallest() {
  test "$(sed -n 's/^  of these rows, least GPU memory: .*(\(.*\) GiB)/\1/p' out |
    tail -n 1)" = "$(awk '/^2 dev/ { on = 1 } on && /^  [0-3] .* yes / {
      sub(/optimizer |both |planned, /, ""); print $3 }' out |
      sort -n | head -n 1)"
}
assumed() {
  chatglm 0 && grep -q 'no GPU here: planned for a host with a 4090' err &&
    grep -q 'planned in bf16' err && grep -q 'units, bf16, 1 device' out &&
    grep -q 'data-sheet rates of "4090"' out &&
    test ! -e cache
}
# Nor is it another type for a machine that is named; what says one, decides.
one_type() {
  set -- --num-devices 1 --max-length 64
  for more in '' '--set zero_optimization.stage=2'; do
    # shellcheck disable=SC2086
    chatglm 0 --profile 4090 "$@" $more && grep -q 'planned in bf16' err &&
      grep -q 'units, bf16, 1 device' out || return 1
  done
  echo '{"zero_optimization": {"stage": 3}}' >none.json
  for more in --no-bf16 '--set bf16.enabled=false' '--config none.json'; do
    # shellcheck disable=SC2086
    chatglm 0 --profile 4090 "$@" $more && ! grep -q 'planned in' err &&
      grep -q 'units, fp32, 1 device' out || return 1
  done
  chatglm 0 --profile 4090 "$@" --fp16 && ! grep -q 'planned in' err &&
    grep -q 'units, fp16, 1 device' out
}
# A model on this disk is planned for this machine, as train would run it.
here() {
  plans 0 --model config.json --max-length 64 && ! grep -q 4090 err &&
    grep -q 'rates measured on' out && grep -q '^1 device' out &&
    grep -q '^  stage offload  *device  *host ' out &&
    grep -q ' takes, in MiB ' out && ! grep -q GPU out &&
    ! grep -q '^2 devices' out
}
as_json() {
  chatglm 0 --bf16 --profile h200 --num-devices 2 --json &&
    test "$(wc -l <out)" -eq 1 && test "$(grep -o '"devices":2,' out |
      wc -l)" -eq 9 && grep -q '"deepspeed_gpu_bytes":' out &&
    test "$(grep -o '"fastest":true' out | wc -l)" -eq 2
}
written() {
  chatglm 0 --bf16 --profile 4090 --write ds.json --max-grad-norm 1 &&
    grep -q 'ds.json has the fastest row for 1 device' err &&
    grep -q '"stage": 3' ds.json && grep -q '"bf16": {"enabled": true}' ds.json &&
    grep -q '"gradient_clipping": 1' ds.json && sed -n \
      's/^  step of the longest batches: //p' out >first &&
    chatglm 0 --profile 4090 --config ds.json --strict && sed -n \
      's/^  step of the longest batches: //p' out | cmp -s - first &&
    ! grep -q 'fastest that fits' out
}
not_written() {
  chatglm 2 --profile 4090 --config ds.json --write other.json &&
    test ! -e other.json && grep -q -- '--write: with --config' err &&
    chatglm 3 --profile 4090 --gpu-memory 1M --write other.json &&
    test ! -e other.json && grep -q 'nothing fits' out &&
    chatglm 2 --profile 4090 --num-devices 1 --write no/such/folder &&
    grep -q -- '--write no/such/folder: No such file' err && test ! -s out &&
    chatglm 2 --profile 4090 --num-devices 1 --write . && test ! -s out &&
    grep -q -- '--write [.]: Is a directory' err
}
budget() {
  chatglm 3 --bf16 --profile 4090 --host-memory 16G &&
    grep -q '3     both cpu .* no ' out
}
factors() {
  chatglm 0 --bf16 --profile 4090 --set zero_offload.fill=false \
    --set zero_optimization.offload_param.device=cpu \
    --set zero_optimization.offload_optimizer.device=cpu &&
    grep -q '= embedding 508.0 MiB + 28 layers x 389.0 MiB + head 508.0 MiB' \
      out && grep -q '^ *= .*28 layers x 778.0 MiB' out &&
    grep -q 'fullest in the list "step" at' out
}
rates() {
  chatglm 0 --bf16 --profile 4090 --num-devices 1 &&
    grep -q '  busy waited for  rate when busy$' out &&
    grep -qE '^    computation +[0-9]+ % +[0-9]+ % +[0-9.]+ TFLOP/s$' out &&
    grep -qE '^    copies to the device +[0-9]+ % +[0-9]+ % +[0-9.]+ GB/s$' \
      out && ! grep -qE '^    (computation|copies).{78}' out
  rate=$(sed -n 's/^    computation .* \([0-9.]*\) TFLOP.*/\1/p' out)
  chatglm 0 --bf16 --profile 4090 --num-devices 1 --json &&
    sed 's/.*"compute":{"busy_seconds"://; s/}.*//' out |
    awk -F'[:,]' -v rate="$rate" '{ x = $7 / $1 / 1e12 / rate
      exit !(rate < 165 && x > 0.99 && x < 1.01) }'
}
wear() {
  set -- --bf16 --profile 4090 --nvme disk:500G --num-devices 1 \
    --set zero_offload.fill=false
  chatglm 0 "$@" && grep -q '^  a step reads .*B there and writes .*B$' out &&
    grep -q '^    if the run had 1000 steps it would write [0-9.]* TB; ' out &&
    chatglm 0 "$@" --max-steps 10 &&
    grep -q '^    the run of 10 steps writes [0-9]* GB; ' out &&
    plans 0 --model config.json "$@" --max-steps 1 &&
    grep -q '^    the run of 1 step writes [0-9.]* MB; ' out
}
# The shares of the step that it waits for sum to all of it.
waits() {
  awk '/busy waited for  rate/ { on = 1; next }
    on && / % +[0-9]+ %/ { split($0, a, "%"); n = split(a[2], b, " ")
      sum += b[n]; next } { on = 0 }
    END { exit !(sum >= 90 && sum <= 102) }' out
}
helps() {
  grep -q '^changes that would help most, in tokens/s:$' out &&
    test "$(sed '1,/^changes that/d' out |
      grep -v '^  + *[0-9]* %  \|^          ')" = 'it fits' &&
    ! sed '1,/^changes that/d' out | grep -q 'saving a state' &&
    grep -q '^  saving a state: up to .* of disk' out &&
    ! sed '1,/^ *saving a state/d' out | grep -qE '^.{81}' && test "$(grep -c '^  +[ 0-9]* %  ' out)" -eq 3 &&
    grep -q 'zero_offload.fill true\|twice the gradient_accum' out
}
# A part of the plan, above the changes; it is none of them.
accumulates() {
  sed '/^changes that/,$d' out | tr -s ' \n' ' ' >told
  grep -q ' accumulation: this step has 1 micro batch (gradient_accum.*);'\
' at least 64 would share one pass of the weights over the bus saving' told &&
    chatglm 0 --bf16 --profile 4090 --num-devices 1 --gpu-memory 6G \
      --per-device-train-batch-size 16 --gradient-accumulation-steps 4 &&
    tr -s ' \n' ' ' <out >told && grep -q ': this step has 4 micro batches '\
'(gradient_accum.*); up to [1-9][0-9] would share one pass of the weights' told
}
# On one device every row is a choice of homes: none may beat the planner's by
# more than it cares for.  Where computation is what a step waits for, that is
# not the one with most that is resident.
planned() {
  for batch in '16 4 256' '1 1 512' '1 16 512'; do
    # shellcheck disable=SC2086
    set -- $batch
    chatglm 0 --bf16 --profile 4090 --num-devices 1 --json --max-length "$3" \
      --per-device-train-batch-size "$1" --gradient-accumulation-steps "$2" &&
      sed 's/.*"table":\[//; s/},{/}\n{/g' out | awk -v batch="$batch" '
        !/"fits":true/ { next }
        { seconds = $0; sub(/.*"predicted_seconds":/, "", seconds)
          seconds += 0; rows++
          if (/"fill":true/) planned = seconds
          if (least == 0 || seconds < least) least = seconds }
        END { print batch, rows, planned, least
          exit !(rows >= 5 && planned > 0 && planned <= least / 0.99) }' \
        >>times || return 1
  done
}
alike() {
  chatglm 0 --bf16 --profile 4090 --num-devices 4 &&
    grep -q '^  GPU 0 to GPU 3, each: .* of 23.50 GiB$' out &&
    test "$(grep -c '^    context of the device' out)" -eq 1
}
layers() {
  chatglm 0 --bf16 --profile 4090 --layers 4 --num-devices 1 &&
    grep -q '^plan: 1348524032 parameters in 6 units' out
}
# A step of few rows: which they are hangs on the seed.
seeds() {
  i=0
  while test $i -lt 40; do
    n=$((i * 23 % 600 + 10))
    echo "{\"input_ids\": [$(yes 5 | head -n $n | paste -sd, -)]}"
    i=$((i + 1))
  done >rows.jsonl
  for seed in 1 2 3 4; do
    plans 0 --model config.json --profile 4090 --data rows.jsonl --seed $seed \
      --max-steps 2 --set zero_optimization.stage=0 || return 1
    sed -n '/^plan:/,/^placement/p' out
  done | sort -u >plans
  test "$(wc -l <plans)" -gt 1
}

case_ 'a row a stage and offload, for 1, 2 and 4 devices' table
case_ "beside DeepSpeed's own estimates" estimates
case_ 'every column has a head, and its figures below it' columns
case_ 'the row that needs least of the GPU is named' smallest
case_ 'a name of a model and no GPU: a common machine is assumed' assumed
case_ 'and its type is bf16 for every machine, unless one is said' one_type
case_ 'a model that is here is planned for this machine' here
case_ 'as one JSON object' as_json
case_ 'the fastest row is written, and planned as it was' written
case_ 'nothing is written where nothing fits, or no table is made' not_written
case_ 'budgets hold for every row' budget
case_ 'lines say what they are made of' factors
case_ 'what the step waits for is all of it' waits
case_ 'three changes that would help, and nothing else among them' helps
case_ 'how many micro batches share a crossing of the weights' accumulates
case_ 'computation has a rate of operations, copies of bytes' rates
case_ 'how many steps wear a disk is said, or assumed' wear
case_ "no homes are faster than the planner's" planned
case_ 'devices that hold the same are told once' alike
case_ 'fewer layers' layers
case_ 'the order of rows is of the seed that is given' seeds
echo "1..$number"
test "$failures" -eq 0
