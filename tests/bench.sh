#!/bin/sh
# TAP: bench's tables: every row of stages, what a results file spares, layers,
# budgets, values of a key; rates beside their bound.
. "${SRCDIR:?}/tests/cases.sh"
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
cat >config.json <<'END'
{"model_type": "chatglm", "num_layers": 4, "hidden_size": 64,
 "num_attention_heads": 4, "kv_channels": 16, "multi_query_attention": true,
 "multi_query_group_num": 2, "ffn_hidden_size": 176,
 "padded_vocab_size": 512, "seq_length": 1024, "layernorm_epsilon": 1e-5,
 "rmsnorm": true, "post_layer_norm": true, "add_qkv_bias": true,
 "add_bias_linear": false, "original_rope": true,
 "tie_word_embeddings": false, "torch_dtype": "float32", "eos_token_id": 2,
 "pad_token_id": 0}
END

# benches CODE ARGUMENT...
benches() {
  want=$1
  shift
  "$program" bench "$@" >out 2>err
  test $? -eq "$want"
}
small() { # small CODE TOPIC ARGUMENT...
  code=$1
  topic=$2
  shift 2
  benches "$code" "$topic" --model config.json --backend host --bf16 \
    --max-length 64 --max-steps 3 "$@"
}
# The values of a key of the JSON lines in a file, a line each.
values() { sed -n 's/.*"'"$1"'":"\{0,1\}\([^",}]*\).*/\1/p' "$2"; }

stages() {
  small 0 stages --num-devices 4 --layers 2 --results rows.jsonl &&
    test "$(grep -c '^  [0-3], ' out)" -eq 9 &&
    test "$(grep -c 'all 4 layers: device' out)" -eq 9 &&
    test "$(grep -c '"state":"ran"' rows.jsonl)" -eq 9 &&
    test "$(grep -c '"state":"planned"' rows.jsonl)" -eq 9 &&
    test "$(grep -c '^{"format":1,"kind":"bench","what":"stages",' \
      rows.jsonl)" -eq 18 && ! grep -qE '^.{81}' out
}
# With nothing to wait for, a device holds fewer gradients than the formula has,
# which counts all: split at stage 2, gone where the optimizer is on the host.
formula() {
  for row in '0, none' '1, none' '2, none' '3, none' '2, optimizer cpu'; do
    grep '"state":"planned"' rows.jsonl | grep -F "\"label\":\"$row\"" >one
    values formula_weights_bytes one
    values formula_gradients_bytes one
    values formula_optimizer_bytes one
    values formula_bytes one
  done | tr '\n' ' ' >formulas
  parameters=$(values formula_weights_bytes rows.jsonl | sort -n | tail -n 1)
  parameters=$((parameters / 2)) # of bf16
  test "$(cat formulas)" = "$(awk -v p=$parameters 'BEGIN {
    printf "%d %d %d %d ", 2 * p, 2 * p, 10 * p, 14 * p
    printf "%d %d %d %d ", 2 * p, 2 * p, 10 * p / 4, 4 * p + 10 * p / 4
    printf "%d %d %d %d ", 2 * p, p / 2, 10 * p / 4, 2 * p + p / 2 + 10 * p / 4
    printf "%d %d %d %d ", p / 2, p / 2, 10 * p / 4, p + 10 * p / 4
    printf "%d null null %d ", 2 * p, 2 * p }')"
}
# A device that is the host's memory is not called a GPU.
words() {
  small 0 stages --num-devices 2 --layers 1 --gradient-accumulation-steps 2 &&
    ! grep -q 'GPU' out && grep -q '^  stage, offload  *device  *host' out &&
    grep -q '^      device: weights' out &&
    grep -q "by the stage's formula .*: weights" out
}
# Nothing fits: what is needed, what there is, and the exit code of plan.
unfit() {
  small 3 sweep --gpu-memory 1M --set gradient_accumulation_steps=1,3 &&
    test "$(grep -c 'does not fit: device has 1.0 MiB$' out)" -eq 2 &&
    grep -q 'no row fits: "1" needs .* of each device, and 1.0 MiB are' err &&
    small 3 stages --layers 1 --host-memory 1M &&
    grep -q 'does not fit: host has 1.0 MiB for both$' out &&
    grep -q 'no row fits: .* of host memory, where its devices live too' err &&
    small 3 frontier --gpu-memory 1M && test ! -s out &&
    grep -q 'needs .*, and 1.0 MiB are allowed' err &&
    small 3 frontier --host-memory 1M && test ! -s out &&
    grep -q 'needs .* of host memory.*, and 1.0 MiB are allowed' err
}
# The processor in the place of a GPU is told, unless it was asked for.
no_gpu() {
  ! grep -q 'no GPU' err && hidden 0 stages --layers 1 &&
    test "$(grep -c '^warning: no GPU that this build can use: running on the '\
'processor, as with --backend host$' err)" -eq 1 &&
    hidden 3 stages --layers 1 --host-memory 1M &&
    grep -q 'no row fits: .* (--host-memory); no GPU that this build' err &&
    hidden 3 frontier --host-memory 1M &&
    grep -q '(--host-memory).*; no GPU that this build can use' err &&
    hidden 0 step --max-steps 4 && grep -q '^warning: no GPU' err &&
    hidden 2 step --devices 0,1 && grep -q -- '--devices names GPUs' err
}
hidden() { # hidden CODE TOPIC ARGUMENT...
  code=$1
  topic=$2
  shift 2
  CUDA_VISIBLE_DEVICES= benches "$code" "$topic" --model config.json --bf16 \
    --max-length 64 --max-steps 3 "$@"
}
# What the devices hold counts as host memory: a larger budget still runs where
# filling it up would take too much of that.
both_memories() {
  small 0 frontier --layers 2 --host-memory 11M --json &&
    ! grep -q '"state":"does not fit"' out
}
# One that fits is enough.
partly_unfit() {
  small 0 sweep --set gradient_accumulation_steps=1,300 --host-memory 12M &&
    test "$(grep -c 'does not fit: host has 12.0 MiB for both$' out)" -eq 1
}
# Losses are those of the same model and rows, whatever the stage and homes.
same_losses() {
  grep '"state":"ran"' rows.jsonl >ran
  test "$(values loss ran | sort -u | wc -l)" -eq 1
}
# More is split, or leaves, from row to row of a kind.
shrinking() {
  grep '"state":"ran"' rows.jsonl | grep -F '"label":"0, none"' >zero
  grep '"state":"ran"' rows.jsonl | grep -F '"label":"1, none"' >one
  grep '"state":"ran"' rows.jsonl | grep -F '"label":"3, both cpu"' >both
  test "$(values gpu_bytes zero)" -gt "$(values gpu_bytes one)" &&
    test "$(values gpu_bytes one)" -gt "$(values gpu_bytes both)" &&
    test "$(values host_bytes both)" -gt "$(values host_bytes one)"
}
# Cut in the middle of a line; what is there is not run again.
resumed() {
  cp rows.jsonl whole.jsonl
  head -c $(($(wc -c <whole.jsonl) - 40)) whole.jsonl >rows.jsonl
  small 0 stages --num-devices 4 --layers 2 --results rows.jsonl --json &&
    test "$(wc -l <rows.jsonl)" -eq 18 && head -n 17 whole.jsonl >first &&
    head -n 17 rows.jsonl | cmp -s - first && head -n 17 out | cmp -s - first &&
    test "$(wc -l <out)" -eq 18
}
# Another configuration is another row.
other_rows() {
  small 0 stages --num-devices 2 --layers 1 --results rows.jsonl --json &&
    test "$(wc -l <rows.jsonl)" -eq 36
}
no_results() {
  echo 'my notes' >notes.txt
  small 4 sweep --set gradient_accumulation_steps=1,2 --results notes.txt &&
    test "$(cat notes.txt)" = 'my notes' && printf 'my notes' >notes.txt &&
    small 2 sweep --set gradient_accumulation_steps=1,2 --results notes.txt &&
    test "$(cat notes.txt)" = 'my notes' &&
    grep -q 'is no file of results' err
}
# What stage 0 has room for in a small budget is less than the model.
layers() {
  small 0 stages --num-devices 1 --gpu-memory 11M &&
    grep -qE '^[123] of 4 layers' out && grep -q 'all 4 layers: device' out
}
frontier() {
  small 0 frontier --layers 2 --json &&
    test "$(wc -l <out)" -eq 15 &&
    test "$(grep -c '"state":"ran"' out)" -eq 8 &&
    values gpu_budget_bytes out | sort -nc && ! grep -q 'does not fit' out &&
    awk -F'"gpu_b' '{ split($2, a, "[:,]"); split($3, b, "[:,]")
      if (b[2] + 0 > a[2] + 0) exit 1 }' out
}
sweep() {
  small 0 sweep --layers 1 --set gradient_accumulation_steps=1,3 \
    --set zero_optimization.stage=2 --json &&
    test "$(values label out | tr '\n' ' ')" = '1 3 ' &&
    test "$(values tokens out | tr '\n' ' ')" = '64 192 ' &&
    ! grep -qv '"stage":2' out && small 2 sweep &&
    grep -q 'want --set KEY.PATH=A,B,C' err
}
refused() {
  small 2 sweep --set zero_optimization.stage=1,7 &&
    grep -q 'zero_optimization.stage' err && benches 2 nothing &&
    grep -q 'want one of: stages' err && benches 2 stges &&
    grep -q 'no bench "stges"; did you mean stages?' err
}
rates() {
  small 0 matmul && grep -q 'TFLOP/s .* % of square matrices' out &&
    benches 0 transfer --backend host --json &&
    grep -q '"what":"transfer","label":"host to device","unit":"GB/s",' out
}
adam() {
  benches 0 adam --host-memory 256MB &&
    grep -q '^AdamW on the host: 1.6e+07 parameters,' out &&
    grep -q 'bf16 pair.* % of an update in place' out
}

case_ 'stages: a row each, all layers beside them' stages
case_ 'the formula counts every state, gradients too' formula
case_ 'every row has the loss of every other' same_losses
case_ 'memory shrinks from stage to stage' shrinking
case_ 'a run that was cut short is taken up again' resumed
case_ 'another configuration has rows of its own' other_rows
case_ 'a file that holds no results is not touched' no_results
case_ 'as many layers as stage 0 has room for' layers
case_ 'frontier: budgets are kept, from the least to the most' frontier
case_ 'sweep: a row a value' sweep
case_ 'the processor in the place of a GPU is told' no_gpu
case_ 'a device of the host backend is not called a GPU' words
case_ 'where nothing fits, exit 3, the need and what there is' unfit
case_ 'a larger budget fits where a smaller one does' both_memories
case_ 'a row that does not fit says what it lacks' partly_unfit
case_ 'what is no table, and what no value, is refused' refused
case_ 'products and copies beside their bound' rates
case_ 'AdamW beside its bound' adam
echo "1..$number"
test "$failures" -eq 0
