#!/bin/sh
# TAP: exports as other programs load them.  ZERO_OFFLOAD_PYTHON names a Python
# with torch, transformers and safetensors; without it, or without the shared
# folder, all is skipped.  parity.py says what is compared.
vectors=${ZERO_OFFLOAD_SHARED-}/vectors/tiny_fp32
python=${ZERO_OFFLOAD_PYTHON-}
skip() {
  echo "1..0 # SKIP $1"
  exit 0
}
test -n "$python" || skip 'ZERO_OFFLOAD_PYTHON is not set'
test -r "$vectors/tiny_model.safetensors" || skip 'no vectors'
"$python" -c 'import torch, transformers, safetensors' 2>/dev/null ||
  skip "$python lacks torch, transformers or safetensors"
(unset MAKEFLAGS MFLAGS
  "${MAKE:-make}" -C "${BUILDDIR:-$PWD}" tests/print_logits) >/dev/null ||
  exit 99
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
mkdir "$work/model" || exit 99
cp "$vectors/tiny_config.json" "$work/model/config.json"
cp "$vectors/tiny_model.safetensors" "$work/model/model.safetensors"
HF_HUB_OFFLINE=1 "$python" "${SRCDIR:?}/tests/parity.py" "$PWD" "$work" \
  "$vectors"
