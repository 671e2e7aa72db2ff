#!/bin/sh
# TAP: plan says how long a step takes: by rates that are named, or measured
# once and kept in the machine profile; and a run tells it in a line.  It says
# where states live, and refuses homes that there are not.
. "${SRCDIR:?}/tests/cases.sh"
cp "$SRCDIR/tests/gpu_model.json" "$work/config.json" || exit 99
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
profile=cache/zero-offload/machine.json

# plans CODE ARGUMENT...
plans() {
  want=$1
  shift
  "$program" plan --backend host --model config.json --max-length 64 "$@" \
    >out 2>err
  test $? -eq "$want"
}

named() {
  plans 0 --profile h200 && test ! -e "$profile" &&
    grep -q 'step of the longest batches: [0-9.e-]* s, [0-9]* tokens/s' out &&
    grep -q 'data-sheet rates of "h200"' out &&
    grep -q 'bound by .*: [0-9]* % of the time' out &&
    grep -q 'computation  *[0-9]* %' out
}
# A slower machine takes longer, and the figures of --json say so.
json() {
  plans 0 --profile h200 --json && h200=$(step_seconds) &&
    plans 0 --profile 3090 --json && ours=$(step_seconds) &&
    awk -v a="$h200" -v b="$ours" 'BEGIN { exit !(a > 0 && b > 2 * a) }'
}
step_seconds() {
  sed -n 's/.*"time":{"step_seconds":\([0-9.e-]*\),.*/\1/p' out
}
unknown() { plans 2 --profile h201 && grep -q -- '--profile h201' err; }
no_rates() {
  echo '{"format":1,"kind":"machine"}' >none.json
  plans 2 --profile none.json && grep -q 'holds no rates' err &&
    echo '{"format":1,"kind":"machine","rates":[3]}' >none.json &&
    plans 2 --profile none.json && grep -q 'none.json:1:' err
}
measured() {
  plans 0 && test -s "$profile" && grep -q 'rates measured on' out &&
    grep -q 'rough' out && grep -q '"backend":"host"' "$profile" &&
    ! grep -qF "$work" "$profile"
}
kept() {
  cp "$profile" first.json
  plans 0 --json && cmp -s "$profile" first.json && first=$(step_seconds) &&
    plans 0 --json && test "$(step_seconds)" = "$first" && test -n "$first" &&
    plans 0 --profile first.json --json && test "$(step_seconds)" = "$first"
}
# Another number of threads is another machine.
threads() {
  plans 0 --threads 1 && ! cmp -s "$profile" first.json
}
damaged() {
  echo '{' >"$profile"
  plans 0 && grep -q 'rates measured on' out && grep -q '^{"format":1' "$profile"
}
# A model that does not fit takes no time.
unfit() {
  plans 3 --profile h200 --gpu-memory 10M && ! grep -q 'tokens/s' out &&
    grep -q ': GPU 0 needs .* (--gpu-memory)' err
}
# A slow bus is what bounds a step whose states cross it; its rates are kept
# apart from those of the plain machine, which the cache gives back.
offloaded() {
  code=$1
  shift
  plans "$code" --bf16 --threads 2 --host-memory 1G --config offload.json "$@"
}
bus() {
  cat >offload.json <<'END'
{"bf16": {"enabled": true}, "zero_offload": {"fill": false},
 "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"},
                       "offload_optimizer": {"device": "cpu"}}}
END
  bound='bound by copies \(to\|from\) the device'
  offloaded 0 && ! grep -q "$bound" out && ! grep -q 'held up' out &&
    cp "$profile" plain.json &&
    offloaded 0 --copy-rate 1MB && grep -q "$bound" out &&
    grep -q 'copies held up to 0.001 GB/s' out &&
    grep -q '"copies_paced_bytes_per_second":1000000,' "$profile" &&
    cp "$profile" both.json && offloaded 0 --json &&
    ! grep -q '"copies_paced_bytes_per_second":1000000,' out &&
    cmp -s "$profile" both.json && offloaded 0 --copy-rate 1MB &&
    cmp -s "$profile" both.json && grep -q "$bound" out
}
lesser() {
  offloaded 0 --simd base && grep -q 'AdamW by base' out &&
    grep -q '"simd":"base"' "$profile" && ! cmp -s "$profile" both.json &&
    offloaded 0 && ! grep -q 'AdamW by' out
}
# Rates of the plain machine, named, do not stand in for another one's.
other_rates() {
  plans 2 --profile plain.json --copy-rate 1MB &&
    grep -q 'of this --simd and --copy-rate' err
}
wrong() {
  plans 2 --copy-rate 1X && grep -q -- '--copy-rate 1X: want a size' err &&
    plans 2 --simd mmx && grep -q 'want one of: best base avx2 avx512' err
}
with_doctor() {
  rates=$(sed 's/.*"rates"://' "$profile")
  "$program" doctor >out 2>err && grep -qF "\"rates\":$rates" "$profile" &&
    grep -q '"copy_bytes_per_second":[1-9]' "$profile" &&
    plans 0 --threads 2 && grep -q '"copy_bytes_per_second":[1-9]' "$profile"
}
with_homes() { # with_homes CODE OPTIMIZER PARAM OPTION...
  code=$1 optimizer=$2 param=$3
  shift 3
  cat >homes.json <<END
{"zero_optimization": {"stage": 3,
  "offload_optimizer": {"device": "$optimizer", "nvme_path": "disk"},
  "offload_param": {"device": "$param", "nvme_path": "disk"}},
 "bf16": {"enabled": true}}
END
  plans "$code" --profile h200 --config homes.json "$@"
}
homes() {
  with_homes 0 cpu cpu && grep -q '^placement: .* of 5 units\|^placement: all 5' \
    out && grep -q 'asked for: everything on the host' out &&
    grep -q 'of host memory are page-locked while it runs' out &&
    with_homes 0 cpu none && grep -q 'masters and moments on the host' out &&
    with_homes 0 none cpu && grep -q 'a bf16 weight is half of its' err &&
    grep -q '^placement: all 5 units resident$' out &&
    with_homes 0 cpu cpu --json &&
    grep -q '"placement":{"units":5,"resident_units":[0-9]' out &&
    grep -q '"name":"pageable"' out
}
no_homes() {
  with_homes 0 cpu none --num-devices 2 &&
    with_homes 0 none nvme && grep -q 'a bf16 weight is half of its' err &&
    with_homes 0 none none --num-devices 2
}
# States on NVMe have a section, with what wears it; as little as will do is
# there, and what does not fit there either is told.
on_nvme() {
  with_homes 0 nvme nvme --set zero_offload.fill=false &&
    grep -q 'masters and moments of 5 on NVMe, weights of 4 on NVMe$' out &&
    grep -q 'asked for: everything on NVMe' out &&
    grep -q '^  NVMe: ' out && grep -q 'pieces from and to NVMe' out &&
    grep -q 'a step reads [0-9.]* MB there and writes [0-9.]* MB$' out &&
    grep -q '^    [0-9.]* [GT]B a day at [0-9.e-]* s a step$' out &&
    grep -q 'NVMe  *[0-9]* %' out &&
    with_homes 0 nvme nvme && ! grep -q '^  NVMe: ' out &&
    with_homes 0 nvme nvme --set zero_offload.fill=false --json &&
    grep -q '"optimizer_on_nvme_units":5,"weights_on_nvme_units":4' out &&
    grep -q '"nvme_write_bytes_per_step":[1-9]' out &&
    plans 0 --profile h200 --nvme disk:1G --set zero_offload.fill=false &&
    grep -q '^  NVMe: .* of 1.00 GiB' out &&
    plans 3 --profile h200 --nvme disk:1M --set zero_offload.fill=false &&
    grep -q 'on NVMe, and .* are allowed or free (--nvme DIR:SIZE)' err
}
# What would help where a budget is too small for any run, on several devices
# too.
hints() {
  plans 3 --profile h200 --num-devices 2 --gpu-memory 1M \
    --gradient-accumulation-steps 4 &&
    grep -q 'it does not fit; what would:' out &&
    grep -q '  no single change of the configuration' out
}
# What fits with all states on the device, a micro batch at a time, as such a
# run does it.
hints_resident() {
  echo '{"bf16": {"enabled": true}}' >stage0.json
  plans 0 --profile h200 --config stage0.json --json \
    --gradient-accumulation-steps 600 --set zero_offload.moment_dtype=bf16 &&
    need=$(sed 's/"budget_bytes".*//; s/.*"total_bytes": *//; s/,.*//' out) &&
    plans 3 --profile h200 --config stage0.json --gpu-memory "$need" \
      --gradient-accumulation-steps 600 &&
    grep -q '  zero_offload.moment_dtype "bf16"' out
}
case_ 'a shipped profile is named' named
case_ 'what would help is said for several devices' hints
case_ 'what would help where nothing leaves the device' hints_resident
case_ 'where states live is said' homes
case_ 'homes that there are not have no effect, and a line' no_homes
case_ 'states on NVMe have a section, with what wears it' on_nvme
case_ 'a slower machine takes longer' json
case_ 'a profile that is not there' unknown
case_ 'a profile without rates' no_rates
case_ 'this machine is measured' measured
case_ 'and its rates are kept' kept
case_ 'for as many threads' threads
case_ 'a damaged profile is made anew' damaged
case_ 'a slow bus is named as the bound, and its rates kept apart' bus
case_ 'lesser instructions have rates of their own' lesser
case_ 'other rates are refused' other_rates
case_ 'a pace and instructions that are none' wrong
case_ 'nothing is predicted of what does not fit' unfit
case_ 'doctor and plan keep what the other wrote' with_doctor
# What a run is said to need is what it then does with: GPU memory filled.
needs() {
  plans 3 --profile 4090 --bf16 --gpu-memory 110M --host-memory 1M &&
    need=$(sed -n 's/.*the run needs \([0-9.]*\) \([KMG]\)iB of host.*/\1\2/p' err) &&
    test -n "$need" || return 1
  more=$(echo "$need" | awk '{ n = $1 + 0; print n * 1.02 substr($1, length($1)) }')
  less=$(echo "$need" | awk '{ n = $1 + 0; print n * 0.98 substr($1, length($1)) }')
  plans 0 --profile 4090 --bf16 --gpu-memory 110M --host-memory "$more" &&
    ! grep -q '^placement: 0 of' out &&
    plans 3 --profile 4090 --bf16 --gpu-memory 110M --host-memory "$less"
}
case_ 'the need that is told is enough, and no less is' needs
echo "1..$number"
test "$failures" -eq 0
