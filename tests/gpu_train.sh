#!/bin/sh
# TAP: a small model with heads of 128 trains on a GPU, in every number type,
# with the bits of the first run whatever is recomputed; a budget below the
# need is refused; and the plan is what the driver counts.  Weights and rows are bench's: random, of one seed.
program=$BUILDDIR/zero-offload
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
status=0

report() { # report NUMBER SENTENCE WRONG
  if test -z "$3"; then
    echo "ok $1 - $2"
  else
    printf '%s\n' "$3" | sed 's/^/# /'
    echo "not ok $1 - $2"
    status=1
  fi
}

sentence_1='the GPU trains in fp32 as the host does'
sentence_2='in bf16 two runs have the same loss, whatever is recomputed'
sentence_3='and in fp16'
sentence_4='a budget below the need is refused with the plan'
sentence_5='the plan is what the driver has less of, within 1 % and 128 MiB'
echo 1..5
why=
test -n "${ZERO_OFFLOAD_GPU-}" || why='ZERO_OFFLOAD_GPU is not set'
test -n "$why" || nvidia-smi -L >/dev/null 2>&1 || why='no CUDA device'
if test -n "$why"; then
  for number in 1 2 3 4 5; do
    eval "echo \"ok $number - \$sentence_$number # SKIP $why\""
  done
  exit 0
fi

model=$SRCDIR/tests/gpu_model.json

# Prints the loss of the sixth step.
loss() { # loss BACKEND OPTION...
  backend=$1
  shift
  "$program" bench step --model "$model" --backend "$backend" \
    --num-devices 1 --max-length 200 --per-device-train-batch-size 3 \
    --max-steps 6 --max-grad-norm 1 --json "$@" >"$scratch/out" \
    2>"$scratch/err" || {
    echo "bench step --backend $backend $*:"
    cat "$scratch/out" "$scratch/err"
    return
  }
  sed -n 's/.*"loss": *\([-0-9.e+]*\).*/\1/p' "$scratch/out"
}

report 1 "$sentence_1" "$(
  printf '%s\n' "$(loss host)" "$(loss cuda)" | awk '
    { if ($0 !~ /^[0-9.e+-]+$/) { print; wrong = 1 } loss[NR] = $0 }
    END { gap = loss[1] - loss[2]; if (gap < 0) gap = -gap
          if (!wrong && (NR != 2 || !(gap <= 1e-5)))
            print "losses " loss[1] " and " loss[2] }')"

number=2
for type in bf16 fp16; do
  first=$(loss cuda --$type)
  wrong=
  case $first in
    ''|*[!0-9.e+-]*) wrong="loss: $first" ;;
  esac
  for how in '' --gradient-checkpointing \
    '--set zero_offload.recompute=cheap'; do
    # shellcheck disable=SC2086
    again=$(loss cuda --$type $how)
    test "$again" = "$first" || wrong="$wrong
$how: $again, want $first"
  done
  eval "report $number \"\$sentence_$number\" \"\$wrong\""
  number=$((number + 1))
done

"$program" bench step --model "$model" --backend cuda \
  --num-devices 1 --max-length 200 --max-steps 6 --gpu-memory 64M \
  >"$scratch/out" 2>&1
code=$?
report 4 "$sentence_4" "$(
  test $code = 3 || echo "status $code, want 3"
  grep -qi 'gpu' "$scratch/out" || echo 'no word of the GPU'
  test $code = 3 || tail -n 20 "$scratch/out")"

# The most that the driver counts while a run goes on, against the plan.  128
# MiB: what the plan allows for kernels that are loaded at their first use, of
# which a small model needs few.
used() { nvidia-smi -i 0 --query-gpu=memory.used --format=csv,noheader,nounits; }
run='--backend cuda --num-devices 1 --bf16 --max-length 1024
  --per-device-train-batch-size 32'
# shellcheck disable=SC2086
"$program" plan --model "$model" $run --json >"$scratch/plan" \
  2>"$scratch/err"
planned=$(sed 's/"budget_bytes".*//; s/.*"total_bytes": *//; s/,.*//' \
  "$scratch/plan")
before=$(used)
# shellcheck disable=SC2086
"$program" bench step --model "$model" $run --max-steps 200 \
  >"$scratch/out" 2>&1 &
job=$!
most=0
while kill -0 $job 2>/dev/null; do
  now=$(used)
  test "$now" -le "$most" || most=$now
  sleep 0.1
done
wait $job || planned="bench step failed: $(tail -n 3 "$scratch/out")"
report 5 "$sentence_5" "$(
  printf '%s\n' "$planned" | awk -v taken=$((most - before)) '
    /^[0-9]+$/ { plan = $1 / 1048576; known = 1 }
    { text = text $0 }
    END { gap = taken - plan; if (gap < 0) gap = -gap
          line = sprintf("plan %.0f MiB, driver %.0f MiB", plan, taken)
          print "# " line >"/dev/stderr"
          if (!known) print text
          else if (gap > 128 + plan / 100) print line }' 2>"$scratch/line")"
cat "$scratch/line"
exit $status
