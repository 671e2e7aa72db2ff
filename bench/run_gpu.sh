#!/usr/bin/env bash
# Builds, tests and measures on a machine with a GPU, a stage at a time.
#
#   bench/run_gpu.sh [STAGE...]      all of them, in this order, without one
#
#   build      configures and compiles for this GPU
#   check-gpu  make check-gpu
#   parity     losses and gradients against transformers' GlmForCausalLM
#   attention  each operation at the model's shapes; PyTorch's attention
#   step       ChatGLM2-6B, resident, 8 x 512 tokens, in bf16 and fp16;
#              PyTorch FSDP2 beside it
#   offload    ChatGLM2-6B in 24 GB of GPU memory: 4 x 129 and 8 x 512 tokens
#   devices    ChatGLM2-6B on one and on two GPUs: stages 0 to 3, offload
#   tables     bench stages on one GPU and all, and bench frontier of
#              ChatGLM2-6B at 8 x 512 tokens; the report of both.  Rows that
#              OUT/tables.jsonl has are not run again
#   nvme       the disk under WORK through the store, fio beside it; then
#              ChatGLM2-6B with 24 GB of GPU memory, 48 GB of the host's
#   save       ChatGLM2-6B in 24 GB saves its state while it trains, and goes
#              on from it with everything resident
#   stress     collectives between GPUs for 8 minutes, compute beside them
#   sanitizer  compute-sanitizer over a small model, on DEVICES devices, which
#              share a GPU where there are fewer
#
# Every stage leaves OUT/STAGE.log; the table at the end is OUT/summary.txt.
# The exit code is 1 when a stage failed.  Variables:
#   OUT             where logs go                        [gpu-results]
#   BUILD           the build folder                     [build-gpu]
#   WORK            for weights and gradients, 35 GB; states, 140 GB
#                                                        [BUILD/work]
#   CONFIGURE_ARGS  of configure    [--with-cuda-arch= what the GPU is]
#   PYTHON          one with torch, transformers, safetensors  [python3]
#   STAGE_SECONDS   limit of a stage                     [560]
#   TOOLS           of the sanitizer  [initcheck racecheck memcheck]
#   DEVICES         of the sanitizer  [1]
set -u
source=$(cd "$(dirname "$0")/.." && pwd)
OUT=${OUT:-$PWD/gpu-results}
BUILD=${BUILD:-$PWD/build-gpu}
mkdir -p "$OUT" "$BUILD" || exit 1
OUT=$(cd "$OUT" && pwd)
BUILD=$(cd "$BUILD" && pwd)
WORK=${WORK:-$BUILD/work}
PYTHON=${PYTHON:-python3}
STAGE_SECONDS=${STAGE_SECONDS:-560}
export OUT BUILD WORK PYTHON STAGE_SECONDS
export PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1
all_stages='build check-gpu parity attention step offload devices tables nvme save stress sanitizer'
skipped=77 # the exit code of a stage that this machine cannot do

say() { printf '\n== %s\n' "$*"; }

# Says what runs, runs it, and says how long it took.
timed() {
  local begin=$SECONDS code
  printf '\n$ %s\n' "$*"
  "$@"
  code=$?
  printf '(%d s, exit code %d)\n' $((SECONDS - begin)) $code
  return $code
}

stage_build() {
  local capability
  test -x "$source/configure" || (cd "$source" && autoreconf -fi) || return 1
  cd "$BUILD" || return 1
  if ! test -f Makefile; then
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader |
      head -n 1 | tr -d .)
    # shellcheck disable=SC2086
    timed "$source/configure" \
      ${CONFIGURE_ARGS:---with-cuda-arch=$capability} || return 1
  fi
  timed make -j "$(nproc)" || return 1
  timed make -j "$(nproc)" bench/bench_kernels bench/parity/gradients
}

stage_check_gpu() {
  cd "$BUILD" || return 1
  timed make -j "$(nproc)" check-gpu || {
    grep -H -B 6 '^not ok' tests/*.log
    return 1
  }
}

stage_parity() {
  local parity=$source/bench/parity ours=$BUILD/bench/parity/gradients
  local status=0 count
  mkdir -p "$WORK" && cd "$WORK" || return 1
  timed "$PYTHON" "$parity/make_weights.py" . || return 1
  count=$(wc -l <rows.jsonl)

  timed "$ours" cuda fp32 fp32 rows.jsonl "$count" ours.safetensors &&
    timed "$PYTHON" "$parity/grads_hf.py" fp32 rows.jsonl hf.safetensors &&
    timed "$PYTHON" "$parity/compare.py" fp32 ours.safetensors \
      hf.safetensors || status=1
  rm -rf fp32 ours.safetensors hf.safetensors

  timed "$ours" cuda bf16 bf16 rows.jsonl "$count" ours.safetensors &&
    timed "$PYTHON" "$parity/grads_hf.py" bf16 rows.jsonl hf.safetensors \
      --dtype bf16 &&
    timed "$PYTHON" "$parity/grads_hf.py" bf16-wide rows.jsonl \
      wide.safetensors &&
    timed "$PYTHON" "$parity/compare.py" bf16 ours.safetensors \
      hf.safetensors wide.safetensors || status=1
  test -n "${KEEP_WORK-}" ||
    rm -rf bf16 bf16-wide ours.safetensors hf.safetensors wide.safetensors
  return $status
}

stage_attention() {
  rm -f "$OUT/kernels.jsonl"
  timed "$BUILD/bench/bench_kernels" --json "$OUT/kernels.jsonl" || return 1
  timed "$PYTHON" "$source/bench/peers/attention_torch.py" --all
}

# The most that the driver says is in use, GPU by GPU, while a command runs.
with_memory() {
  local samples=$BUILD/memory-samples sampler code
  nvidia-smi --query-gpu=index,memory.used --format=csv,noheader,nounits \
    >"$samples" || return 1
  nvidia-smi --query-gpu=index,memory.used --format=csv,noheader,nounits \
    -lms 250 >>"$samples" &
  sampler=$!
  timed "$@"
  code=$?
  kill $sampler
  wait $sampler 2>/dev/null
  awk -F ', ' '!($1 in before) { before[$1] = $2; gpus++ }
    $2 > most[$1] { most[$1] = $2 }
    END { for (i = 0; i < gpus; i++) if (most[i] - before[i] > 100)
      printf "GPU memory by the driver: GPU %d: %d MiB before, %d MiB at " \
        "most, %d MiB taken\n", i, before[i], most[i], most[i] - before[i]
    }' "$samples"
  return $code
}

stage_step() {
  local program=$BUILD/zero-offload status=0 type
  local model='--model chatglm2-6b --backend cuda --num-devices 1'
  local rows='--per-device-train-batch-size 8 --max-length 512'
  local sets='--set zero_optimization.stage=0 --set zero_offload.recompute=none'
  # shellcheck disable=SC2086
  for type in bf16 fp16; do
    timed "$program" plan $model $rows $sets --$type || status=1
    with_memory "$program" bench step $model $rows $sets --$type || status=1
  done
  timed "$PYTHON" "$source/bench/peers/fsdp2_resident.py" || status=1
  timed "$PYTHON" "$source/bench/peers/fsdp2_resident.py" --keep-gathered ||
    status=1
  return $status
}

# W0, W0h, W1, W1c, W2: RUNS names some.
stage_offload() {
  local program=$BUILD/zero-offload status=0 run
  local model='--model chatglm2-6b --backend cuda --num-devices 1'
  local memory="--gpu-memory ${GPU_MEMORY:-24G}"
  for run in ${RUNS:-W0 W0h W1 W1c W2}; do
    case $run in
      W0) set -- --bf16 --per-device-train-batch-size 4 --max-length 129 ;;
      W0h) set -- --fp16 --per-device-train-batch-size 4 --max-length 129 ;;
      W1) set -- --bf16 --per-device-train-batch-size 8 --max-length 512 ;;
      W1c) set -- --bf16 --per-device-train-batch-size 8 --max-length 512 \
        --max-grad-norm 1 ;;
      W2) set -- --bf16 --per-device-train-batch-size 8 --max-length 512 \
        --gradient-accumulation-steps 4 --max-grad-norm 1 ;;
    esac
    echo "$run:"
    # shellcheck disable=SC2086
    with_memory "$program" bench step $model $memory "$@" || status=1
  done
  return $status
}

# name DEVICES STAGE OPTION...: 8 x 512 tokens a device.
devices_run() {
  local name=$1 devices=$2 stage=$3
  shift 3
  set -- --model chatglm2-6b --backend cuda --num-devices "$devices" --bf16 \
    --per-device-train-batch-size 8 --max-length 512 \
    --set zero_optimization.stage="$stage" "$@"
  echo "$name:"
  "$BUILD/zero-offload" plan "$@" >"$OUT/plan-$name.txt" 2>&1
  with_memory "$BUILD/zero-offload" bench step "$@"
}

# One device beside two; fill off where the stage's own need is the question.
stage_devices() {
  local status=0 cpu='zero_optimization.offload_optimizer.device=cpu'
  local param='zero_optimization.offload_param.device=cpu'
  local none='--set zero_offload.recompute=none'
  local literal='--set zero_offload.fill=false'
  test "$(nvidia-smi -L | wc -l)" -ge 2 || {
    echo 'fewer than two GPUs'
    return $skipped
  }
  # shellcheck disable=SC2086
  {
    devices_run one-resident 1 0 $none || status=1
    for stage in 0 1 2 3; do
      devices_run stage$stage 2 $stage $none || status=1
    done
    for stage in 1 2; do
      devices_run stage$stage-optimizer 2 $stage $none $literal --set $cpu ||
        status=1
    done
    devices_run stage3-optimizer 2 3 $none $literal --set $cpu \
      --set ${param%=cpu}=none || status=1
    devices_run stage3-both 2 3 $none $literal --set $cpu --set $param ||
      status=1
    devices_run one-24G 1 3 --gpu-memory 24G --set $cpu --set $param ||
      status=1
    devices_run stage3-both-24G 2 3 --gpu-memory 24G --set $cpu --set $param ||
      status=1
  }
  return $status
}

stage_tables() {
  local program=$BUILD/zero-offload status=0 gpus devices
  local model='--model chatglm2-6b --backend cuda --bf16'
  local rows='--per-device-train-batch-size 8 --max-length 512'
  local results=$OUT/tables.jsonl
  gpus=$(nvidia-smi -L | wc -l)
  # shellcheck disable=SC2086
  {
    for devices in $(printf '1\n%d\n' "$gpus" | sort -u); do
      timed "$program" bench stages $model $rows --num-devices "$devices" \
        --results "$results" || status=1
    done
    timed "$program" bench frontier $model $rows --num-devices 1 \
      --results "$results" || status=1
    timed "$program" report "$results" --output "$OUT/tables.html" || status=1
  }
  return $status
}

stage_nvme() {
  local program=$BUILD/zero-offload status=0 disk=$WORK/nvme
  local model='--model chatglm2-6b --backend cuda --num-devices 1 --bf16'
  local rows='--per-device-train-batch-size 8 --max-length 512'
  mkdir -p "$disk" || return 1
  timed "$program" bench nvme --nvme "$disk:${NVME_BENCH_BYTES:-8G}" || status=1
  # shellcheck disable=SC2086
  for how in '' '--max-grad-norm 1' '--gradient-accumulation-steps 8'; do
    set -- $model $rows $how --gpu-memory 24G --host-memory 48G \
      --nvme "$disk:${NVME_BYTES:-50G}"
    timed "$program" plan "$@" || status=1
    with_memory "$program" bench step "$@" || status=1
  done
  return $status
}

# What the disk gives when four read or write 2 GiB each.
dd_rate() {
  local how=$1 folder=$2 begin i
  begin=$(date +%s%N)
  for i in 1 2 3 4; do
    case $how in
      write)
        dd if="$BUILD/noise" of="$folder/dd-$i" bs=4M count=512 oflag=direct \
          conv=fsync status=none &
        ;;
      read) dd if="$folder/dd-$i" of=/dev/null bs=4M iflag=direct status=none & ;;
    esac
  done
  wait
  awk -v how="$how" -v ns=$(($(date +%s%N) - begin)) 'BEGIN {
    printf "the disk alone, four files of 2 GiB past the page cache: %s " \
      "%.2f GB/s\n", how, 4 * 2147483648 / ns }'
}

# How long steps are, how long training waited, beside what the save says.
# SAVE_LAYERS of the model, within SAVE_GPU_MEMORY: host memory must hold the
# states twice, the disk two saves.
stage_save() {
  local program=$BUILD/zero-offload status=0 run=$WORK/save
  local rows=$BUILD/save-rows.jsonl model=$BUILD/save-model.json
  mkdir -p "$WORK" || return 1
  awk 'BEGIN { for (row = 0; row < 64; row++) {
    printf "{\"input_ids\": ["
    for (i = 0; i < 512; i++)
      printf "%s%d", i ? ", " : "", 100 + (row * 997 + i * 3331) % 60000
    print "]}" } }' >"$rows"
  sed -e "s/\"num_layers\": 3/\"num_layers\": ${SAVE_LAYERS:-28}/" \
    -e 's/"hidden_size": 512/"hidden_size": 4096/' \
    -e 's/"num_attention_heads": 4/"num_attention_heads": 32/' \
    -e 's/"ffn_hidden_size": 1376/"ffn_hidden_size": 13696/' \
    -e 's/"padded_vocab_size": 2048/"padded_vocab_size": 65024/' \
    -e 's/"seq_length": 1024/"seq_length": 32768/' \
    "$source/tests/gpu_model.json" >"$model"
  set -- --model "$model" --data "$rows" --backend cuda --num-devices 1 \
    --bf16 --per-device-train-batch-size 8
  timed "$program" plan "$@" --gpu-memory "${SAVE_GPU_MEMORY:-24G}" || status=1
  set -- "$@" --random-weights --output "$run"
  timed "$program" train "$@" --gpu-memory "${SAVE_GPU_MEMORY:-24G}" \
    --save-steps 45 --max-steps 85 --save-total-limit 1 --overwrite || status=1
  # Steps 6 to 45 tell what one takes; what those behind take beyond it, until
  # the save has ended, is lost to it.
  awk 'function field(name) {
      match($0, "\"" name "\":[-+.0-9e]+")
      return substr($0, RSTART + length(name) + 3, RLENGTH) + 0
    }
    /"kind":"step"/ && field("step") > 5 && field("step") <= 45 {
      for (i = ++n; i > 1 && t[i - 1] > field("step_seconds"); i--)
        t[i] = t[i - 1]
      t[i] = field("step_seconds")
    }
    /"kind":"step"/ && field("step") > 45 {
      beside++; sum += field("step_seconds")
      if (field("step_seconds") > most) most = field("step_seconds")
    }
    /"kind":"save"/ {
      m = (t[int(n / 2)] + t[int(n / 2) + 1]) / 2
      printf "a step before the save: median %.3f s; %d steps beside it: " \
        "%.3f s beyond that in all, %.2f steps; longest %.3f s\n", m,
        beside, sum - m * beside, (sum - m * beside) / m, most
      exit
    }' "$run/metrics.jsonl"
  grep '"kind":"save"' "$run/metrics.jsonl"
  head -c 2G /dev/urandom >"$BUILD/noise"
  dd_rate write "$run"
  sync
  echo 3 >/proc/sys/vm/drop_caches 2>/dev/null
  timed "$program" train "$@" --set zero_optimization.stage=0 \
    --max-steps 88 --save-only-model --resume || status=1
  dd_rate read "$run"
  rm -rf "$run" "$BUILD/noise"
  return $status
}

stage_stress() {
  ZERO_OFFLOAD_GPU=1 ZERO_OFFLOAD_STRESS_SECONDS=${STRESS_SECONDS:-480} \
    timed "$BUILD/tests/test_comm_cuda"
}

name_of_type() {
  case $1 in
    '') echo --fp32 ;;
    *' '*) echo "${1%% *}, offloaded" ;;
    *) echo "$1" ;;
  esac
}

stage_sanitizer() {
  local sanitizer status=0 tool type code log=$BUILD/sanitizer-run
  local program=$BUILD/zero-offload rows=$BUILD/sanitizer-rows.jsonl gpus
  local zero=zero_optimization
  local offloads="--bf16 --set $zero.offload_optimizer.device=cpu
    --set $zero.offload_param.device=cpu --set zero_offload.fill=false"
  awk 'BEGIN { for (row = 0; row < 16; row++) {
    printf "{\"input_ids\": ["
    for (i = 0; i < 150; i++) printf "%s%d", i ? ", " : "", (row * 97 + i * 31) % 2048
    print "]}" } }' >"$rows"
  sanitizer=$(command -v compute-sanitizer ||
    echo "$(dirname "$(readlink -f "$(command -v nvcc ||
      echo /usr/local/cuda/bin/nvcc)")")/compute-sanitizer")
  test -x "$sanitizer" || {
    echo 'no compute-sanitizer here'
    return $skipped
  }
  # cuBLASLt's own kernels (nvjet) synchronise in ways that racecheck does not
  # know; they are NVIDIA's to check.  A filter by name makes the tool fail, so
  # hazards are told apart below.
  gpus=$(nvidia-smi -L | wc -l)
  if test "${DEVICES:-1}" -gt "$gpus"; then
    echo "$DEVICES devices share $gpus GPU(s)"
    export ZERO_OFFLOAD_DEVICES_PER_GPU=$(((DEVICES + gpus - 1) / gpus))
  fi
  for tool in ${TOOLS:-initcheck racecheck memcheck}; do
    for type in --bf16 --fp16 '' "$offloads"; do
      # shellcheck disable=SC2086
      timed timeout -k 5 240 "$sanitizer" --tool $tool --error-exitcode 9 \
        "$program" train --model "$source/tests/gpu_model.json" \
        --random-weights --data "$rows" --output "$BUILD/sanitizer-out" \
        --overwrite --backend cuda --num-devices "${DEVICES:-1}" \
        --per-device-train-batch-size 2 --max-steps 2 --max-grad-norm 1 \
        $type >"$log" 2>&1
      code=$?
      if test $tool = racecheck && test $code = 9 &&
        ! grep -E '(Error|Warning): Race' "$log" | grep -qv nvjet; then
        code=0 # all of them in cuBLASLt
      fi
      if grep -qi 'device not supported' "$log"; then
        cat "$log"
        echo 'compute-sanitizer refuses this machine'
        return $skipped
      fi
      if test $code = 0; then
        printf '%s %s: %s\n' $tool "$(name_of_type "$type")" \
          "$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -n 1)"
      else
        status=1
        printf '%s %s: exit code %d\n' $tool "$(name_of_type "$type")" $code
        head -n 60 "$log"
        tail -n 5 "$log"
      fi
    done
  done
  return $status
}

# A stage runs as this script once more, so that its time can be limited.
if test "${1-}" = --one; then
  case " $all_stages " in
    *" $2 "*) "stage_${2//-/_}"; exit $? ;;
  esac
  exit 2
fi

stages=${*:-$all_stages}
for stage in $stages; do
  case " $all_stages " in
    *" $stage "*) ;;
    *)
      echo "run_gpu.sh: no stage '$stage'; want some of: $all_stages" >&2
      exit 2
      ;;
  esac
done

failed=0
rows=
for stage in $stages; do
  say "$stage"
  begin=$SECONDS
  timeout -k 10 "$STAGE_SECONDS" bash "$source/bench/run_gpu.sh" --one \
    "$stage" 2>&1 | tee "$OUT/$stage.log"
  code=${PIPESTATUS[0]}
  case $code in
    0) result=ok ;;
    "$skipped") result=skipped ;;
    124 | 137) result="over $STAGE_SECONDS s" ;;
    *) result="FAILED ($code)" ;;
  esac
  test $code = 0 || test $code = $skipped || failed=1
  rows="$rows$(printf '%-10s  %5d s  %s' "$stage" $((SECONDS - begin)) \
    "$result")
"
  test "$stage" != build || test $code = 0 || break
done

# The lines of a stage's log that people look for first.
found() {
  local pattern
  case $1 in
    check-gpu) pattern='^# (TOTAL|PASS|FAIL|SKIP|ERROR):|^[0-9]+ passed' ;;
    parity) pattern='^FAIL|^worst|: loss |broken' ;;
    attention) pattern='^(copy|matmul) |^attention.* 8 +2048|^(FLASH|CUDNN).* 8 x +2048' ;;
    devices) pattern='^([a-z0-9A-Z-]+:$|step|placement|  [a-z0-9]+ +busy|host|GPU)' ;;
    nvme) pattern='^(write|read|mixed|step|placement|  [a-z0-9]+ +busy|GPU)|fio' ;;
    save) pattern='^(saved|steps|memory|resumed|\{"kind":"save)|saving a state|^step +(21|85|88)' ;;
    stress) pattern='^(ok|not ok|#)' ;;
    step) pattern='^(step|products|GPU memory|torch) ' ;;
    offload) pattern='^(W|step|placement|  [a-z0-9]+ +busy|host|simulated|GPU)' ;;
    sanitizer) pattern='^(memcheck|racecheck|initcheck) ' ;;
    *) return ;;
  esac
  grep -hE "$pattern" "$OUT/$1.log" 2>/dev/null
}
{
  say summary
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null
  git -C "$source" log -1 --format='commit %h' 2>/dev/null
  printf '%s\n' "$rows"
  for stage in $stages; do
    found "$stage"
  done
} | tee "$OUT/summary.txt"
exit $failed
