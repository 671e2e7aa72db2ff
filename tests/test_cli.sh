#!/bin/sh
# TAP: the program as its user sees it: exit codes, messages, inspect, init.
# What needs the shared fixtures is skipped, visibly, where they are absent.
. "${SRCDIR:?}/tests/cases.sh"
shared=${ZERO_OFFLOAD_SHARED-}
demo=${SRCDIR:?}/bench/demo/model

# run ARGUMENT...: leaves out, err and $code.
run() {
  "$program" "$@" >out 2>err
  code=$?
}
# exits CODE ARGUMENT...
exits() {
  want=$1
  shift
  run "$@"
  test "$code" -eq "$want"
}
# says TEXT: on standard error.
says() { grep -qF -- "$1" err; }
prints() { grep -qF -- "$1" out; }

# ---- usage ----
no_arguments() {
  exits 2 && says 'usage: zero-offload COMMAND' && ! test -s out
}
version() {
  exits 0 --version && grep -qE '^zero-offload [0-9]+\.[0-9]+' out &&
    ! test -s err && exits 0 -V
}
overview() {
  exits 0 --help && prints 'usage: zero-offload COMMAND' &&
    ! grep -qE '.{81}' out && prints '  inspect' && prints '  init' && ! test -s err &&
    exits 0 help && exits 0 -h
}
unknown_command() {
  exits 2 inspct --model x &&
    says 'zero-offload: no command "inspct"; did you mean inspect?' &&
    exits 2 gen && says 'did you mean generate?' && exits 2 frobnicate && says 'zero-offload --help lists them'
}
option_first() {
  exits 2 --model x inspect && says '--model stands before the command'
}
unknown_option() {
  exits 2 inspect --modle x && says 'zero-offload: ' && says 'modle' &&
    says '--model'
}
# Each heading once, whatever the order of the table.
headings() {
  for command in $("$program" --help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p'); do
    exits 0 "$command" --help && test -z "$(grep '^[A-Z][a-z ]*:$' out |
      sort | uniq -d)" && grep -q '^Looking:$' out || return 1
  done
}
command_help() {
  exits 0 inspect --help && prints '--rows' && ! grep -qE '.{81}' out &&
    cp out first && exits 0 help inspect && cmp -s out first &&
    ! exits 0 help frobnicate
}
one_line() {
  exits 2 inspect && says 'zero-offload: inspect needs --model DIR' &&
    test "$(wc -l <err)" -eq 1
}
full_disk() {
  "$program" --version >/dev/full 2>err
  code=$?
  test "$code" -eq 1 && says 'cannot write to standard output'
}
escapes() {
  exits 2 inspect --model "$(printf 'no\033[2Jsuch')" && says 'no\x1b[2Jsuch' &&
    exits 2 "$(printf 'a\033b')" && says 'a\x1bb'
}
case_ 'no argument is wrong usage' no_arguments
case_ '--version prints name and version' version
case_ '--help lists the commands' overview
case_ 'an unknown command suggests the nearest' unknown_command
case_ 'an option before the command is explained' option_first
case_ 'an unknown option suggests the nearest' unknown_option
case_ '--help of a command lists its options in 80 columns' command_help
case_ 'a heading of the options stands once' headings
case_ 'an error is one line' one_line
case_ 'a full disk is not success' full_disk
case_ 'arguments cannot drive the terminal' escapes

# ---- init, then inspect ----
mkdir tiny
cat >tiny/config.json <<'JSON'
{
  "architectures": ["ChatGLMModel"], "model_type": "chatglm",
  "auto_map": {"AutoModel": "modeling_chatglm.ChatGLMForConditionalGeneration"},
  "num_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
  "kv_channels": 16, "multi_query_attention": true,
  "multi_query_group_num": 2, "ffn_hidden_size": 96,
  "padded_vocab_size": 256, "seq_length": 512, "rmsnorm": true,
  "layernorm_epsilon": 1e-05, "add_qkv_bias": true,
  "add_bias_linear": false, "post_layer_norm": true, "torch_dtype": "float16"
}
JSON
echo 'pass' >tiny/modeling_chatglm.py
init() {
  exits 0 init --model tiny --output one --seed 7 --dtype fp32 &&
    test -s one/model.safetensors && cmp -s tiny/modeling_chatglm.py \
      one/modeling_chatglm.py && grep -q '"float32"' one/config.json &&
    grep -q auto_map one/config.json && prints 'seed 7'
}
listing() {
  exits 0 inspect --model one --tensors &&
    prints 'transformer.encoder.layers.1.mlp.dense_h_to_4h.weight' &&
    prints '[192, 64]' && prints '18 tensors' && prints 'family chatglm2'
}
# A line for the same tensor of every layer, and for no other.
groups() {
  exits 0 inspect --model one && test "$(grep -c '^F32 ' out)" -eq 11 &&
    grep -qE '^F32 +\[192, 64\] +2 x +48.0 KiB  '\
'transformer\.encoder\.layers\.\*\.mlp\.dense_h_to_4h\.weight$' out &&
    grep -qE '^F32 +\[256, 64\] +1 x +64.0 KiB  '\
'transformer\.output_layer\.weight$' out && prints '18 tensors'
}
listing_json() {
  exits 0 inspect --model one --json && test "$(wc -l <out)" -eq 18 &&
    grep -q '"name":"transformer.output_layer.weight","dtype":"F32",'\
'"shape":\[256,64\],"bytes":65536,"file":"model.safetensors",'\
'"non_finite":0}' out
}
same_numbers() {
  exits 0 init --model tiny --output two --seed 7 --dtype fp32 --threads 3 &&
    cmp -s one/model.safetensors two/model.safetensors &&
    exits 0 init --model tiny --output three --seed 8 --dtype fp32 &&
    ! cmp -s one/model.safetensors three/model.safetensors
}
no_overwriting() {
  exits 2 init --model tiny --output one --seed 8 && says 'one' &&
    says -- '--overwrite' &&
    cmp -s one/model.safetensors two/model.safetensors &&
    exits 0 init --model tiny --output one --seed 8 --dtype fp32 --overwrite &&
    cmp -s one/model.safetensors three/model.safetensors
}
sets() {
  exits 0 init --model tiny --set num_layers=1 --output four --dtype bf16 &&
    grep -q '"num_layers": *1' four/config.json &&
    grep -q 'bfloat16' four/config.json &&
    exits 0 inspect --model four && prints '11 tensors'
}
from_file() {
  exits 0 init --model tiny/config.json --output five --seed 7 --dtype fp32 &&
    cmp -s five/model.safetensors two/model.safetensors
}
dry_run() {
  exits 0 init --model tiny --output nothing --dry-run && ! test -e nothing &&
    prints 'would hold 94784 parameters'
}
# A preset is a configuration alone; a tokenizer that is named is copied.
preset() {
  exits 0 init --model chatglm2-6b --dry-run --output x &&
    says 'is the name of a preset and has no tokenizer' &&
    exits 0 init --model chatglm2-6b --tokenizer "$demo" --output preset \
      --set num_layers=1 --set hidden_size=64 --set ffn_hidden_size=96 \
      --set num_attention_heads=4 --set kv_channels=16 && ! says preset &&
    cmp -s preset/tokenizer.model "$demo/tokenizer.model"
}
missing_output() {
  exits 2 init --model tiny && says 'init needs --output DIR'
}
bad_config() {
  mkdir -p other && echo '{"model_type": "llama"}' >other/config.json &&
    exits 2 init --model other --output six && says 'other/config.json' &&
    ! test -e six
}
nothing_there() {
  exits 2 inspect --model nowhere && says 'nowhere'
}
damaged() {
  cp -r two broken && printf 'x' | dd of=broken/model.safetensors bs=1 \
    seek=9 conv=notrunc 2>/dev/null && exits 4 inspect --model broken &&
    says 'broken/model.safetensors'
}
case_ 'init writes a model and its other files' init
case_ 'inspect --tensors lists its tensors and tells its family' listing
case_ 'inspect prints the same tensor of every layer in one line' groups
case_ 'inspect --json prints an object a tensor' listing_json
case_ 'the numbers depend on the seed and not on threads' same_numbers
case_ 'init replaces a model only when told to' no_overwriting
case_ 'init --set changes the configuration that is written' sets
unknown_set() {
  exits 2 init --model tiny --set num_layrs=1 --output five --dtype bf16 &&
    grep -q 'num_layrs: config.json has no such key; did you mean num_layers' err &&
    test ! -e five
}
case_ 'a key that config.json has not is refused' unknown_set
case_ 'init takes a config.json' from_file
case_ 'init --dry-run writes nothing' dry_run
case_ 'init of a preset says that it has no tokenizer' preset
case_ 'init without --output is wrong usage' missing_output
case_ 'init refuses another architecture and writes nothing' bad_config
case_ 'a model that is not there is wrong usage' nothing_there
# Shards that the index names are a part of the model: it is not whole.
lacking() {
  exits 0 export --model two --output shards --max-shard-size 100KB &&
    rm shards/model-00002-of-*.safetensors && exits 4 inspect --model shards &&
    says 'shards: 1 of ' && says 'model-00002-of-' &&
    rm shards/model-*.safetensors shards/*.index.json &&
    exits 2 inspect --model shards && says 'no weights in shards'
}
case_ 'a damaged model is exit 4, and named' damaged
case_ 'a shard that is missing is exit 4, no weights at all wrong usage' lacking

# ---- kinds of rows ----
# kind ROW WHAT: the program tells the kind of a row from its keys.
kind() {
  printf '%s\n' "$1" >kind.jsonl && exits 0 inspect --model "$demo" --json \
    --data kind.jsonl && says "kind.jsonl: rows are $2"
}
kinds() {
  kind '{"content":"a","summary":"b"}' 'prompt column content' &&
    kind '{"text":"a"}' 'text' &&
    kind '{"input_ids":[1,2,3],"labels":[-100,2,3]}' 'input_ids' &&
    prints '"input_ids": [1, 2, 3]' &&
    kind '{"messages":[{"role":"user","content":"a"},'\
'{"role":"assistant","content":"b"}]}' 'conversations (messages)'
}
# Where there is no terminal a text has 120 columns; what is cut is told.
long_rows() {
  printf '{"text":"%0110d"}\n' 7 >long.jsonl &&
    exits 0 inspect --model "$demo" --data long.jsonl &&
    grep -qE ' 0{109}7$' out && ! says 'are cut' || return 1
  printf '{"text":"%0130d"}\n' 7 >>long.jsonl &&
    exits 0 inspect --model "$demo" --data long.jsonl &&
    grep -qE ' 0{117}\.\.\.$' out && says 'are cut' && says '--json' &&
    exits 0 inspect --model "$demo" --data long.jsonl --json &&
    grep -q '0007"' out && ! says 'are cut'
}
columns_named() {
  printf '{"text":"a"}\n' >kind.jsonl && exits 2 inspect --model "$demo" \
    --data kind.jsonl --prompt-column content && says 'no "content"' &&
    says 'kind.jsonl:1:1: ' && says -- '--prompt-column'
}
# A column that no row has is wrong usage; a row that lacks it is bad data.
columns_missing() {
  printf '{"q":"a","a":"b"}\n{"content":"a","summary":"b"}\n' >kind.jsonl &&
    exits 2 inspect --model "$demo" --data kind.jsonl &&
    says 'this row has "q", "a"' && says -- '--prompt-column' &&
    exits 4 inspect --model "$demo" --data kind.jsonl --prompt-column q \
      --response-column a && says 'kind.jsonl:2:1: no "q"' &&
    exits 0 inspect --model "$demo" --data kind.jsonl --skip-bad-rows &&
    says 'bad row skipped: kind.jsonl:1:1'
}
case_ 'rows of every kind are told by their keys' kinds
case_ 'a row has room for its text, and says where it has not' long_rows
case_ 'columns that the user names rule out other kinds' columns_named
case_ 'columns that are nowhere are wrong usage, else the row is bad' \
  columns_missing

# ---- train ----
words() {
  exits 0 init --model tiny --tokenizer "$demo" --output words --dtype fp32 \
    --set padded_vocab_size=1536 --set num_layers=1 &&
    printf '{"input_ids":[1,2,3]}\n' >ids.jsonl &&
    printf '{"content":"a","summary":"b"}\n' >rows.jsonl
}
# train_to DIR OPTION...
train_to() {
  to=$1
  shift
  run train --model words --data ids.jsonl --max-steps 1 --output "$to" "$@"
}
# A target that cannot be written is told before the first step.
no_target() {
  mkdir -p folders/model/sub links files && : >folders/model/config.json &&
    ln -s nowhere links/model && : >files/model || return 1
  for dir in folders links files; do
    for option in --strict --overwrite; do
      train_to $dir $option
      test "$code" -eq 2 && says $dir && ! grep -q '^step' out &&
        ! test -e $dir/metrics.jsonl || return 1
    done
  done
  mkdir -p best/best && : >best/best/config.json &&
    train_to best --eval-data ids.jsonl --keep-best && test "$code" -eq 2 &&
    says 'best holds the model of an earlier run'
}
# The tokenizer comes from elsewhere; what else there is is the model's own.
foreign_tokenizer() {
  mkdir -p bare && cp words/config.json words/model.safetensors bare &&
    echo 'pass' >bare/modeling_chatglm.py || return 1
  exits 0 train --model bare --tokenizer "$demo" --data ids.jsonl \
    --max-steps 1 --output joined && cd joined/model || return 1
  cmp -s config.json ../../bare/config.json && test -s modeling_chatglm.py &&
    cmp -s tokenizer.model "$demo/tokenizer.model" || { cd "$work"; return 1; }
  cd "$work" && exits 0 eval --model joined/model --data ids.jsonl
}
# No folder of the model's own: config.json is made, not the tokenizer's.
no_folder() {
  mkdir -p loose && cp words/config.json loose/small.json &&
    exits 0 train --model loose/small.json --random-weights --data ids.jsonl \
      --tokenizer "$demo" --max-steps 1 --output made &&
    grep -q '"num_layers": *1,' made/model/config.json &&
    grep -q '"torch_dtype": *"float32"' made/model/config.json &&
    exits 0 eval --model made/model --data ids.jsonl
}
case_ 'a small model in the vocabulary of the demo' words
# No less than a state takes, and not much more than its numbers, without the
# model's own files and with them.
state_bound() {
  cp -r words bigger && head -c 3000000 /dev/zero >bigger/more.txt &&
    echo '{"input_ids": [7, 8, 9]}' >bound.jsonl || return 1
  for model in words bigger; do
    exits 0 plan --model $model --data bound.jsonl --json || return 1
    bound=$(sed -n 's/.*"save":{"bytes":\([0-9]*\),.*/\1/p' out)
    exits 0 train --model $model --data bound.jsonl --max-steps 1 \
      --output "bound-$model" || return 1
    cat "bound-$model"/state-00000001/* >state &&
      numbers=$(cat "bound-$model"/state-00000001/*.state | wc -c) &&
      taken=$(wc -c <state) && echo "$model $bound $taken $numbers" &&
      test "$bound" -ge "$taken" &&
      test "$bound" -le $((taken + numbers + 1000000)) || return 1
  done
}
case_ 'plan says what a state takes at most, and little more' state_bound
case_ 'train --tokenizer leaves the model its own config.json' \
  foreign_tokenizer
case_ 'train of random weights writes the config.json they are of' no_folder
case_ 'train refuses what it could not write at the end' no_target

no_labels() {
  printf '{"input_ids":[1,2],"labels":[-100,-100]}\n' >silent.jsonl &&
    exits 4 eval --model words --data silent.jsonl &&
    says 'silent.jsonl: no label' && ! test -s out &&
    exits 4 train --model words --data ids.jsonl --eval-data silent.jsonl \
      --output silent --max-steps 1 && says 'silent.jsonl: no label' &&
    ! test -e silent
}
# Huge weights: the logits overflow in fp16.
no_loss() {
  cp -r words huge &&
    at=$(($(od -An -tu4 -N4 huge/model.safetensors) + 8)) &&
    size=$(($(wc -c <huge/model.safetensors) - at)) || return 1
  head -c $at words/model.safetensors >huge/model.safetensors
  # About 60000 in fp32: the bytes 00 60 6a 47, then 60 60 6a 47 again and again.
  awk -v n=$((size / 4)) 'BEGIN { while (n-- > 0) printf "`jG`" }' |
    head -c $((size - 1)) >payload
  printf '\0' | cat - payload >>huge/model.safetensors
  exits 5 eval --model huge --data ids.jsonl --fp16 &&
    says 'huge' && says 'not finite' && says 'fp16'
}
case_ 'rows without any label are no evaluation' no_labels
case_ 'a loss that is not finite is exit 5' no_loss

# refuses_nvme COMMAND...: the same of a folder that is none, and of a file,
# before a table or a rate is printed.
refuses_nvme() {
  for folder in nowhere ids.jsonl; do
    exits 2 "$@" --nvme $folder && says "NVMe folder $folder: " &&
      ! test -s out && grep -v '^note: ' err | diff - told.$folder || return 1
  done
}
nvme_folder() {
  echo 'zero-offload: NVMe folder nowhere: No such file or directory; make it first' \
    >told.nowhere
  echo 'zero-offload: NVMe folder ids.jsonl: not a folder' >told.ids.jsonl
  refuses_nvme train --model words --data ids.jsonl --output never &&
    refuses_nvme plan --model words --backend host &&
    refuses_nvme bench nvme && refuses_nvme bench stages --model words &&
    refuses_nvme bench step --model words && refuses_nvme doctor || return 1
  # What is planned for another machine needs no folder here, and says so.
  exits 0 plan --model words --profile 4090 --set zero_offload.fill=false \
    --nvme nowhere:1G && says 'warning: NVMe folder nowhere: ' &&
    says 'the plan is for a machine that has it'
}
case_ 'a folder that cannot be the NVMe tier is told alike' nvme_folder
# What lacks a byte is not told to need what is there.
nearly() {
  set -- plan --model words --backend host --set zero_offload.fill=false \
    --set zero_optimization.stage=0
  exits 3 "$@" --json --gpu-memory 1M &&
    least=$(sed 's/.*"devices":\[{[^}]*"total_bytes":\([0-9]*\).*/\1/' out) &&
    exits 0 "$@" --gpu-memory "$least" &&
    exits 3 "$@" --gpu-memory $((least - 1)) && prints "($least bytes) of " &&
    says "($least bytes), and " && says "($((least - 1)) bytes) are allowed"
}
case_ 'what lacks little is told in bytes' nearly
# Rates are looked for before anything is printed, and a GPU's predict nothing
# of a processor.
profiles() {
  exits 2 plan --model words --backend host --profile 4080 && test ! -s out &&
    says '--profile 4080: neither a file nor one of 3090, 4090, 5090, a100' &&
    says 'zero-offload/machine.json' && echo '{}' >empty.json &&
    exits 2 plan --model words --backend host --profile empty.json &&
    test ! -s out && exits 2 train --model words --data nowhere.jsonl \
    --backend host --profile 4090 --output never && ! says nowhere &&
    says '--profile 4090: rates of a GPU tell nothing of this run' &&
    exits 2 train --model words --data nowhere.jsonl --backend host \
      --profile 4080 --output never && says 'neither a file nor one of'
}
case_ 'rates that are not there, or of other devices, are refused' profiles
# More memory than the card of the profile has.
larger() {
  set -- plan --model words --profile 4090 --set zero_offload.fill=false
  exits 0 "$@" --gpu-memory 80G &&
    test "$(grep -c '^warning: --gpu-memory 80.00 GiB: a 4090 has 24.00 GiB$' \
      err)" -eq 1 && exits 0 "$@" --gpu-memory 24G && ! says 'a 4090 has'
}
case_ 'a budget above the card is warned of' larger
# Longer rows than the model was made for.
lengths() {
  seq=$(sed -n 's/.*"seq_length": *\([0-9]*\).*/\1/p' words/config.json) &&
    test "$seq" -gt 1 &&
    exits 0 train --model words --data ids.jsonl --max-steps 1 --dry-run \
      --max-length $((seq + 1)) && says "warning: rows may have $((seq + 1)) "\
"tokens; the model was made for $seq" &&
    exits 0 train --model words --data ids.jsonl --max-steps 1 --dry-run \
      --max-length "$seq" && ! says 'was made for' &&
    exits 0 plan --model chatglm2-6b --profile 4090 --max-length 40000 \
      --set zero_offload.fill=false &&
    test "$(grep -c 'may have 40000 tokens; the model was made for 32768' \
      err)" -eq 1
}
case_ 'rows beyond the model are warned of' lengths
# What is needed and what would help; one sum in the plan and in the failure.
cures() {
  exits 3 train --model words --data ids.jsonl --backend host \
    --host-memory 1M --output unfit && says 'it does not fit; what would:' &&
    says 'more memory, or shorter rows' || return 1
  in_all='host memory in all, with the devices that live there'
  all=$(sed -n "s/^  $in_all: \(.*\) of 1.0 MiB\$/\1/p" err) &&
    test -n "$all" && says "needs $all of host memory" &&
    ! grep -q 'page-locked: .* of ' err &&
    exits 0 plan --model words --backend host --host-memory 1G &&
    prints "$in_all" && prints 'of 1.00 GiB' && ! grep -q 'locked: .* of ' out &&
    exits 3 bench step --model words --backend host --host-memory 1M &&
    says 'it does not fit; what would:'
}
case_ 'what does not fit is told with what would' cures
# One is no plural, and of nothing and of two there are several.
counts() {
  exits 0 eval --model words --data ids.jsonl && says '1 row read' &&
    says 'has 3 tokens' && prints ' 1 row, 2 label tokens' &&
    exits 0 train --model words --data ids.jsonl --max-steps 1 --output one_s \
      --warmup-steps 1 && says 'batch: 1 row a step' &&
    says 'warm-up 1 step, laid out for 1 step' &&
    exits 0 inspect --model one_s/state-00000001 && prints ' 1 update, ' &&
    exits 0 inspect --model one_s/model && prints ': 1 layer, ' &&
    prints ' in 1 file' || return 1
  cat ids.jsonl ids.jsonl >two.jsonl && exits 0 eval --model words \
    --data two.jsonl && says '2 rows read' && prints ' 2 rows, '
}
case_ 'counts of one are singular' counts
eval_notes() {
  exits 0 eval --model words --data ids.jsonl && ! says ZeRO &&
    exits 0 eval --model words --data ids.jsonl --num-devices 2 && ! says ZeRO
}
case_ 'eval tells nothing of stages' eval_notes

# The limit of POSIX ulimit is in blocks of 512 bytes.
size_limit() {
  (ulimit -f 100 && "$program" train --model words --data ids.jsonl \
    --max-steps 1 --output limit >out 2>err)
  code=$?
  test "$code" -eq 1 && says 'model.safetensors' &&
    test "$(ls -A limit)" = metrics.jsonl || return 1
  (ulimit -f 100 && "$program" init --model words --output limited >out 2>err)
  code=$?
  test "$code" -eq 1 && says 'model.safetensors' &&
    test -z "$(ls -Ad limited .limited* 2>/dev/null)"
}
case_ 'a limit on file sizes is a failed write and leaves nothing' size_limit

# Folders that are missing are made, and gone again if nothing came of it.
parents() {
  exits 0 train --model words --data ids.jsonl --max-steps 1 \
    --output new/a/b/ && test -s new/a/b/model/model.safetensors &&
    exits 0 init --model words --output new/c//d/e --dtype fp32 &&
    test -s new/c/d/e/model.safetensors &&
    exits 0 export --model words --output new/f/g --layout glm &&
    test -s new/f/g/model.safetensors
}
no_parents() {
  mkdir own || return 1
  for to in gone/a/b own/a own; do
    exits 3 train --model words --data ids.jsonl --host-memory 1M \
      --output $to && says 'MiB are allowed or free' &&
      exits 3 eval --model words --data rows.jsonl --generate \
        --host-memory 1M --output $to || return 1
  done
  (ulimit -f 100 && "$program" init --model words --output gone/c/d >out 2>err)
  test $? -eq 1 || return 1
  (ulimit -f 100 && "$program" export --model words --output own/c/d \
    >out 2>err)
  test $? -eq 1 && test ! -e gone && test -d own && test -z "$(ls -A own)" &&
    exits 2 train --model words --data ids.jsonl --output ids.jsonl/a/b &&
    says -- '--output ids.jsonl/a/b: cannot make folder ids.jsonl: Not a' &&
    exits 2 init --model words --output ids.jsonl/a &&
    exits 0 init --model words --dry-run --output gone/a && test ! -e gone
}
case_ '--output makes the folders that it is in' parents
case_ 'a run that wrote nothing leaves no folder that it made' no_parents

# A metrics file whose reader leaves: the model is written all the same.
broken_metrics() {
  mkfifo pipe || return 1
  head -c 2000 pipe >/dev/null &
  exits 1 train --model words --data ids.jsonl --max-steps 40 \
    --output piped --metrics pipe && says 'goes on without metrics' &&
    says 'zero-offload: cannot write to pipe' &&
    test -s piped/model/model.safetensors
}
case_ 'a metrics line that cannot be written does not lose the model' \
  broken_metrics
# A name of a shape where a folder is wanted: what is missing, and how to get it.
shape_alone() {
  get='hf download THUDM/chatglm2-6b --local-dir chatglm2-6b'
  exits 2 train --model chatglm2-6b --data no-such-file --output shape &&
    says 'stands for a shape alone; train needs weights and tokenizer' &&
    says "$get" && ! test -e shape &&
    exits 2 eval --model chatglm2-6b --data ids.jsonl && says "$get" &&
    exits 2 generate --model chatglm2-6b --prompt a && says "$get" &&
    exits 2 export --model chatglm2-6b --output shape && says "$get" &&
    exits 2 inspect --model chatglm2-6b && says "$get" &&
    exits 2 inspect --model THUDM/chatglm2-6b && says "$get" &&
    exits 2 train --model THUDM/chatglm2-6b --data no --output shape &&
    says "$get" && says 'nothing is downloaded' &&
    exits 2 init --model chatglm2-6b --output shape --set num_layers=x &&
    exits 2 plan --model chatglm2-6b --data text.jsonl --profile 4090 &&
    says 'without a tokenizer; want --tokenizer DIR' && says "$get"
}
printf '{"content": "a", "summary": "b"}\n' >text.jsonl
case_ 'the name of a shape has no weights and no tokenizer, and says so' \
  shape_alone
# A trace is opened before anything is trained, and never over another file.
traces() {
  exits 0 train --model words --data ids.jsonl --max-steps 6 --output traced \
    --trace t.json && grep -q '"name":"step 6"' t.json &&
    ! grep -q '"name":"step 4"' t.json && grep -q '"device 0 computation"' t.json &&
    grep -q '"compute_seconds":0' traced/metrics.jsonl &&
    ! grep -q '"h2d_seconds":null' traced/metrics.jsonl || return 1
  exits 0 train --model words --data ids.jsonl --max-steps 2 --output short \
    --trace t.json && grep -q '"name":"step 2"' t.json &&
    ! grep -q '"name":"step 6"' t.json
}
no_traces() {
  exits 2 train --model words --data ids.jsonl --max-steps 6 --output untold \
    --trace u.json --trace-steps 5-7 &&
    says '--trace-steps 5-7: the run has 6 steps' && ! test -e u.json &&
    exits 2 train --model words --data ids.jsonl --max-steps 6 \
      --output untold --trace nowhere/t.json && says 'nowhere/t.json' &&
    exits 2 train --model words --data ids.jsonl --max-steps 6 \
      --output untold --trace ids.jsonl && says 'is no trace' &&
    ! test -e untold/model
}
# As metrics: a file that cannot be written does not lose the model.
full_trace() {
  exits 1 train --model words --data ids.jsonl --max-steps 2 --output full \
    --trace /dev/full && says 'goes on without the trace' &&
    test -s full/model/model.safetensors
}
case_ 'train --trace writes the steps asked for, or the last' traces
case_ 'train --trace refuses steps and files that are none' no_traces
if test -w /dev/full; then
  case_ 'a trace that cannot be written does not lose the model' full_trace
else
  skip 'a trace that cannot be written does not lose the model' 'no /dev/full'
fi
# Ids are rows without a tokenizer; words are not.
ids_alone() {
  cp -r words speechless && rm speechless/tokenizer.model &&
    exits 0 train --model speechless --data ids.jsonl --max-steps 1 \
      --output silent && says 'only rows of input_ids' &&
    echo '{"content": "a", "summary": "b"}' >spoken.jsonl &&
    exits 2 train --model speechless --data spoken.jsonl --output spoken &&
    says 'need a tokenizer'
}
case_ 'rows of input_ids need no tokenizer' ids_alone

# ---- the shared fixtures ----
text() {
  exits 0 inspect --model "$shared/chatglm2-6b" --json \
    --text "$(printf '\344\275\240\345\245\275')" &&
    test "$(cat out)" = '{"input_ids":[64790,64792,36474,54591]}' &&
    exits 0 inspect --model "$shared/chatglm2-6b" --text 'a b' &&
    prints '[gMASK]'
}
rows() {
  exits 0 inspect --model "$shared/chatglm2-6b" --rows 3 --json \
    --data "$shared/advertisegen/dev.json" && test "$(wc -l <out)" -eq 3 &&
    grep -q '^{"input_ids": *\[64790, *64792, ' out && prints '"labels"' &&
    prints '"text"' &&
    exits 0 inspect --model "$shared/chatglm2-6b" --rows 3 \
      --data "$shared/advertisegen/dev.json" && test "$(wc -l <out)" -eq 4
}
bad_rows() {
  exits 4 inspect --model "$shared/chatglm2-6b" --json \
    --data "$shared/fixtures/d_bad_line.jsonl" && says 'd_bad_line.jsonl:' &&
    exits 0 inspect --model "$shared/chatglm2-6b" --json --skip-bad-rows \
      --data "$shared/fixtures/d_bad_line.jsonl" && says 'd_bad_line.jsonl:' &&
    exits 2 inspect --model "$shared/chatglm2-6b" --data no-such-rows
}
# Each damaged file: exit 4, and the message names it.
weights() {
  for fixture in st_gap.safetensors st_dup_key.safetensors \
    st_len_2e63.safetensors st_neg.safetensors st_tail.safetensors \
    st_float.safetensors bin_evil.bin bin_html.bin bin_lfs.bin bin_slip.bin \
    bin_trunc.bin bin_deep.bin idx_escape idx_subset; do
    exits 4 inspect --model "$shared/fixtures/$fixture" && says "$fixture" ||
      return 1
  done
}
not_finite() {
  exits 0 inspect --model "$shared/fixtures/st_nan.safetensors" &&
    says 'warning: ' && says 'not finite'
}
no_tokenizer() {
  exits 2 inspect --model "$shared/fixtures/tiny" --text x &&
    says 'tokenizer.model' &&
    exits 0 inspect --model "$shared/fixtures/tiny" && prints 'F16'
}
for what in 'text:inspect --text prints the ids of a text' \
  'rows:inspect --data prints rows as training sees them' \
  'bad_rows:a bad row is exit 4, with file and line' \
  'weights:damaged weights are exit 4, and named' \
  'not_finite:weights that are not finite are named' \
  'no_tokenizer:a model without a tokenizer can still be listed'; do
  if test -d "$shared/fixtures"; then
    case_ "${what#*:}" "${what%%:*}"
  else
    skip "${what#*:}" 'no fixtures in ZERO_OFFLOAD_SHARED'
  fi
done

echo "1..$number"
test "$failures" -eq 0
