#!/bin/sh
# The demo: a small model of ChatGLM2's architecture, from random weights to
# answers, on adverts that come with the source (bench/demo/README.md).
# On a GPU if there is one; else it takes some 40 s of processor time with
# AVX-512, and so under a minute on two cores.
#
# Usage: bench/demo.sh --program PATH --output DIR [--epochs N]
#   --program PATH   the zero-offload to run
#   --output DIR     made anew; holds the models, about 7 MB
#   --epochs N       passes over the 1,440 adverts (default: 8)
set -eu

fail() {
  printf 'demo: %s\n' "$*" >&2
  exit 1
}
program='' output='' epochs=8
while test $# -gt 0; do
  test $# -gt 1 || fail "$1: want a value"
  case $1 in
    --program) program=$2 ;;
    --output) output=$2 ;;
    --epochs) epochs=$2 ;;
    *) fail "$1: no such option; the usage is on top of bench/demo.sh" ;;
  esac
  shift 2
done
test -n "$program" || fail 'want --program PATH'
test -n "$output" || fail 'want --output DIR'
test -x "$program" || fail "$program: no such program; build it first"
data=$(cd "$(dirname "$0")/demo" && pwd)
prompt='类型#裙*裙型#百褶裙*版型#收腰*材质#棉*颜色#红色*图案#格子'

step() { printf '\n== %s\n' "$*"; }
# Prints a command, as one could type it, and runs it.
run() {
  printf '$'
  for word; do
    case $word in
      *[!A-Za-z0-9_./=,-]*) printf " '%s'" "$word" ;;
      *) printf ' %s' "$word" ;;
    esac
  done
  printf '\n'
  "$@"
}
# The loss of each step, in order, out of the metrics of the run, which have all
# digits: three are what a reader compares.
losses() {
  sed -n '/"kind": *"step"/s/.*"loss": *\([-+.0-9eE]*\).*/\1/p' \
    "$output/run/metrics.jsonl" | LC_ALL=C awk '{ printf "%.3f\n", $1 }'
}

began=$(date +%s)
mkdir -p "$output"
rm -rf "$output/untrained" "$output/run"

step '1 of 3: a model with random weights'
run "$program" init --model "$data/model" --output "$output/untrained" \
  --seed 7 --dtype fp32

step "2 of 3: training on 1,440 adverts, $epochs times over"
run "$program" train --model "$output/untrained" --data "$data/adverts.jsonl" \
  --output "$output/run" --num-train-epochs "$epochs" \
  --per-device-train-batch-size 12 --learning-rate 5e-3 \
  --lr-scheduler-type cosine --warmup-steps 10 --max-grad-norm 1 \
  --logging-steps 40 --save-only-model

step '3 of 3: asking the trained model for an advert of attributes new to it'
run "$program" generate --model "$output/run/model" --prompt "$prompt"

first=$(losses | head -n 1)
last=$(losses | tail -n 1)
cat <<END

== done in $(($(date +%s) - began)) seconds
The loss fell from $first to $last.
The model lies in      $output/run/model
Every step is in       $output/run/metrics.jsonl

Next:
  ask it something     $program generate --model $output/run/model --prompt '...'
  train ChatGLM2-6B    $program train --model DIR --data FILE --output DIR --bf16
                       see "ChatGLM2-6B on one 24 GB card" in README.md
END
