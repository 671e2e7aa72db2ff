#!/bin/sh
# TAP: a run that is killed at random moments of loading, training, saving and
# ending continues from its newest state to the same bits; whatever bears the
# name of a state is whole, and nothing else is left.  20 kills; 200 with
# ZERO_OFFLOAD_LONG.
program=$PWD/zero-offload
demo=${SRCDIR:?}/bench/demo/model
kills=20
test -z "${ZERO_OFFLOAD_LONG-}" || kills=200
LC_ALL=C
export LC_ALL
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
test -x "$program" || { echo "Bail out! no $program"; exit 99; }
cd "$work" || exit 99

options='--model words --data ids.jsonl --bf16 --max-steps 240
  --logging-steps 100000 --save-steps 4'
fail() {
  echo "# $1"
  sed 's/^/# out: /' out | tail -10
  sed 's/^/# err: /' err | tail -10
  result='not ok'
}
# Every state is whole.
check_states() {
  for state in out_dir/state-*; do
    test -d "$state" || continue
    "$program" inspect --model "$state" >out 2>err ||
      fail "kill $kill: $state is not whole"
  done
}
# The run came to its end: the model is that of a run never killed.
check_end() {
  cmp -s out_dir/model/model.safetensors straight/model/model.safetensors ||
    fail "kill $kill: the model has other bits"
  test -z "$(find out_dir -name '.*' ! -path out_dir)" ||
    fail "kill $kill: leftovers: $(ls -A out_dir)"
  test "$(ls -d out_dir/state-* | wc -l)" -eq 2 ||
    fail "kill $kill: states left: $(ls out_dir)"
  rm -rf out_dir
  ends=$((ends + 1))
}

echo 1..1
mkdir small && cp "$demo"/* small || exit 99
"$program" init --model small --output words --dtype fp32 \
  --set num_layers=1 --set hidden_size=64 --set num_attention_heads=4 \
  --set kv_channels=16 --set ffn_hidden_size=96 >out 2>err || exit 99
for i in 1 2 3 4 5 6 7; do
  echo "{\"input_ids\":[1,2,3,$i,5,6,7]}"
done >ids.jsonl
begin=$(date +%s%N)
"$program" train $options --output straight >out 2>err || fail 'the run that is not killed'
span=$((($(date +%s%N) - begin) / 1000000))

result=ok ends=0 kill=1 resumed=0
# Moments up to somewhat behind the end, the same in every run of this test.
for share in $(awk -v n=$kills 'BEGIN {
    srand(7); for (i = 0; i < n; i++) print int(rand() * 1000) }'); do
  "$program" train $options --output out_dir --resume >out 2>err &
  child=$!
  sleep "$(awk -v s="$share" -v t=$span 'BEGIN { print s * t / 900000 }')"
  kill -s KILL $child 2>/dev/null
  wait $child 2>/dev/null
  code=$?
  grep -q 'resumed behind' out && resumed=$((resumed + 1))
  case $code in
    137) check_states ;;
    0) check_end ;;
    *) fail "kill $kill: exit code $code" ;;
  esac
  test "$result" = ok || break
  kill=$((kill + 1))
done
if test "$result" = ok; then
  if "$program" train $options --output out_dir --resume >out 2>err; then
    check_end
  else
    fail 'the last run fails'
  fi
fi
echo "# $kills kills, $resumed runs resumed, $ends came to their end"
test "$resumed" -ge $((kills / 4)) || fail 'too few runs resumed'
echo "$result 1 - a run that is killed continues to the same bits"
test "$result" = ok
