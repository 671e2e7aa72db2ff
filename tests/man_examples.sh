#!/bin/sh
# TAP: the commands under EXAMPLES of every page, and those of the READMEs, run
# as they are printed.  A page has a folder of its own, where the names in its
# examples are small things: chatglm2-6b a model of two layers, AdvertiseGen a
# few rows, out a run over them.  plan runs where there is no such folder, and
# so plans the real model.  What this changes in a command, shrinks() says.
work_in=${BUILDDIR:?}/tests # a disk, for bench nvme
. "${SRCDIR:?}/tests/cases.sh"
grep -q '^#define ZO_SANITIZED' "$BUILDDIR/config.h" && {
  echo '1..0 # SKIP the same commands run without sanitizers'
  exit 0
}
XDG_CACHE_HOME=$work/cache
HOME=$work/home
CUDA_VISIBLE_DEVICES= # the examples are of GPUs; what they say is not
PATH=$work/bin:$PATH
export XDG_CACHE_HOME HOME CUDA_VISIBLE_DEVICES PATH
mkdir bin base plan
ln -s "$program" bin/zero-offload

# ---- the commands ----------------------------------------------------------

# Commands of a page, each on a line: behind "$ " between .Bd -literal and .Ed.
commands_of_page() {
  awk '/^\.Sh / { inside = /EXAMPLE/ }
    /^\.Ed/ { shown = 0 }
    inside && shown
    /^\.Bd -literal/ { shown = 1 }' "$1" | sed 's/\\e$/\\/' | joined |
    sed -n 's/^\$ //p'
}
# Those of a README: of its indented lines, the ones that begin as a command
# does; what else is indented is data, or what a command printed.
commands_of_readme() {
  sed -n 's/^    //p' "$1" | sed 's/  *# .*//' | joined | sed 's/^\$ //' |
    grep -E '^(zero-offload|\./bootstrap|\.\./configure|mkdir|make|sudo|hf)( |$)'
}
joined() { sed -e ':a' -e '/\\$/{N;s/\\\n */ /;ba' -e '}' | sed 's/   */ /g'; }
# configs_of_page PAGE TO: the configurations that it shows, blocks that begin
# with "{", into TO.1.json and so on.
configs_of_page() {
  awk -v to="$2" '/^\.Sh / { inside = /EXAMPLE/ }
    /^\.Ed/ { shown = 0 }
    inside && /^\{/ { shown = 1; count++ }
    inside && shown { print >(to "." count ".json") }' "$1"
}

# Disks, presets and the demo are elsewhere here, and 5,000 steps would take
# minutes.
shrinks() {
  sed "s|/mnt/nvme:100G|disk:16M|; s|/mnt/nvme|disk|
    s|/usr/local/share/zero-offload/presets|$SRCDIR/config/presets|
    s| config/presets| $SRCDIR/config/presets|
    s| bench/demo/model| $SRCDIR/bench/demo/model|
    s/--max_steps 5000/--max_steps 5/"
}

# ---- running ---------------------------------------------------------------

# run_in FOLDER COMMAND
run_in() {
  (cd "$1" && sh -c "$2") >out 2>err </dev/null
  code=$?
  test "$code" -eq 0
}
# A training that begins anew has no older output.
clears() {
  case $1 in
    *--resume*|*--overwrite*|*--dry-run*) ;;
    'zero-offload train '*)
      output=$(echo "$1" | sed 's/.*--output[_dir]* \([^ ]*\).*/\1/')
      rm -rf "${page:?}/${output:?}" ;;
  esac
}
# example COMMAND: in the folder of the page at hand.
example() {
  command=$(echo "$1" | shrinks)
  case $command in
    'zero-offload plan '*) run_in plan "$command" ;;
    *) clears "$command" && run_in "$page" "$command" ;;
  esac
}
# runs FILE-OF-COMMANDS
runs() {
  while read -r line; do
    case $line in
      'zero-offload bench nvme '*)
        if is_in_memory; then
          skip "$page: $line" 'the build is on a file system in memory'
          continue
        fi ;;
      zero-offload*|echo*) ;;
      *)
        skip "$page: $line" 'it builds, installs or downloads'
        continue ;;
    esac
    case_ "$page: $line" example "$line"
  done <"$1"
}
is_in_memory() {
  case $(stat -f -c %T base) in tmpfs|ramfs) return 0 ;; esac
  return 1
}

# ---- the small world -------------------------------------------------------

rows() { head -n "$1" "$SRCDIR/bench/demo/adverts.jsonl"; }
prepares() {
  mkdir -p disk AdvertiseGen a &&
    zero-offload init --model "$SRCDIR/bench/demo/model" --output chatglm2-6b \
      --set num_layers=2 --set hidden_size=64 --set ffn_hidden_size=96 \
      --set num_attention_heads=4 --set kv_channels=16 --dtype fp16 &&
    rows 6 >train.json && rows 3 >dev.json &&
    cp train.json dev.json AdvertiseGen &&
    printf 'one\ntwo\n' >questions.txt &&
    printf '{"train_micro_batch_size_per_gpu": "auto",
      "zero_allow_untested_optimizer": true,
      "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16},
      "zero_optimization": {"stage": 2, "overlap_comm": false}}' \
      >deepspeed.json &&
    zero-offload train --model chatglm2-6b --data train.json --output out \
      --bf16 --max-length 512 --max-steps 2 && cp out/metrics.jsonl a
}
prepared() { (cd base && prepares) >out 2>err </dev/null; }
case_ 'a small model, rows and a run for the examples' prepared

# ---- pages and READMEs -----------------------------------------------------

# A folder of its own, in which chatglm2-6b and the rest are.
begins() {
  page=$1
  cp -r base "$page"
}
for file in "$SRCDIR"/man/zero-offload*.[157]; do
  begins "$(basename "$file")"
  commands_of_page "$file" >commands
  configs_of_page "$file" "plan/$page"
  for config in "plan/$page".*.json; do
    test ! -f "$config" || case_ "$page: configuration ${config#plan/}" \
      run_in plan "zero-offload plan --model chatglm2-6b --profile h200 \
        --strict --config ${config#plan/}"
  done
  if test ! -f "plan/$page.1.json" && grep -q '^\.Sh .*EXAMPLE' "$file"; then
    case_ "$page: its examples are commands" test -s commands
  fi
  runs commands
done
# What init's is for, takes a tokenizer: where there is none, it is refused.
small() {
  test -s zero-offload-init.1/small/tokenizer.model &&
    command=$(commands_of_page "$SRCDIR/man/zero-offload-init.1") &&
    ! run_in plan "$command" && grep -q 'chatglm2-6b' err
}
case_ 'zero-offload-init.1: the model that it makes has a tokenizer' small

for file in README.md README.zh.md; do
  begins "$file"
  commands_of_readme "$SRCDIR/$file" >"shown.$file"
  # The commands are the same in both; each is run once.
  cat shown.* | sort | uniq -d >twice
  if test "$file" = README.md; then
    cp "shown.$file" commands
  else
    grep -vxFf twice "shown.$file" >commands
  fi
  case_ "$file: it shows commands" test "$(wc -l <"shown.$file")" -ge 15
  runs commands
done

# ---- what would be found ---------------------------------------------------

finds() {
  page=README.md
  for wrong in 'zero-offload train --model chatglm2-6b --dta train.json' \
    'zero-offload plan --model chatglm2-7b' \
    'zero-offload eval --model out/model --data nowhere.json'; do
    ! example "$wrong" || return 1
  done
}
case_ 'a command that the program refuses is found' finds
echo "1..$number"
exit $((failures > 0))
