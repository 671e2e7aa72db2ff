#!/bin/sh
# TAP: the style that a program can check.  CONTRIBUTING.md says why for each
# rule.  The checks first run over a folder with every fault planted in it, so
# that a check which finds nothing any more is found itself.
LC_ALL=C
export LC_ALL
cd "$SRCDIR" || exit 99

# Exceptions: "RULE FILE", each with its reason.  The list may only shrink.
#   status.c: a failed assertion is the program's own mistake; it says so and
#   ends the program.
#   *.cu: the pipeline of a tensor-core kernel is one function, since its
#   registers and barriers are what its stages share.
#   test_config_files.c: a table, one line a file.
exceptions='
exit src/base/status.c
print src/base/status.c
function kernels/cuda/attention_backward_hopper.cu
function kernels/cuda/attention_backward_mma.cu
function kernels/cuda/attention_hopper.cu
function kernels/cuda/attention_mma.cu
function kernels/cuda/attention_plain.cu
function kernels/cuda/rmsnorm.cu
columns tests/test_config_files.c
'
# main() ends the process; tests end the children that they fork.
may_exit='^(src/main\.c|tests/.*)$'
# What talks to the user; library code adds a note instead.
may_print='^(src/main\.c|src/cli/.*|bench/.*|man/.*|tests/.*)$'
# memory.c is the allocator; tests interpose and inject.
may_allocate='^(src/base/memory\.c|tests/.*|bench/.*)$'

sources() {
  find src offload kernels config bench man tests -type f \( -name '*.[ch]' \
    -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' \) | sort
}

# Prints "RULE FILE:LINE: what" for the C, C++ and CUDA sources.
check_sources() {
  sources | while read -r file; do
    awk -v file="$file" -v may_exit="$may_exit" -v may_print="$may_print" \
      -v may_allocate="$may_allocate" '
    function report(rule, text) {
      printf "%s %s:%d: %s\n", rule, file, NR, text
    }
    # The line without comments, strings and character constants.
    function code_of(line,    out) {
      out = ""
      while (line != "") {
        if (in_comment) {
          if (!match(line, /\*\//)) return out
          line = substr(line, RSTART + 2)
          in_comment = 0
        } else if (match(line, /\/\*|\/\/|"|\047/)) {
          out = out substr(line, 1, RSTART - 1)
          mark = substr(line, RSTART, 2)
          line = substr(line, RSTART)
          if (mark == "//") return out
          if (mark == "/*") {
            in_comment = 1
            line = substr(line, 3)
          } else if (match(line, /^"([^"\\]|\\.)*"|^\047([^\047\\]|\\.)*\047/)) {
            out = out "\"\""
            line = substr(line, RLENGTH + 1)
          } else {
            line = substr(line, 2)
          }
        } else {
          return out line
        }
      }
      return out
    }
    function calls(code, names) {
      return code ~ ("(^|[^A-Za-z0-9_.>])(" names ")[ ]*\\(")
    }
    {
      wide = $0
      gsub(/[\200-\277]/, "", wide) # the tail bytes of UTF-8
      if (length(wide) > 80) report("columns", length(wide) " columns")
      if ($0 ~ /\t/) report("tab", "a tab")
      if ($0 ~ /[ \t\r]$/) report("blanks", "blanks at the end")
      if ($0 ~ /(^|[^A-Za-z])(TO[D]O|FIX[M]E|XX[X])([^A-Za-z]|$)/)
        report("todo", "work that is not done; OPEN: marks a decision")
      code = code_of($0)
      if (calls(code, "strcpy|strcat|sprintf|vsprintf|gets|atoi|atol|atof|" \
                      "strtok|alloca|system|assert|rand|srand"))
        report("banned", "a banned call: " code)
      if (file !~ may_exit && calls(code, "exit|abort|quick_exit"))
        report("exit", "only main() ends the process: " code)
      if (file !~ may_print && (calls(code, "printf|puts|putchar|perror") ||
          code ~ /[^A-Za-z0-9_]v?f(printf|puts)[ ]*\([ ]*std(out|err)/))
        report("print", "library code never prints: " code)
      if (file !~ may_allocate && calls(code,
          "malloc|calloc|realloc|free|strdup|strndup|aligned_alloc|" \
          "posix_memalign"))
        report("allocate", "memory comes from src/base/memory.h: " code)
      sub(/[ ]+$/, "", code)
      if (code == "{" && before !~ /^namespace/) start = NR
      if (code == "}" && start) {
        if (NR - start + 1 > 70)
          report("function", (NR - start + 1) " lines in a function")
        start = 0
      }
      if (code != "") before = code
    }
    END { if (NR > 800) report("file", NR " lines in a file") }' "$file"
  done
}

# Prints "RULE FILE: what" for what concerns more than one file.
check_tree() {
  for header in cjson/cJSON.h zstd.h xxhash.h cblas.h \
    sentencepiece_processor.h liburing.h nccl.h cublasLt.h; do
    sources | grep -v '^tests/' | while read -r file; do
      grep -l "^ *# *include *[<\"]${header}[>\"]" "$file"
    done >"$scratch/users"
    if test "$(wc -l <"$scratch/users")" -gt 1; then
      sed "s|.*|wrapper &: one of several that include <$header>|" \
        "$scratch/users"
    fi
    grep '\.[c]*h$' "$scratch/users" |
      sed "s|.*|wrapper &: a header must not include <$header>|"
  done
  # Two members of one name in an archive: the second replaces the first.
  find src offload kernels config \( -name '*.c' -o -name '*.cu' \
    -o -name '*.cpp' \) | sed 's|.*/||; s|\.[^.]*$||' | sort | uniq -d |
    sed 's|.*|stem &: two files of this name in the archive|'
  find . -name '*.sh' -o -name '*.m4' -o -name '*.mk' -o -name '*.am' \
    -o -name '*.ac' -o -name '*.md' -o -name '*.py' -o -name '*.[157]' |
    grep -Ev '^\./(build|\.git|autom4te|config/build-aux)|/zero-offload-[0-9]|/sanitize-' |
    while read -r file; do
      grep -n '[[:blank:]]$' "$file" | sed "s|^|blanks $file:|"
    done
  find . \( -name '*.am' -o -name '*.mk' -o -name '*.ac' -o -name '*.m4' \) \
    -exec grep -n -e '-ffast-mat[h]' /dev/null {} + | sed 's|^|fast |'
}

# Passes the complaints on that the list does not cover.
without() {
  { printf '%s\n' "$1" | sed 's/^/+ /'; cat; } |
    awk '$1 == "+" { allowed[$2 " " $3] = 1; next }
      { file = $2; sub(/:.*/, "", file) }
      !(($1 " " file) in allowed)'
}

plant() {
  mkdir -p "$1/src/base" "$1/src/train" "$1/config" "$1/offload" \
    "$1/kernels" "$1/bench" "$1/man" "$1/tests"
  bad=$1/src/train/bad.c
  {
    printf '#include <zstd.h>\n/* strcpy(a, b) in a comment is none */\n'
    printf 'int x;\t\nint y; \nint z = %0100d;\n' 1
    printf '/* TO''DO: later */\n'
    printf 'void f(void)\n{\n'
    printf '    strcpy(a, "exit(1)");\n    exit(1);\n    printf("x");\n'
    printf '    (void)fprintf(stderr, "x");\n    free(a);\n    ops->free(a);\n'
    awk 'BEGIN { for (i = 0; i < 70; i++) print "    x++;" }'
    printf '}\n'
    awk 'BEGIN { for (i = 0; i < 800; i++) print "" }'
  } >"$bad"
  printf '#include <zstd.h>\n' >"$1/offload/bad.c"
  printf '#include <nccl.h>\n' >"$1/offload/bad.h"
  printf 'CFLAGS = -ffast-mat''h\n' >"$1/bad.mk"
  printf 'blanks \n' >"$1/bad.md"
}

scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
status=0
echo 1..3

plant "$scratch/tree"
(cd "$scratch/tree" && { check_sources; check_tree; }) >"$scratch/found"
missed=
for rule in columns tab blanks todo banned exit print allocate function file \
  wrapper stem fast; do
  grep -q "^$rule " "$scratch/found" || missed="$missed $rule"
done
# One of each call: what stands in comments, strings and members is no call.
for rule in banned exit allocate; do
  test "$(grep -c "^$rule " "$scratch/found")" = 1 || missed="$missed $rule"
done
test "$(grep -c '^print ' "$scratch/found")" = 2 || missed="$missed print"
test "$(printf 'exit a.c:1: x\nexit b.c:1: x\n' | without 'exit a.c')" = \
  'exit b.c:1: x' || missed="$missed exceptions"
if test -z "$missed"; then
  echo 'ok 1 - every planted fault is found, and nothing else'
else
  sed 's/^/# /' "$scratch/found"
  echo "not ok 1 - every planted fault is found, and nothing else:$missed"
  status=1
fi

report() {
  found=$(without "$exceptions")
  if test -z "$found"; then
    echo "ok $1 - $2"
  else
    printf '%s\n' "$found" | sed 's/^/# /'
    echo "not ok $1 - $2"
    status=1
  fi
}
check_sources >"$scratch/sources"
report 2 'sources keep the style' <"$scratch/sources"
check_tree >"$scratch/all"
report 3 'wrappers, names and blanks over the whole tree' <"$scratch/all"
exit $status
