#!/bin/sh
# Trains the demo's tokenizer on the first 360 of its adverts, with the settings of
# ChatGLM2's: BPE, identity normalisation, a dummy prefix, bytes for what is
# unknown, digits apart, blanks kept, and the same ids (unk 0, bos 1, eos 2).
# Needs spm_train (Debian and Ubuntu: sentencepiece).  The result is committed.
set -eu
cd "$(dirname "$0")"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# One text a line: each content, each summary, and the words of the chat form.
{
  head -n 360 adverts.jsonl |
    sed 's/^{"content": "\(.*\)", "summary": "\(.*\)"}$/\1\n\2/'
  for _ in 1 2 3 4; do
    printf '[Round 1]\n问：\n答：\n'
  done
} >"$scratch/adverts.txt"
cd "$scratch"
spm_train --input=adverts.txt --model_prefix=tokenizer --model_type=bpe \
  --vocab_size=1500 --character_coverage=1.0 --num_threads=1 \
  --normalization_rule_name=identity --add_dummy_prefix=true \
  --remove_extra_whitespaces=false --byte_fallback=true --split_digits=true \
  --unk_id=0 --bos_id=1 --eos_id=2 --pad_id=-1 --minloglevel=1
cd - >/dev/null
cp "$scratch/tokenizer.model" model/tokenizer.model
