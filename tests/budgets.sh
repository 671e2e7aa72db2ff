#!/bin/sh
# TAP: a small model trains with everything resident, with as little device
# memory as will do, and with eight budgets between: the same bits.  In bf16,
# in bf16 with clipping, and in fp16; on the host backend, or, where
# ZERO_OFFLOAD_GPU is set, on a GPU.
program=$BUILDDIR/zero-offload
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
status=0
budgets=10

echo 1..3
if test -n "${ZERO_OFFLOAD_GPU-}" && nvidia-smi -L >/dev/null 2>&1; then
  backend=cuda
  model=$SRCDIR/tests/gpu_model.json
  steps=12
  tokens=180
  may_refuse=3
else
  backend=host
  model=$scratch/model.json
  steps=4
  tokens=40
  may_refuse=0
  cat >"$model" <<'END'
{"model_type": "chatglm", "num_layers": 5, "hidden_size": 64,
 "num_attention_heads": 4, "kv_channels": 16, "multi_query_attention": true,
 "multi_query_group_num": 2, "ffn_hidden_size": 176,
 "padded_vocab_size": 2048, "seq_length": 1024, "layernorm_epsilon": 1e-5,
 "rmsnorm": true, "post_layer_norm": true, "add_qkv_bias": true,
 "add_bias_linear": false, "original_rope": true,
 "tie_word_embeddings": false, "torch_dtype": "float32", "eos_token_id": 2,
 "pad_token_id": 0}
END
fi

# Rows of random ids.
awk -v tokens=$tokens 'BEGIN {
  srand(7)
  for (row = 0; row < 64; row++) {
    printf "{\"input_ids\": ["
    for (i = 0; i < tokens; i++) printf "%s%d", i ? ", " : "", 10 + rand() * 2000
    print "]}"
  }
}' >"$scratch/rows.jsonl"

# run NAME KIB OPTION...: 0, or 3 when the budget is too small.
run() {
  name=$1
  kib=$2
  shift 2
  rm -rf "$scratch/$name"
  "$program" train --model "$model" --model-family chatglm2 \
    --random-weights --data "$scratch/rows.jsonl" --output "$scratch/$name" \
    --backend $backend --num-devices 1 --gpu-memory "${kib}K" \
    --max-steps $steps --per-device-train-batch-size 2 \
    --gradient-accumulation-steps 3 "$@" >"$scratch/out" 2>"$scratch/err"
}

# KiB of the device that a run takes that has all it wants.
needed() {
  "$program" plan --model "$model" --model-family chatglm2 \
    --data "$scratch/rows.jsonl" --backend $backend --num-devices 1 \
    --gpu-memory 4G --profile 4090 --per-device-train-batch-size 2 \
    --gradient-accumulation-steps 3 --json "$@" 2>/dev/null |
    sed 's/"budget_bytes".*//; s/.*"total_bytes": *//; s/,.*//' |
    awk '{ print int($1 / 1024) + 1 }'
}

# The fewest KiB above $1, of which $2 are enough, that fit; to 32.
least() {
  low=$1
  high=$2
  shift 2
  while test $((high - low)) -gt 32; do
    middle=$(((low + high) / 2))
    if run least $middle --dry-run "$@"; then
      high=$middle
    else
      low=$middle
    fi
  done
  echo "$high"
}

# What a run leaves: the model's bits, and losses and norms of its steps.
result() { # result NAME
  cksum <"$scratch/$1/model/model.safetensors"
  sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),"grad_norm":\([^,]*\),.*/\1 \2 \3/p' \
    "$scratch/$1/metrics.jsonl"
}

number=0
check() { # check NAME OPTION...
  title=$1
  shift
  number=$((number + 1))
  wrong=
  refused=0
  streamed=0
  run resident 4194304 "$@" || wrong=$(cat "$scratch/out" "$scratch/err")
  test -n "$wrong" || result resident >"$scratch/want"
  resident=$(needed "$@")
  small=$(least 64 $resident "$@")
  printf '# %s: from %d to %d KiB\n' "$title" "$small" "$resident"
  i=0
  while test -z "$wrong" && test $i -lt $budgets; do
    kib=$((small + (resident - small) * i / (budgets - 1)))
    run budget $kib "$@"
    code=$?
    if test $code = 0; then
      result budget >"$scratch/got"
      cmp -s "$scratch/want" "$scratch/got" ||
        wrong="$kib KiB: $(diff "$scratch/want" "$scratch/got" | head -n 5)"
      streamed=$((streamed + $(grep -c '^placement: 0 of' "$scratch/out")))
    elif test $code = 3; then
      refused=$((refused + 1)) # the driver took more than it did in plan
    else
      wrong="$kib KiB: $(cat "$scratch/err")"
    fi
    i=$((i + 1))
  done
  test $refused -le $may_refuse || wrong="$wrong $refused budgets refused"
  test $streamed -gt 0 || wrong="$wrong never was everything on the host"
  test -n "$wrong" || test "$(wc -l <"$scratch/want")" -gt $steps ||
    wrong="no results"
  if test -z "$wrong"; then
    echo "ok $number - every budget gives the same bits: $title"
  else
    printf '%s\n' "$wrong" | sed 's/^/# /'
    echo "not ok $number - every budget gives the same bits: $title"
    status=1
  fi
}

check 'bf16' --bf16
check 'bf16, clipped' --bf16 --max-grad-norm 0.5
check 'fp16' --fp16
exit $status
