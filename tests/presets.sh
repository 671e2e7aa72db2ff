#!/bin/sh
# TAP: each preset fits the machine that it is for, as its own "_plan" says:
# ChatGLM2-6B is planned with it, which needs no files and no GPU.
program=$BUILDDIR/zero-offload
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
XDG_CACHE_HOME=$scratch
export XDG_CACHE_HOME
test -x "$program" || { echo "Bail out! no $program"; exit 99; }
status=0
number=0
set -- "$SRCDIR"/config/presets/*.json
echo "1..$(($# + 2))"

for preset in "$@"; do
  number=$((number + 1))
  sentence="${preset##*/} fits the machine that it is for"
  plan=$(sed -n 's/^  "_plan": "\(.*\)",$/\1/p' "$preset")
  # shellcheck disable=SC2086
  if test -n "$plan" &&
    "$program" plan --config "$preset" --strict $plan --json \
      >"$scratch/out" 2>"$scratch/err" &&
    grep -q '"time":{"step_seconds":[0-9]' "$scratch/out"; then
    sed -n 's/.*"time":{"step_seconds":\([0-9.]\{1,5\}\).*/# \1 s a step/p' \
      "$scratch/out"
    echo "ok $number - $sentence"
  else
    sed 's/^/# /' "$scratch/err"
    echo "not ok $number - $sentence"
    status=1
  fi
done

# Half of the host's memory is not enough for those that fill it.
number=$((number + 1))
sentence='a preset on too small a machine is exit 3, and what would help is said'
"$program" plan --config "$SRCDIR/config/presets/24g-host128.json" \
  --model chatglm2-6b --profile 4090 --gpu-memory 23G --host-memory 32G \
  >"$scratch/out" 2>"$scratch/err"
if test $? = 3 && grep -q 'it does not fit; what would' "$scratch/out"; then
  echo "ok $number - $sentence"
else
  sed 's/^/# /' "$scratch/out"
  echo "not ok $number - $sentence"
  status=1
fi

# On another machine the one that it is for is named, and the one planned for;
# with budgets for both memories there is nothing to say.
number=$((number + 1))
sentence='plan says which machine a preset was made for, and its own'
preset=$SRCDIR/config/presets/24g-host128.json
plans() {
  "$program" plan --config "$preset" --model chatglm2-6b --profile 4090 "$@" \
    --json >"$scratch/out" 2>"$scratch/err"
}
meant='json was made for the machine of "plan --model chatglm2-6b '
here='"; this plan is for a host with a 4090, with 23.50 GiB a device and '
if plans && grep -q "$meant.* --gpu-memory 23G --host-memory 118G$here" \
  "$scratch/err" && grep -q "${here}host memory without a limit$" \
  "$scratch/err" &&
  plans --host-memory 100G &&
  grep -q 'with 23.50 GiB a device and 100.00 GiB of host memory$' \
    "$scratch/err" &&
  plans --gpu-memory 23G --host-memory 118G &&
  ! grep -q 'was made for' "$scratch/err"; then
  echo "ok $number - $sentence"
else
  sed 's/^/# /' "$scratch/err"
  echo "not ok $number - $sentence"
  status=1
fi

exit $status
