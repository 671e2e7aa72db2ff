#!/bin/sh
# TAP: what configure says when something is missing, and what it does with an
# nvcc that refuses the compiler.  The toolkit here is a fake one, so the test
# says the same on a machine with CUDA and on one without.
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
number=0 failed=0

# A source folder of its own: SRCDIR may hold a build.
source=$scratch/source
mkdir -p "$source/src" "$source/config" "$scratch/build"
cp "$SRCDIR/configure" "$SRCDIR/Makefile.in" "$SRCDIR/config.h.in" "$source/" ||
  exit 99
cp -R "$SRCDIR/config/build-aux" "$source/config/" || exit 99
cp "$SRCDIR/src/main.c" "$source/src/" || exit 99

# run ARGUMENT...: output in $output, status in $result.
run() {
  output=$(cd "$scratch/build" && rm -rf ./* &&
    sh "$source/configure" --disable-dependency-tracking "$@" 2>&1)
  result=$?
}
# holds SENTENCE STATUS WORD...: it ended so, and each word was printed.
holds() {
  number=$((number + 1))
  sentence=$1 want=$2
  shift 2
  missed=
  test "$result" = "$want" || missed=" status $result, not $want;"
  for word; do
    case $output in
      *"$word"*) ;;
      *) missed="$missed no '$word';" ;;
    esac
  done
  if test -z "$missed"; then
    echo "ok $number - $sentence"
  else
    printf '%s\n' "$output" | tail -n 40 | sed 's/^/# /'
    echo "not ok $number - $sentence:$missed"
    failed=1
  fi
}

# A toolkit whose nvcc works with one host compiler only, and three compilers.
toolkit=$scratch/toolkit
mkdir -p "$toolkit/bin" "$toolkit/lib64" "$toolkit/include" "$scratch/bin"
cat >"$toolkit/bin/nvcc" <<'END'
#!/bin/sh
case "$*" in
  *--version*) echo 'Cuda compilation tools, release 12.4, V12.4.131'; exit ;;
  *--list-gpu-arch*)
    for arch in 50 70 75 80 86 87 89 90; do echo compute_$arch; done; exit ;;
  *'-ccbin g++-12 '*) ;;
  *) echo 'error: unsupported GNU version!' >&2; exit 1 ;;
esac
while test $# -gt 0; do
  test "$1" != -o || out=$2
  shift
done
echo 'int launch(void) { return 0; }' >fake_nvcc.c
exec cc -c -o "$out" fake_nvcc.c
END
chmod +x "$toolkit/bin/nvcc"
for name in g++-13 g++-12 g++-11; do
  printf '#!/bin/sh\n' >"$scratch/bin/$name"
  chmod +x "$scratch/bin/$name"
done
echo 'int cudaGetDeviceCount(int *count);' >"$toolkit/include/cuda_runtime_api.h"
printf 'typedef void *cublasLtHandle_t;\nint cublasLtCreate(void **handle);\n' \
  >"$toolkit/include/cublasLt.h"
echo 'int cudaGetDeviceCount(int *count) { return *count = 0; }' >"$scratch/rt.c"
echo 'int cublasLtCreate(void **handle) { return handle == 0; }' \
  >"$scratch/lt.c"
for pair in rt:cudart_static lt:cublasLt; do
  cc -c -o "$scratch/object.o" "$scratch/${pair%:*}.c" &&
    ar cr "$toolkit/lib64/lib${pair#*:}.a" "$scratch/object.o" || exit 99
  rm -f "$scratch/object.o"
done

echo 1..10
absent=-lzo_absent
run PKG_CONFIG=false CJSON_LIBS=$absent ZSTD_LIBS=$absent XXHASH_LIBS=$absent \
  BLAS_LIBS=$absent SENTENCEPIECE_LIBS=$absent
holds 'every missing library is named with its packages, in one run' 1 \
  'cJSON is required' libcjson-dev cjson-devel \
  'Zstandard is required' libzstd-dev libzstd-devel \
  'xxHash is required' libxxhash-dev xxhash-devel \
  'a CBLAS (OpenBLAS) is required' libopenblas-dev openblas-devel \
  'SentencePiece is required' libsentencepiece-dev sentencepiece-devel
holds 'one command installs them all' 1 'apt-get install libcjson-dev libzstd' \
  'dnf install cjson-devel' 'pacman -S cjson'
holds 'what no package gives is told how to build' 1 'RHEL 9' \
  'cmake --build sentencepiece/build'
number=$((number + 1)) sentence='each of them is named once'
if test "$(printf '%s\n' "$output" | grep -c 'is required')" = 5; then
  echo "ok $number - $sentence"
else
  echo "not ok $number - $sentence"
  failed=1
fi

run --with-cuda="$scratch/bin"
holds 'a folder that was named is the only place to look' 1 \
  "nvcc in $scratch/bin/bin" 'Without:' --without-cuda
run --with-cuda="$scratch/none"
holds 'a folder that is not there is refused' 1 "$scratch/none: no such folder"

PATH=$scratch/bin:$PATH
run --with-cuda="$toolkit" --with-cuda-arch=80,999
holds 'an architecture that nvcc does not know is refused' 1 \
  'does not know 999' '70 75 80'
run --with-cuda="$toolkit" --with-nccl=no LIBURING_CFLAGS=-DX \
  LIBURING_LIBS=$absent
holds 'an nvcc that refuses the compiler is given an older one' 0 \
  'with -ccbin g++-13... no' 'with -ccbin g++-12... yes' 'nvcc -ccbin g++-12)'
holds 'all of our architectures that nvcc knows are built for' 0 \
  'GPUs 70 75 80 86 89 90'
holds 'without liburing it builds, and says what that means' 0 \
  'liburing 2.0: not found' liburing-dev 'pread/pwrite: yes, io_uring: no'
exit $failed
