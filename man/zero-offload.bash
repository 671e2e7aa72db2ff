# bash completion for zero-offload(1).
#
# Subcommands and options are asked of the program itself, so that they are
# those of the version that runs.

_zero_offload_words() {
  "$@" --help 2>/dev/null
}

_zero_offload() {
  local word=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]}
  local command=${COMP_WORDS[1]} words
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    words=$(_zero_offload_words "$program" |
      sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p')
    mapfile -t COMPREPLY < <(compgen -W "$words --help --version" -- "$word")
  elif [[ $word == -* ]]; then
    words=$(_zero_offload_words "$program" "$command" |
      grep -o -e '--[a-z][a-z0-9_-]*' | sort -u)
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -o filenames -F _zero_offload zero-offload
