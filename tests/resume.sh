#!/bin/sh
# TAP: train as its user stops and continues it: signals, exit codes, states
# that are damaged or of something else, what is kept and what is told.
. "${SRCDIR:?}/tests/cases.sh"
demo=${SRCDIR:?}/bench/demo/model

says() { grep -qF -- "$1" err; }
prints() { grep -qF -- "$1" out; }
exits() {
  want=$1
  shift
  "$program" "$@" >out 2>err
  code=$?
  test "$code" -eq "$want"
}
# trains CODE OUTPUT OPTION...: a run of STEPS steps.
steps=12
trains() {
  want=$1 to=$2
  shift 2
  exits "$want" train --model words --data ids.jsonl --bf16 \
    --max-steps $steps --output "$to" "$@"
}
# damage STATE: a byte of its first shard.
damage() {
  printf 'x' | dd of="$1/shard-00001.state" bs=1 seek=2000 conv=notrunc \
    2>/dev/null
}
no_leftovers() {
  test -z "$(find "$1" -name '.*' ! -path "$1")"
}

prepare() {
  mkdir small && cp "$demo"/* small || return 1
  exits 0 init --model small --output words --dtype fp32 \
    --set num_layers=1 --set hidden_size=64 --set num_attention_heads=4 \
    --set kv_channels=16 --set ffn_hidden_size=96 || return 1
  for i in 1 2 3 4 5 6 7; do
    echo "{\"input_ids\":[1,2,3,$i,5,6,7]}"
  done >ids.jsonl
  trains 0 all && test -s all/model/model.safetensors
}
case_ 'a run of its own, to compare with' prepare

# ---- what is kept ----
keeps() {
  trains 0 kept --save-steps 3 && prints 'saved kept/state-00000003 after' &&
    test "$(ls -d kept/state-*)" = 'kept/state-00000009
kept/state-00000012' && test "$(readlink kept/latest)" = state-00000012 &&
    cmp kept/model/model.safetensors all/model/model.safetensors &&
    no_leftovers kept || return 1
  trains 0 one --save-steps 1 --save-total-limit 1 &&
    test "$(ls -d one/state-*)" = one/state-00000012 || return 1
  trains 0 every --save-steps 4 --save-total-limit 0 &&
    test "$(ls -d every/state-* | wc -l)" -eq 3 || return 1
  trains 0 only --save-steps 4 --save-only-model && test -s only/model/config.json &&
    ! ls -d only/state-* 2>/dev/null
}
reads() {
  exits 0 inspect --model kept/latest && prints 'behind step 12' &&
    prints 'every checksum is right' &&
    test "$(grep -cE '^(master|exp_avg|exp_avg_sq) .* 1 x ' out)" -eq 30 &&
    exits 0 inspect --model kept/latest --tensors && ! prints ' 1 x ' &&
    test "$(grep -cE '^(master|exp_avg|exp_avg_sq) .*  shard-' out)" -eq 30 &&
    exits 0 eval --model kept/latest --data ids.jsonl && prints 'loss' &&
    test "$(wc -l <kept/latest/README)" -eq 2 &&
    exits 0 inspect --model kept/latest --json &&
    test "$(grep -c '"state":"exp_avg_sq"' out)" -gt 5 || return 1
  # As the model of another run, whose files are the model's alone.
  trains 0 tuned --model kept/latest && ! prints resumed &&
    test "$(ls tuned/model)" = "$(ls all/model)"
}
case_ 'states are saved, and the newest kept' keeps
case_ 'a state is read as a model is' reads

# A save that is due is due once, also while its copy is taken.
keeps_time() {
  trains 0 time --save-minutes 0.005 --max-steps 2000 --max-grad-norm 1 \
    --logging-steps 100000 &&
    grep -o '"kind":"save","step":[0-9]*' time/metrics.jsonl |
    awk -F: '{ if (NR > 1 && $3 - last < 3 && $3 < 2000) exit 1; last = $3 }
        END { if (NR < 2) exit 1 }'
}
case_ 'states are saved by time, each once' keeps_time
# A model that was saved on the way is that of a run which ends there.  Killed,
# since any other end would save one more.
keeps_models() {
  exits 0 train --model words --data ids.jsonl --bf16 --max-steps 500 \
    --output there --lr-scheduler-type constant --max-grad-norm 1 || return 1
  "$program" train --model words --data ids.jsonl --bf16 --max-steps 100000 \
    --output way --save-steps 500 --save-only-model --logging-steps 100000 \
    --lr-scheduler-type constant --max-grad-norm 1 >out 2>err &
  child=$!
  tries=0
  until test -e way/model/model.safetensors; do
    kill -0 $child 2>/dev/null && test $tries -lt 600 || return 1
    tries=$((tries + 1))
    sleep 0.05
  done
  kill -s KILL $child
  wait $child 2>/dev/null
  test "$(grep -c '"kind":"step"' way/metrics.jsonl)" -lt 1000 &&
    cmp way/model/model.safetensors there/model/model.safetensors
}
case_ 'so are models, which are those behind their step' keeps_models

# ---- which is continued ----
refuses() {
  trains 2 kept && says 'holds states of an earlier run' && says '--resume' &&
    says 'step 12' && test -d kept/state-00000009 || return 1
  # Before a row is read, which there are none of.
  mkdir -p old/model && trains 2 kept --data nowhere.jsonl &&
    says 'holds states of an earlier run' &&
    trains 2 old --data nowhere.jsonl &&
    says 'holds the model of an earlier run' &&
    trains 2 old --data nowhere.jsonl --overwrite && says nowhere.jsonl
}
nothing() {
  trains 0 fresh --resume && ! prints resumed &&
    says 'note: no state in fresh: starting at step 1' &&
    cmp fresh/model/model.safetensors all/model/model.safetensors
}
# From the state behind step 9, as if the end had been lost.
continues() {
  cp -r kept cut && rm -r cut/state-00000012 cut/model &&
    trains 0 cut --resume=auto && prints 'resumed behind step 9 of 12' &&
    ! says 'no state in' &&
    cmp cut/model/model.safetensors all/model/model.safetensors &&
    test "$(grep -c '"kind":"step"' cut/metrics.jsonl)" -eq 12 &&
    test "$(grep -o '"kind":"step","step":[0-9]*' cut/metrics.jsonl |
      sort -u | wc -l)" -eq 12 && no_leftovers cut
}
named() {
  trains 0 other --resume kept/state-00000009 2>/dev/null
  test "$code" -eq 2 || return 1 # it wants --resume=DIR
  trains 0 other --resume=kept/state-00000009 && prints 'behind step 9' &&
    ! prints 'no step is left' &&
    cmp other/model/model.safetensors all/model/model.safetensors &&
    trains 2 every --resume=kept/state-00000009 && says 'another run' &&
    trains 2 other2 --resume=words && says 'no training state' &&
    trains 2 every --resume=kept/state-00000099 &&
    says 'cannot open state kept/state-00000099' && ! says '--overwrite' &&
    trains 2 every --resume=every/state-00000099 &&
    says 'cannot open state every/state-00000099' &&
    trains 2 every --resume=every && says '--resume alone takes the newest'
}
finished() {
  trains 0 kept --resume && prints 'resumed behind step 12 of 12' &&
    prints 'no step is left to train; the model is written as it is' &&
    cmp kept/model/model.safetensors all/model/model.safetensors || return 1
  cp -r kept less && trains 0 less --resume --max-steps 10 &&
    prints 'resumed behind step 12 of 10' && prints 'no step is left' &&
    cmp less/model/model.safetensors all/model/model.safetensors || return 1
  # Killed before it removed what it need not keep.
  cp -r every done && trains 0 done --resume &&
    test "$(ls -d done/state-*)" = 'done/state-00000008
done/state-00000012'
}
anew() {
  cp -r kept again && trains 0 again --overwrite --save-minutes 0 &&
    ! prints resumed && test "$(ls -d again/state-*)" = again/state-00000012
}
# The files beside the weights come from --model, at every save.
keeps_source() {
  cp -r kept own && exits 2 train --model own/latest --data ids.jsonl --bf16 \
    --max-steps 2 --output own --overwrite && says 'own/latest is a state of' &&
    exits 2 train --model own/state-00000009 --data ids.jsonl --bf16 \
      --max-steps 13 --output own --resume && says 'or its latest' &&
    test -d own/state-00000009 && test -d own/state-00000012 &&
    exits 0 train --model own/latest --data ids.jsonl --bf16 --max-steps 14 \
      --save-steps 1 --output own --resume && test -e own/latest/config.json
}
case_ 'a run does not remove the state that it is made from' keeps_source
case_ 'an output with states needs --resume or --overwrite' refuses
case_ 'with nothing to resume a run starts' nothing
case_ '--resume continues to the bit, and mends the metrics' continues
case_ '--resume=DIR takes that state' named
case_ 'a run that was done is done again at once' finished
case_ '--overwrite starts anew' anew

# ---- damage ----
falls_back() {
  cp -r kept hurt && damage hurt/state-00000012 && trains 0 hurt --resume &&
    says 'hurt/state-00000012/shard-00001.state is damaged' &&
    says 'going on from the state before it, behind step 9' &&
    prints 'resumed behind step 9' &&
    cmp hurt/model/model.safetensors all/model/model.safetensors &&
    exits 0 inspect --model hurt/state-00000012
}
offers() {
  cp -r kept named && damage named/state-00000012 &&
    trains 4 named --resume=named/state-00000012 && says 'is damaged' &&
    says 'the state before it is --resume=named/state-00000009' &&
    exits 4 inspect --model named/state-00000012 && says 'is damaged'
}
none_left() {
  damage named/state-00000009 && trains 4 named --resume &&
    says 'no state is whole' && rm named/state-00000012/manifest.json &&
    trains 4 named --resume && test -d named/state-00000009
}
case_ 'a damaged newest state is named, and the one before taken' falls_back
case_ 'a damaged state that was named is an error, which offers another' offers
case_ 'without a whole state nothing starts anew by itself' none_left

# ---- changes ----
other_data() {
  cp ids.jsonl spare.jsonl && cp -r kept changed &&
    rm -r changed/state-00000012 || return 1
  echo '{"input_ids":[1,2]}' >>ids.jsonl
  trains 2 changed --resume && says 'its rows are not those of ids.jsonl'
  result=$?
  cp spare.jsonl ids.jsonl
  return $result
}
other_model() {
  trains 2 changed --resume --model-family chatglm3 && says 'another model' &&
    trains 2 changed --resume --per-device-train-batch-size 2 &&
    says 'train_batch_size' && trains 2 changed --resume --seed 7 &&
    says '--seed 42' && ! test -e changed/state-00000012
}
told() {
  trains 0 changed --resume --learning-rate 1e-3 --save-steps 7 \
    --num-devices 1 --threads 1 &&
    says 'learning_rate: 0.001 now; 5e-05 when the state was saved' &&
    says 'save_steps: 7 now; 3 when' &&
    ! cmp -s changed/model/model.safetensors all/model/model.safetensors
}
case_ 'other data are refused' other_data
case_ 'another model, and steps of other rows, are refused' other_model
case_ 'other settings are told' told

# ---- failures ----
# What is in the way of the first save cannot be removed.
fails_late() {
  mkdir -p late && : >late/state-00000004 &&
    trains 1 late --save-steps 4 && says 'no state was saved' &&
    says 'ends with exit code 1' && test -d late/state-00000008 &&
    test -d late/state-00000012 && test -s late/model/config.json
}
case_ 'a failed save is told, tried again, and fails the run' fails_late
# A folder of the user's bears the name of the link, to the end, or until the
# first save is in the metrics, of which a pipe holds fewer than 100 lines.
no_link() {
  mkdir -p bound/latest/mine && trains 1 bound --save-steps 4 &&
    says 'bound/state-00000004 is saved, but latest does not lead to it' &&
    says 'zero-offload: cannot rename bound/.latest.partial' &&
    ! says 'no state was saved' && test -d bound/latest/mine &&
    test "$(grep -c '"kind":"save"' bound/metrics.jsonl)" -eq 3 &&
    test "$(ls -d bound/state-*)" = 'bound/state-00000004
bound/state-00000008
bound/state-00000012' && test -s bound/model/config.json &&
    no_leftovers bound || return 1
  trains 1 bound --resume --max-steps 13 && prints 'behind step 12' || return 1
  mkdir -p cured/latest && mkfifo save || return 1
  while IFS= read -r line; do
    case $line in *'"kind":"save"'*) rmdir cured/latest 2>/dev/null ;; esac
  done <save &
  trains 0 cured --save-steps 100 --max-steps 300 --metrics save \
    --logging-steps 100000 &&
    says 'cured/state-00000100 is saved, but latest' &&
    test "$(readlink cured/latest)" = state-00000300
}
case_ 'a state whose link is not made is saved, and that is told' no_link
# The user's folder is in a state that is saved again.
replaces_half() {
  cp -r kept half && mkdir half/state-00000012/mine &&
    trains 0 half --resume=half/state-00000009 &&
    says 'half/state-00000012 is saved, but the state that it replaces is' &&
    test -d half/.state-00000012.replaced/mine &&
    exits 0 inspect --model half/state-00000012 && trains 0 half --resume &&
    prints 'behind step 12' && test -d half/.state-00000012.replaced/mine
}
case_ 'so is one that replaces what cannot be removed' replaces_half
# States that the user has put elsewhere, with a link in their place.
links() {
  mkdir away && cp -r kept linked && mv linked/state-000000* away &&
    ln -s ../away/state-00000009 ../away/state-00000012 linked &&
    trains 2 linked && says 'holds states of an earlier run' &&
    trains 0 linked --resume && prints 'behind step 12 of 12' || return 1
  cp -r linked again_linked && steps=13 &&
    trains 0 linked --resume --save-total-limit 1 &&
    test "$(ls -d linked/state-*)" = linked/state-00000013 &&
    trains 0 again_linked --overwrite &&
    test "$(ls -d again_linked/state-*)" = again_linked/state-00000013
  result=$?
  steps=12
  rm -r linked/state-00000013 linked/model
  ln -s ../away/nowhere linked/state-00000013 &&
    ln -s ../away/state-00000009 linked && trains 0 linked --resume &&
    says 'linked/state-00000013' && prints 'behind step 9 of 12' &&
    exits 0 inspect --model away/state-00000009 &&
    exits 0 inspect --model away/state-00000012 && test "$result" -eq 0
}
case_ 'a link to a state is one, and is all that is removed of it' links
full_disk() {
  mkdir disk && unshare -rm sh -c 'mount -t tmpfs -o size=1m none disk &&
    "$@"' sh "$program" train --model words --data ids.jsonl --bf16 \
    --max-steps 2 --output disk >out 2>err
  code=$?
  test "$code" -eq 1 && says 'training state takes up to' && ! prints 'step 1'
}
# Once a state is there, packed, since there is no memory for a copy of it,
# something else takes the disk, but for less than one more takes.  The run is at most a pipe's length of metrics ahead of that.
cat >filling.sh <<'EOF'
mount -t tmpfs -o size=80m none disk || exit 99
"$@" &
while IFS= read -r line; do
  case $line in
  *'"kind":"save"'*)
    test -e disk/ballast || head -c \
      $(($(df -kP disk | awk 'END { print $4 }') * 1024 - 1100000)) \
      /dev/zero >disk/ballast
    ;;
  esac
done <line
wait $!
code=$?
ls -A disk >disk.list
exit $code
EOF
filling_disk() {
  mkdir -p disk && mkfifo line && unshare -rm sh filling.sh "$program" train \
    --model words --data ids.jsonl --bf16 --max-steps 600 --save-steps 100 \
    --host-memory 12M --output disk --metrics line --logging-steps 100000 >out 2>err
  code=$?
  test "$code" -eq 1 && prints 'saved disk/state-00000100 after' &&
    says 'no state was saved: disk: a state takes about' && says 'are free' &&
    ! prints 'state-00000500' && grep -q '^state-00000100$' disk.list &&
    ! grep -q '^\.' disk.list
}
if unshare -rm true 2>/dev/null; then
  case_ 'room for a state is looked at before step 1' full_disk
  case_ 'a state that the disk has no room for is not begun' filling_disk
else
  skip 'room for a state is looked at before step 1' 'no unshare'
  skip 'a state that the disk has no room for is not begun' 'no unshare'
fi

# At this rate the weights overflow, and every scale.
diverges() {
  exits 0 train --model words --data ids.jsonl --fp16 --learning-rate 100 \
    --max-steps 60 --save-only-model --output wild &&
    says ' of 60 steps were skipped, since gradients were not finite'
}
case_ 'that most steps were skipped is told' diverges

# ---- signals ----
steps=2000
# A shell has its background jobs ignore SIGINT, nohup all of them SIGHUP, and
# so then does the program.
started='env --default-signal=INT,HUP'
$started true 2>/dev/null || started=
count_steps() { cat long/metrics.jsonl 2>/dev/null | grep -c '"kind":"step"'; }
# Starts a run in the background, and waits until it is on its way.
begin() {
  seen=$(count_steps)
  $started "$program" train --model words --data ids.jsonl --bf16 \
    --max-steps $steps --output long --logging-steps 100000 "$@" >out 2>err &
  child=$!
  tries=0
  while test "$(count_steps)" -lt $((seen + 10)); do
    kill -0 $child 2>/dev/null && test $tries -lt 600 || return 1
    tries=$((tries + 1))
    sleep 0.05
  done
}
# stops SIGNAL CODE
stops() {
  kill -s "$1" $child
  wait $child
  code=$?
  test "$code" -eq "$2" && prints "stopped by SIG$1 after step" &&
    test -e long/latest/manifest.json && ! test -e long/model &&
    exits 0 inspect --model long/latest && no_leftovers long
}
terms() { begin && stops TERM 143; }
hups() { begin --resume && stops HUP 129; }
ints() {
  begin --resume && stops INT 130 || return 1
  begin --resume && kill -s INT $child || return 1
  tries=0
  until says 'SIGINT: no further step is started; saving then takes about'; do
    test $tries -lt 100 || return 1
    tries=$((tries + 1))
    sleep 0.05
  done
  wait $child
  code=$?
  test "$code" -eq 130
}
locked() {
  begin --resume || return 1
  "$program" train --model words --data ids.jsonl --bf16 --max-steps $steps \
    --output long --resume >out2 2>err2
  code=$?
  stops TERM 143 && test "$code" -eq 0 && grep -q 'another run' err2
}
# Saves and goes on; then to the end.
usr1s() {
  begin --resume && rm -f long/latest && kill -s USR1 $child || return 1
  tries=0
  until test -e long/latest; do
    test $tries -lt 200 || return 1
    tries=$((tries + 1))
    sleep 0.05
  done
  wait $child
  code=$?
  test "$code" -eq 0 && prints 'saved long/state-' &&
    trains 0 straight --logging-steps 100000 &&
    cmp long/model/model.safetensors straight/model/model.safetensors &&
    test "$(count_steps)" -eq $steps
}
# Not at its first step, which nobody comes to who waits for a reader of the
# metrics: the plan is printed, and behind it the folder is there.
prepares() {
  mkfifo pipe 2>/dev/null
  : >out
  $started "$program" train --model words --data ids.jsonl --bf16 \
    --max-steps 12 --output early/in --metrics pipe "$@" >out 2>err &
  child=$!
  tries=0
  until test -s out; do
    kill -0 $child 2>/dev/null && test $tries -lt 600 || return 1
    tries=$((tries + 1))
    sleep 0.05
  done
}
# leaves SIGNAL CODE
leaves() {
  kill -s "$1" $child
  wait $child
  code=$?
  test "$code" -eq "$2" &&
    says "zero-offload: stopped by SIG$1 before its first step"
}
early() {
  prepares && test -d early/in && leaves TERM 1 && ! test -e early &&
    prepares --resume && leaves HUP 1 && ! test -e early && mkdir early &&
    prepares && leaves TERM 1 && test -d early && test -z "$(ls -A early)" &&
    mkdir early/in && prepares && leaves TERM 1 && test -d early/in &&
    test -z "$(ls -A early/in)" && prepares --resume && kill -s USR1 $child ||
    return 1
  cat pipe >pipe.jsonl
  wait $child
  code=$?
  test "$code" -eq 0 && prints 'saved early/in/state-00000001' &&
    prepares --resume && leaves TERM 143 && test -s early/in/metrics.jsonl
}
# A folder of the user's in an old state: it stays, and nobody is held up.
foreign() {
  was=$steps steps=12
  trains 0 wf --save-steps 4 && mkdir -p wf/state-00000008/mine &&
    steps=13 && trains 0 wf --resume --save-total-limit 1 &&
    says 'an old state is left' && trains 0 wf --resume &&
    test -d wf/.state-00000008.removed/mine
  result=$?
  steps=$was
  return $result
}
case_ 'a folder of the user in an old state holds up no run' foreign
# While rows are read: many of them, and the signal as soon as it is caught.
reading() {
  awk 'NR == 1 { for (i = 0; i < 200000; i++) print }' ids.jsonl >many.jsonl
  "$program" train --model words --data many.jsonl --backend host \
    --max-steps 12 --output early/in "$@" >out 2>err &
  child=$!
  until test $((0x$(sed -n 's/^SigCgt:[^0-9a-f]*//p' /proc/$child/status) &
    0x4000)) -ne 0; do
    kill -0 $child 2>/dev/null || return 1
  done
}
early_rows() { reading --resume && leaves TERM 143; }
case_ 'before step 1 a signal ends a run, and SIGUSR1 is kept' early
case_ 'and 143 tells that there is a state, while rows are read too' early_rows
case_ 'SIGTERM saves and stops: 143' terms
case_ 'SIGHUP saves and stops: 129' hups
if test -n "$started"; then
  case_ 'SIGINT says how long it takes, saves and stops: 130' ints
else
  skip 'SIGINT says how long it takes, saves and stops: 130' \
    'no env --default-signal'
fi
case_ 'an output takes one run at a time' locked
case_ 'SIGUSR1 saves and goes on; the end is that of a run never stopped' usr1s

echo "1..$number"
test $failures -eq 0
