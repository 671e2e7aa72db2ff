#!/bin/sh
# TAP: export, generate, eval --generate and inspect as their user sees them.
. "${SRCDIR:?}/tests/cases.sh"
demo=${SRCDIR:?}/bench/demo/model

run() {
  "$program" "$@" >out 2>err
  code=$?
}
exits() {
  want=$1
  shift
  run "$@"
  test "$code" -eq "$want"
}
says() { grep -qF -- "$1" err; }
prints() { grep -qF -- "$1" out; }

# A small model with a tokenizer, and code that nobody checks.
"$program" init --model "$demo" --output model --dtype fp32 --seed 7 \
  --set num_layers=2 --set hidden_size=64 --set kv_channels=16 \
  --set num_attention_heads=4 --set ffn_hidden_size=96 >out 2>err ||
  { cat err; echo 'Bail out! no model'; exit 99; }
echo 'import os' >model/modeling_chatglm.py
cat >rows.jsonl <<'JSON'
{"content": "ab", "summary": "cd"}
{"content": "cd ab", "summary": "abc"}
{"content": "abcd", "summary": "d"}
JSON

# ---- export ----
same_again() {
  exits 0 export --model model --output again && prints '18 tensors as fp32' &&
    cmp -s model/model.safetensors again/model.safetensors &&
    cmp -s model/config.json again/config.json &&
    cmp -s model/tokenizer.model again/tokenizer.model
}
hashes() {
  hash=$(sha256sum <again/modeling_chatglm.py | cut -d ' ' -f 1)
  prints "unchecked code, sha256 $hash: modeling_chatglm.py"
}
another_type() {
  exits 0 export --model model --output half --dtype fp16 && ! test -s err &&
    grep -q '"float16"' half/config.json &&
    exits 0 export --model half --output full --dtype fp32 &&
    cmp -s model/config.json full/config.json &&
    ! cmp -s model/model.safetensors full/model.safetensors &&
    exits 0 export --model full --output half2 --dtype fp16 &&
    cmp -s half/model.safetensors half2/model.safetensors
}
angles() {
  exits 0 export --model model --output bf16 --dtype bf16 &&
    says 'warning: the official code' && says '--rope-precision model' &&
    exits 0 export --model model --output bf16g --dtype bf16 --layout glm &&
    ! test -s err &&
    exits 0 export --model model --output bf163 --dtype bf16 \
      --model-family chatglm3 && ! test -s err
}
glm() {
  exits 0 export --model model --output glm --layout glm &&
    prints '25 tensors' && grep -q '"GlmForCausalLM"' glm/config.json &&
    grep -q '"partial_rotary_factor": 0.5,' glm/config.json &&
    exits 0 inspect --model glm --json &&
    prints '"name":"model.layers.1.self_attn.q_proj.weight","dtype":"F32",'\
'"shape":[64,64]' &&
    prints '"name":"model.layers.1.self_attn.v_proj.bias","dtype":"F32",'\
'"shape":[32]' && ! prints inv_freq && ! prints query_key_value
}
shards() {
  exits 0 export --model model --output shards --max-shard-size 200K &&
    prints 'in 5 files' && test -s shards/model.safetensors.index.json &&
    test -s shards/model-00005-of-00005.safetensors &&
    exits 0 export --model shards --output joined &&
    cmp -s model/model.safetensors joined/model.safetensors
}
overflows() {
  cp -r model large && size=$(wc -c <large/model.safetensors) &&
    printf '\377\377\177\177\0\0\200\177' | dd of=large/model.safetensors \
      bs=1 seek=$((size - 40)) conv=notrunc 2>/dev/null &&
    exits 0 export --model large --output cut --dtype fp16 &&
    says 'warning: of the source 1 number is not finite, and 1 overflows in '\
'fp16; the first tensor with some is transformer.output_layer.weight'
}
refusals() {
  exits 2 export --model model && says 'export needs --output DIR' &&
    exits 2 export --model model --output again &&
    says 'again is there already' && says -- '--overwrite' &&
    exits 0 export --model model --output again --overwrite &&
    exits 0 export --model model --output never --dry-run &&
    prints 'would hold' && ! test -e never &&
    exits 2 export --model model --output never --layout gguf &&
    exits 2 export --model glm --output never && says 'glm/config.json' &&
    says 'this is the glm layout' &&
    ! test -e never
}
case_ 'an export in the same type is the model, byte for byte' same_again
case_ 'code that comes along is listed with its hash' hashes
case_ 'an export in another type says so in config.json' another_type
case_ 'bf16 warns of the angles of the official code' angles
case_ 'the glm layout has its names, shapes and config.json' glm
case_ 'weights are split into files of the size asked for' shards
case_ 'numbers that overflow are counted, and named' overflows
case_ 'what cannot be exported leaves nothing' refusals

# ---- generate ----
answer() { run generate --model model --max-new-tokens 12 --json "$@"; }
one_prompt() {
  exits 0 generate --model model --prompt ab --max-new-tokens 12 &&
    test "$(wc -l <out)" -ge 1 && grep -qE \
    'tokens? in [0-9.]+ m?s, ([0-9]\.[0-9]{2}|[0-9]{2}\.[0-9]|[0-9]{3,}) tokens/s' \
    err && ! says 'in 0.0 s' && cp out first &&
    exits 0 generate --model model --prompt ab --max-new-tokens 12 &&
    cmp -s out first
}
many_prompts() {
  printf 'ab\r\n\ncd\n' >lines && answer --prompt ab --prompt cd && cp out two &&
    answer --prompt-file lines && sed 's/"seconds".*//' two >a &&
    sed 's/"seconds".*//' out >b && cmp -s a b && test "$(wc -l <b)" -eq 2 &&
    "$program" generate --model model --max-new-tokens 12 --json <lines >out \
      2>err && sed 's/"seconds".*//' out >b && cmp -s a b
}
no_prompt() {
  "$program" generate --model model </dev/null >out 2>err
  code=$?
  test $code -eq 2 && says 'no prompt'
}
tokens_of() { sed 's/.*"prompt_tokens":\([0-9]*\).*/\1/' out; }
templates() {
  printf '[["ab", "cd"], ["ab", "ab"]]' >history.json &&
    answer --prompt ab && plain=$(tokens_of) &&
    answer --prompt ab --history history.json && long=$(tokens_of) &&
    answer --prompt ab --raw && raw=$(tokens_of) &&
    test "$raw" -lt "$plain" && test "$plain" -lt "$long" &&
    exits 2 generate --model model --prompt a --raw --history history.json &&
    printf '[["ab"]]' >history.json &&
    exits 4 generate --model model --prompt a --history history.json &&
    says 'want an array of [question, answer]'
}
drawn() {
  answer --prompt ab --do-sample --seed 1 && sed 's/"end".*//' out >a &&
    answer --prompt ab --temperature 0.95 --seed 1 &&
    sed 's/"end".*//' out >b && cmp -s a b &&
    answer --prompt ab --do-sample --seed 2 && sed 's/"end".*//' out >b &&
    ! cmp -s a b && answer --prompt ab --top-p 1e-6 && sed 's/"end".*//' out >a &&
    answer --prompt ab && sed 's/"end".*//' out >b && cmp -s a b
}
streamed() {
  answer --prompt ab && sed 's/"end".*//' out >a &&
    answer --prompt ab --gpu-memory 1K && test "$code" -eq 3 || return 1
  kib=$(sed -n 's/.*answering takes \([0-9.]*\) MiB.*/\1/p' err |
    awk '{ printf "%d", ($1 + 0.1) * 1024 }')
  answer --prompt ab --gpu-memory "${kib}K" && says 'stay on the host' &&
    sed 's/"end".*//' out >b && cmp -s a b
}
controls() {
  printf 'a\033[2Jb\ncd\n' >lines &&
    exits 0 generate --model model --prompt-file lines --max-new-tokens 3 &&
    prints '> a\x1b[2Jb' && prints '> cd'
}
not_utf8() {
  printf 'ab\nc\377d\n' >lines &&
    exits 4 generate --model model --prompt-file lines &&
    says 'prompt 2: byte 2, \xff, is not UTF-8'
}
case_ 'an answer is printed, and is the same again' one_prompt
case_ 'prompts are arguments, lines of a file, or standard input' many_prompts
case_ 'no prompt is wrong usage' no_prompt
case_ 'a prompt that is not UTF-8 is named' not_utf8
case_ 'the template, a history, or the text alone' templates
case_ 'drawing depends on the seed; a narrow draw is the likeliest' drawn
case_ 'weights that stay on the host give the same answer' streamed
case_ 'a prompt cannot drive the terminal' controls

# ---- eval ----
evaluate() { run eval --model model --data rows.jsonl "$@"; }
scored() {
  evaluate --generate --max-new-tokens 8 --output pred --json &&
    prints '"rouge_1":' && prints '"bleu_4":' && prints '"answers":3' &&
    says 'answers and references are in pred/generated_predictions.txt' &&
    test "$(wc -l <pred/generated_predictions.txt)" -eq 3 &&
    head -n 1 pred/generated_predictions.txt |
    grep -q '^{"labels": "cd", "predict": ".*"}$' &&
    ! ls -A pred | grep -q partial
}
official_flag() {
  (mkdir -p here && cd here && "$program" eval --model ../model --do-sample \
    --data ../rows.jsonl --predict_with_generate --max-source-length 16 \
    --max-target-length 8 >../out 2>../err) && prints 'rouge-1' &&
    prints 'bleu-4' && test -s here/generated_predictions.txt
}
no_question() {
  echo '{"text": "abcd"}' >text.jsonl &&
    exits 4 eval --model model --data text.jsonl --generate --output pred &&
    says 'text.jsonl:1: no prompt' &&
    exits 2 eval --model model --data rows.jsonl --output pred &&
    says '--output needs --generate'
}
loss_of() { sed -n 's/^loss \([0-9.]*\).*/\1/p' out; }
official_angles() {
  seq -s ' ' 1 60 | sed 's/.*/{"content": "&", "summary": "&"}/' >long.jsonl &&
    run eval --model model --data long.jsonl --bf16 && exact=$(loss_of) &&
    run eval --model model --data long.jsonl --bf16 --rope-precision model &&
    test "$(loss_of)" != "$exact" && test -n "$exact" &&
    run eval --model model --data long.jsonl && exact=$(loss_of) &&
    run eval --model model --data long.jsonl --rope_precision model &&
    test "$(loss_of)" = "$exact" && says 'in fp32' &&
    run eval --model model --data rows.jsonl --rope-precision model \
      --model-family chatglm3 && says 'exact angles'
}
case_ 'eval --generate writes and scores answers' scored
case_ 'the official flag and lengths do the same' official_flag
case_ 'rows without a prompt are named' no_question
case_ '--rope-precision model shows the official angles' official_angles

# ---- a training state is a model too ----
state() {
  exits 0 train --model half --data rows.jsonl --fp16 --max-steps 2 \
    --output trained && exits 0 export --model trained/state-00000002 \
    --output exported && prints 'as fp16' && diff -r exported trained/model &&
    exits 0 export --model trained/state-00000002 --output glm32 --layout glm \
      --dtype fp32 && prints '25 tensors as fp32'
}
state_answers() {
  run eval --model trained/model --data rows.jsonl --fp16 && cp out a &&
    exits 0 eval --model trained/state-00000002 --data rows.jsonl --fp16 &&
    test "$(cut -d ' ' -f 1-2 out)" = "$(cut -d ' ' -f 1-2 a)" &&
    exits 0 generate --model trained/model --fp16 --prompt ab && cp out a &&
    exits 0 generate --model trained/state-00000002 --fp16 --prompt ab &&
    cmp -s out a
}
# computes TYPE WHY ARGUMENT...: eval and generate, when they are told none.
computes() {
  type=$1 why=$2
  shift 2
  exits 0 eval --model "$@" --data long.jsonl &&
    says "note: computing in $type, $why" && cut -d ' ' -f 1-4 out >default &&
    exits 0 generate --model "$@" --prompt ab --max-new-tokens 4 &&
    says "note: computing in $type, $why"
}
# same_as OPTION ARGUMENT...: the loss of the last one is that of the option,
# which nothing need be said of.
same_as() {
  exits 0 eval "$1" --model "$2" --data long.jsonl && ! says computing &&
    cut -d ' ' -f 1-4 out | cmp -s - default &&
    exits 0 generate "$1" --model "$2" --prompt ab --max-new-tokens 4 &&
    ! says computing
}
number_types() {
  cp -r half untold && sed '/torch_dtype/d' half/config.json >untold/config.json &&
    exits 0 train --model half --data rows.jsonl --bf16 --max-steps 1 \
      --output mixed || return 1
  computes fp16 'torch_dtype of its config.json' half && same_as --fp16 half &&
    ! same_as --no-fp16 half &&
    computes fp32 'since its config.json names no type' untold &&
    same_as --no-bf16 untold &&
    computes bf16 'the type that it was trained in' mixed/latest &&
    same_as --bf16 mixed/latest &&
    computes fp16 'torch_dtype' mixed/model || return 1
  # A configuration that says a type is obeyed, one that does not changes none.
  echo '{"fp16": {"enabled": false}}' >ds.json &&
    exits 0 eval --model half --data long.jsonl --config ds.json &&
    ! says computing && exits 0 eval --model half --data long.jsonl \
    --set gradient_clipping=1 && says 'computing in fp16'
}
# A run that begins from a state leaves a model of the type that state's had.
from_state() {
  exits 0 train --model trained/state-00000002 --data rows.jsonl --fp16 \
    --max-steps 1 --output further --save-only-model &&
    grep -q '"float16"' further/model/config.json &&
    test "$(wc -c <further/model/model.safetensors)" -eq \
      "$(wc -c <trained/model/model.safetensors)"
}
case_ 'the export of a state is the model that training left' state
case_ 'eval and generate take a state' state_answers
case_ 'eval and generate compute in the type of the model' number_types
case_ 'training begins from a state as from a model' from_state

# ---- inspect ----
checksums() {
  hash=$(sha256sum <model/model.safetensors | cut -d ' ' -f 1)
  exits 0 inspect --model model --checksums &&
    prints "sha256 $hash  model.safetensors" && prints 'tokenizer: ' &&
    mkdir -p cache/blobs cache/model &&
    cp model/model.safetensors "cache/blobs/$hash" &&
    cp model/config.json model/tokenizer.model cache/model &&
    ln -s "../blobs/$hash" cache/model/model.safetensors &&
    exits 0 inspect --model cache/model --checksums --json &&
    prints "{\"file\":\"model.safetensors\",\"sha256\":\"$hash\",\"verified\":true}" &&
    size=$(wc -c <model/model.safetensors) &&
    printf x | dd of="cache/blobs/$hash" bs=1 seek=$((size - 9)) conv=notrunc \
      2>/dev/null && exits 4 inspect --model cache/model --checksums &&
    says "but the cache names it $hash"
}
no_tokenizer() {
  rm cache/model/tokenizer.model && exits 0 inspect --model cache/model &&
    says 'warning: no tokenizer' && exits 0 inspect --model model &&
    prints 'chat template: rounds' &&
    exits 0 inspect --model model --model-family chatglm3 &&
    prints 'chat template: roles'
}
case_ 'inspect --checksums compares with the cache of Hugging Face' checksums
case_ 'inspect tells the tokenizer and its chat template' no_tokenizer

echo "1..$number"
exit $((failures > 0))
