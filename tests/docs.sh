#!/bin/sh
# TAP: what the documents say is what is there.  Options against the program's
# own --help, tables against the pages made from them, make targets and files
# that a document names, environment variables that the sources read.
cd "$SRCDIR" || exit 99
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
program=$BUILDDIR/zero-offload
status=0

report() { # report NUMBER SENTENCE FOUND
  if test -z "$3"; then
    echo "ok $1 - $2"
  else
    printf '%s\n' "$3" | sed 's/^/# /'
    echo "not ok $1 - $2"
    status=1
  fi
}

# The options of a help text, and those of a page's .It lines.
options_of_help() {
  sed -n 's/^  \(--[a-z][a-z0-9_-]*\).*/\1/p' | sort -u
}
options_of_page() {
  grep '^\.It .*Fl ' "$1" | grep -o -e 'Fl -[a-z][a-z0-9_-]*' |
    sed 's/^Fl /-/' | sort -u
}
subcommands() { "$program" --help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p'; }

echo 1..13

sentence='every subcommand has a page, and every page a subcommand'
pages=$(for page in man/zero-offload-*.1; do
  page=${page#man/zero-offload-}
  echo "${page%.1}"
done | sort)
if ls src/cli/*.c >/dev/null 2>&1; then
  report 1 "$sentence" "$(subcommands | sort >"$scratch/commands"
    printf '%s\n' "$pages" | diff "$scratch/commands" - | grep '^[<>]')"
  for command in $pages; do
    "$program" "$command" --help 2>&1 | options_of_help >"$scratch/help"
    options_of_page "man/zero-offload-$command.1" >"$scratch/page"
    test -s "$scratch/help" || echo "$command: no option in its --help"
    comm -23 "$scratch/help" "$scratch/page" |
      sed "s/\$/ of $command is in --help and not in its page/"
    # What is accepted without meaning is in the page alone.
    sed '/^\.Ss Accepted, without/,$d' "man/zero-offload-$command.1" \
      >"$scratch/listed"
    options_of_page "$scratch/listed" | comm -13 "$scratch/help" - |
      sed "s/\$/ of $command is in its page and not in --help/"
  done >"$scratch/options"
  report 2 'every option of --help is in its page, and the other way round' \
    "$(cat "$scratch/options")"
else
  echo "ok 1 - $sentence # SKIP no subcommand is built yet"
  echo 'ok 2 - every option of --help is in its page # SKIP as above'
fi

sentence='pages made from tables are what the tables say'
if test -f config/cli_options.c; then
  report 3 "$sentence" "$(
    unset MAKEFLAGS MFLAGS
    if "${MAKE:-make}" -C "$BUILDDIR" man/print_tables >"$scratch/make" 2>&1
    then
      man/update.sh --check "$BUILDDIR/man/print_tables" 2>&1
    else
      tail -n 20 "$scratch/make"
    fi)"
else
  echo "ok 3 - $sentence # SKIP there are no tables yet"
fi

report 4 'every make target that a document names exists' "$(
  cat README.md README.zh.md CONTRIBUTING.md bootstrap |
    grep -o '`make [a-z-]*`' |
    sed 's/`make \(.*\)`/\1/' | sort -u | while read -r target; do
      grep -q "^$target:" "$BUILDDIR/Makefile" || echo "make $target"
    done)"

report 5 'every file that a document links to exists' "$(
  for document in *.md bench/demo/*.md; do
    grep -o '](\([^):]*\))' "$document" | sed 's/](\(.*\))/\1/; s/#.*//' |
      while read -r file; do
        test -e "$(dirname "$document")/$file" || echo "$document: $file"
      done
  done)"

report 6 'every environment variable that the sources read is in a page' "$(
  grep -rhoE 'getenv\("[A-Z_]*"\)' src config kernels offload |
    sed 's/getenv("\(.*\)")/\1/' | sort -u | while read -r name; do
      grep -q "^\.It Ev $name" man/*.[157] || echo "$name"
    done)"

report 7 'the change log begins with the version that is built' "$(
  version=$(sed -n 's/^AC_INIT(\[zero-offload\], \[\(.*\)\])/\1/p' configure.ac)
  sed -n 's/^## \([^ ]*\).*/\1/p' CHANGELOG.md | head -n 1 |
    grep -qxF "$version" || echo "no ## $version on top of CHANGELOG.md")"

sentence='bash completes subcommands, options and files'
if command -v bash >/dev/null; then
  cat >"$scratch/zero-offload" <<'END'
#!/bin/sh
case "$1 $2" in
  '--help ') printf 'usage\n\n  train     x\n  eval      y\n' ;;
  'train --help') printf 'The run:\n  --max-steps N   x\n  --seed N   y\n' ;;
esac
END
  chmod +x "$scratch/zero-offload"
  touch "$scratch/some.json"
  complete_words() {
    (cd "$scratch" && bash -c '. "$0"; COMP_WORDS=("$@")
      COMP_CWORD=$(($# - 1)); _zero_offload; echo ${COMPREPLY[*]}' \
      "$SRCDIR/man/zero-offload.bash" ./zero-offload "$@" 2>&1)
  }
  report 8 "$sentence" "$(
    test "$(complete_words t)" = train || complete_words t
    test "$(complete_words train --m)" = --max-steps ||
      complete_words train --m
    test "$(complete_words train --data som)" = some.json ||
      complete_words train --data som)"
else
  echo "ok 8 - $sentence # SKIP no bash"
fi

report 9 'what a document shows of a plan is what plan prints' "$(
  XDG_CACHE_HOME=$scratch
  export XDG_CACHE_HOME
  # A command behind "$ ", on as many lines as end in "\", and below it, up to
  # an empty line or the end of the display, lines of its output.
  for document in README.md README.zh.md man/*.[157]; do
    sed 's/^ *//; s/\\e$/\\/' "$document" | awk -v to="$scratch/shown" '
      /^\$ / || /^$/ || /^\.Ed/ { shown = 0 }
      /^\$ zero-offload plan / { count++; command = 1; sub(/^\$ /, "") }
      shown { print >(to count) }
      command { print >(to count ".sh") }
      command && !/\\$/ { command = 0; shown = 1 }'
    for lines in "$scratch"/shown*[0-9]; do
      test -f "$lines" || continue
      sed "s|^zero-offload |\"$program\" |" "$lines.sh" >"$scratch/run"
      if ! cmp -s "$scratch/run" "$scratch/ran"; then # two languages, one run
        sh "$scratch/run" 2>&1 | sed 's/^ *//' >"$scratch/printed"
        cp "$scratch/run" "$scratch/ran"
      fi
      grep -vxFf "$scratch/printed" "$lines" |
        sed "s|^|$document shows, and plan does not print: |"
    done
    rm -f "$scratch"/shown*
  done)"

report 10 'every subcommand is told in zero-offload(1), with its page' "$(
  subcommands | while read -r command; do
    grep -qx "\.It Ic $command" man/zero-offload.1 ||
      echo "$command is not among the subcommands"
    page="^\.Xr zero-offload-$command 1"
    test "$(grep -c "$page" man/zero-offload.1)" -ge 2 ||
      echo "$command: its page is not referred to, there and in SEE ALSO"
  done)"

# The commands of a document: its indented lines, without what follows a "#".
# What a prompt is answered is in the language of the reader.
commands_of() { sed -n 's/^    //p' "$1" | sed 's/ *#.*//' | grep -v '^$'; }
report 11 'the READMEs show the same commands, and link to each other' "$(
  commands_of README.md >"$scratch/english"
  commands_of README.zh.md | diff "$scratch/english" - | grep '^[<>]'
  test "$(wc -l <"$scratch/english")" -ge 20 || echo 'hardly any command'
  grep -q '](README.zh.md)' README.md || echo 'README.md: no link'
  grep -q '](README.md)' README.zh.md || echo 'README.zh.md: no link')"

# Commands that documents show, each on one line: COMMAND OPTION...
shown_commands() {
  sed 's/\\e$/\\/; s/^    //; s/^\$ //' "$1" |
    sed -e ':a' -e '/\\$/{N;s/\\\n *//;ba' -e '}' |
    sed -n 's/^zero-offload \([a-z][a-z]*\) /\1 /p'
}
report 12 'every option of a command in a document is in the page of it' "$(
  for document in README.md README.zh.md man/*.[157]; do
    shown_commands "$document" | tee -a "$scratch/all" |
      while read -r command words; do
        set -f
        for word in $words; do
          case $word in --*) ;; *) continue ;; esac
          option=$(echo "${word%%=*}" | sed 's/^-//; s/_/-/g')
          grep -q -e "Fl \(${option#-no}\|$option\)\( \|\$\)" \
            "man/zero-offload-$command.1" ||
            echo "$document: $command has no -$option"
        done
      done
  done
  test "$(wc -l <"$scratch/all")" -ge 40 || echo 'hardly any command')"

# A figure of the READMEs' table is one of bench/RESULTS.md, rounded, and the
# figures of a row are of one run: as many tokens a second as its step makes.
report 13 'figures of the tables of speed are in bench/RESULTS.md' "$(
  for document in README.md README.zh.md; do
    LC_ALL=C awk -v document="$document" '
      # Numbers before a unit, as RESULTS has them, GiB also out of MiB.
      function note(line, unit, as, scale,    i, n, parts, x) {
        n = split(line, parts, "[^0-9.,A-Za-z]+")
        for (i = 1; i < n; i++) {
          x = parts[i]; gsub(",", "", x); sub("[.]$", "", x)
          if (x ~ /^[0-9.]+$/ && parts[i + 1] ~ "^" unit "[,.]*$")
            known[as] = known[as] " " x / scale
        }
      }
      function is_known(x, unit,    i, n, parts, digits) {
        digits = index(x, ".") ? length(x) - index(x, ".") : 0
        n = split(known[unit], parts, " ")
        for (i = 1; i <= n; i++)
          if (sprintf("%." digits "f", parts[i] * (1 + 1e-9)) == x ||
            parts[i] + 0 == x + 0) return 1
        return 0
      }
      function check(cell, unit,    rest, x) {
        rest = cell
        while (match(rest, "[0-9.]+ " unit)) {
          x = substr(rest, RSTART, RLENGTH - length(unit) - 1)
          if (!is_known(x, unit)) print document ": no " x " " unit
          rest = substr(rest, RSTART + RLENGTH)
        }
      }
      FNR == NR {
        whole = whole " " $0
        note($0, "s", "s", 1); note($0, "GB", "GB", 1)
        note($0, "GiB", "GiB", 1); note($0, "MiB", "GiB", 1024)
        next
      }
      /^## / { inside = /^## (Measured|\xe6\xb5\x8b)/ }
      inside && /^[|].* x 512 / {
        rows++
        split($0, cell, " *[|] *")
        check(cell[4], "s"); check(cell[6], "GiB"); check(cell[6], "GB")
        many = split(cell[5], rates, "[^0-9,]+")
        for (r = 1; r <= many; r++) {
          if (rates[r] == "") continue
          if (!index(whole, rates[r])) print document ": no " rates[r]
          gsub(",", "", rates[r])
          count++
          split(cell[3], shape, " x ")
          tokens = shape[1] * shape[2]
          if (many < 2) {
            off = tokens / (cell[4] + 0) / rates[r]
            if (off < 0.995 || off > 1.005)
              print document ": " tokens " in " cell[4] " are not " rates[r]
          }
        }
      }
      END { if (rows < 10 || count < rows) print document ": " rows " rows" }
    ' bench/RESULTS.md "$document" 2>&1
  done)"
exit $status
