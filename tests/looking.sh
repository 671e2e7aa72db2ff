#!/bin/sh
# TAP: what a run leaves for people to look at, and the page that report makes
# of it: the JSON's tensorboard and csv_monitor sections, --watch, report.
. "${SRCDIR:?}/tests/cases.sh"
demo=${SRCDIR:?}/bench/demo/model

# exits CODE ARGUMENT...: leaves out and err.
exits() {
  want=$1
  shift
  "$program" "$@" >out 2>err
  test $? -eq "$want"
}
says() { grep -qF -- "$1" err; }

"$program" init --model "$demo" --tokenizer "$demo" --output tiny --seed 7 \
  --dtype fp32 --set num_layers=1 --set hidden_size=64 \
  --set num_attention_heads=2 --set ffn_hidden_size=64 \
  --set padded_vocab_size=1536 >/dev/null 2>err || {
  sed 's/^/# /' err
  echo 'Bail out! no model'
  exit 99
}
printf '{"input_ids":[1,2,3,4]}\n{"input_ids":[5,6,7]}\n' >ids.jsonl
train() { # EXIT CODE, OUTPUT, OPTION...
  code=$1
  to=$2
  shift 2
  exits "$code" train --model tiny --data ids.jsonl --backend host \
    --max-steps 3 --output "$to" "$@"
}
echo '{"train_batch_size": 2, "gradient_accumulation_steps": 2,
  "tensorboard": {"enabled": true, "job_name": "t"},
  "csv_monitor": {"enabled": true, "output_path": "sheets"},
  "wandb": {"enabled": true}}' >ds.json

# Over the rows of three steps of two; the losses are those of the metrics.
monitors() {
  train 0 run --config ds.json --eval-data ids.jsonl &&
    test -s "$(echo run/tensorboard/t/events.out.tfevents.*)" || return 1
  sheet=sheets/DeepSpeedJobName/Train_Samples_train_loss.csv
  test "$(tr -d '\r' <$sheet | cut -d, -f1 | tr '\n' ' ')" = 'step 2 4 6 ' &&
    sed -n '/"kind":"step"/s/.*"loss":\([^,]*\),.*/\1/p' run/metrics.jsonl \
      >losses &&
    tr -d '\r' <$sheet | sed -n '2,$s/.*,//p' | diff - losses >&2 &&
    test -s sheets/DeepSpeedJobName/Eval_Samples_loss.csv &&
    says 'wandb.enabled: nothing is sent' && ! says 'tensorboard.enabled'
}
case_ 'tensorboard and csv_monitor get their files' monitors

# Told before anything is trained; eval and a dry run write none.
no_monitors() {
  : >file &&
    train 2 refused --config ds.json --set csv_monitor.output_path=file/x &&
    says 'file' && ! grep -q '^step' out && ! test -e refused/metrics.jsonl &&
    train 0 dry --config ds.json --dry-run && ! test -e dry
}
case_ 'a folder that cannot be made is refused before the first step' \
  no_monitors

# What is refused leaves nothing and changes nothing: by memory, by a damaged
# state, by a file of the metrics that is none.
untouched() {
  train 3 small/in --config ds.json --host-memory 1M --trace small.json \
    --set csv_monitor.output_path=small.csv && ! test -e small &&
    ! test -e small.csv && ! test -e small.json || return 1
  cp -r run was && cp -r sheets was.sheets && rm -r was/state-* was/latest &&
    mkdir was/state-00000001 && : >was/state-00000001/manifest.json &&
    echo '{"displayTimeUnit":"ms"}' >was.json && cp -r was is &&
    cp -r was.sheets is.sheets && cp was.json is.json || return 1
  train 4 is --config ds.json --resume --trace is.json \
    --set csv_monitor.output_path=is.sheets && diff -r was is &&
    diff -r was.sheets is.sheets && cmp was.json is.json || return 1
  train 2 none/in --config ds.json --metrics ids.jsonl --trace none.json &&
    says 'ids.jsonl is there and is no metrics file' && ! test -e none &&
    ! test -e none.json
}
case_ 'a run that is refused leaves nothing and changes nothing' untouched
# FIFOs that nobody reads, where files are to be.
fifos() {
  mkdir -p held && mkfifo held/metrics.jsonl &&
    train 2 held --config ds.json && says 'held/metrics.jsonl is a FIFO' &&
    test "$(ls held)" = metrics.jsonl && rm held/metrics.jsonl &&
    mkdir -p pipes/DeepSpeedJobName &&
    mkfifo pipes/DeepSpeedJobName/Train_Samples_lr.csv &&
    train 2 held --config ds.json --set csv_monitor.output_path=pipes &&
    says 'pipes/DeepSpeedJobName/Train_Samples_lr.csv is a FIFO' &&
    test -z "$(ls held)" && ! grep -q '^memory made ready' out
}
case_ 'a FIFO in the place of a file is refused, and not waited for' fifos

watching() {
  train 0 watched --watch && test "$(grep -c '^step' out)" -eq 3 &&
    test "$(grep -c '^  device .* host .* computation .* processor ' out)" -eq 3 &&
    ! grep -q "$(printf '\033')" out
}
case_ '--watch without a terminal adds a plain line a step' watching

page() {
  train 0 traced --trace trace.json &&
    exits 0 report run/metrics.jsonl traced/metrics.jsonl trace.json \
      --output page.html && grep -q 'the report is in page.html' out &&
    grep -q 'Loss over the steps' page.html &&
    grep -q 'device 0 memory by purpose' page.html &&
    grep -q '>AdamW<' page.html && grep -q 'B: traced/metrics.jsonl' page.html &&
    ! grep -qi '<script' page.html && ! grep -q GPU page.html
}
case_ 'report draws what train wrote' page

no_page() {
  exits 2 report --output x.html && says '0 files' &&
    exits 2 report nowhere.jsonl --output x.html && says nowhere.jsonl &&
    exits 2 report ds.json --output x.html && says 'ds.json' &&
    exits 2 report run/metrics.jsonl --output ds.json && says 'no report' &&
    sed '2s/"loss":/"loss"/' run/metrics.jsonl >bad.jsonl &&
    exits 4 report run/metrics.jsonl bad.jsonl --output x.html &&
    says 'bad.jsonl:2:' && test "$(wc -l <err)" -eq 1 && ! test -e x.html &&
    test -z "$(ls x.html.* 2>/dev/null)" && grep -q csv_monitor ds.json
}
case_ 'what is no such file is refused, and nothing is left' no_page

echo "1..$number"
test $failures -eq 0
