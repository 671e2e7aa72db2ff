#!/bin/sh
# TAP: ./bootstrap names the packages of each distribution, installs only when
# it may, and has nothing to do the second time.  Runs in a folder of fakes:
# no command here reaches the machine's package manager.
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin" "$scratch/source" "$scratch/elsewhere"
log=$scratch/log
number=0 failed=0

fake() { # fake NAME BODY
  printf '#!/bin/sh\n%s\n' "$2" >"$scratch/bin/$1"
  chmod +x "$scratch/bin/$1"
}
# A machine where nothing is found until something was installed.
fake pkg-config "test -f '$scratch/installed'"
for manager in apt-get dnf pacman; do
  fake "$manager" "echo \"$manager \$*\" >>'$log'
    case \$* in *-dev*|*openblas*) touch '$scratch/installed' ;; esac"
done
fake sudo 'echo "sudo" >>'"'$log'"'; "$@"'
cat >"$scratch/debian" <<'END'
ID=debian
PRETTY_NAME="Debian of the test"
END
printf 'ID=fedora\n' >"$scratch/fedora"
printf 'ID=rocky\nID_LIKE="rhel centos fedora"\n' >"$scratch/rocky"
printf 'ID=arch\n' >"$scratch/arch"
printf 'ID=ubuntu\nID_LIKE=debian\n' >"$scratch/ubuntu"
printf 'ID=strange\n' >"$scratch/strange"
# A source folder of its own, so that it does not matter what SRCDIR holds.
cp "$SRCDIR/bootstrap" "$scratch/source/"
for folder in config src kernels offload; do
  mkdir "$scratch/source/$folder"
done
touch "$scratch/source/configure.ac" "$scratch/source/Makefile.am" \
  "$scratch/source/Makefile.in"
touch "$scratch/source/configure"

# run USER SYSTEM ARGUMENT...: output in $output, status in $result.
run() {
  user=$1 system=$2
  shift 2
  rm -f "$log"
  fake id "echo $user"
  output=$(cd "$scratch/elsewhere" && PATH=$scratch/bin:$PATH \
    ZERO_OFFLOAD_OS_RELEASE=$scratch/$system \
    sh "$scratch/source/bootstrap" "$@" 2>&1 </dev/null)
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
  tell
}
# logged SENTENCE LINE...: each line was asked of a package manager.
logged() {
  number=$((number + 1))
  sentence=$1
  shift
  missed=
  for line; do
    grep -q -e "$line" "$log" 2>/dev/null || missed="$missed no '$line';"
  done
  tell
}
tell() {
  if test -z "$missed"; then
    echo "ok $number - $sentence"
  else
    printf '%s\n' "$output" | sed 's/^/# /'
    echo "not ok $number - $sentence:$missed"
    failed=1
  fi
}

echo 1..17
run 1000 debian --help
holds '--help tells the modes' 0 --demo --check --packages --yes
run 1000 debian --frobnicate
holds 'an unknown option is refused' 2 --frobnicate --help
run 1000 debian --check -- --help
holds 'what would make configure make nothing is refused' 2 '-- --help' \
  './configure --help'
number=$((number + 1)) sentence='and nothing is built or installed' missed=
test ! -f "$log" || missed=" $(cat "$log")"
case $output in *packages*) missed="$missed it goes on" ;; esac
tell
run 1000 debian -- --with-cuda-arch=90
holds 'arguments of a configure that is not run are refused' 2 \
  '-- --with-cuda-arch=90' --demo --check
run 1000 debian --packages
holds 'who may not install gets the one command' 1 'Debian of the test' \
  'sudo apt-get update && sudo apt-get install -y' libcjson-dev libzstd-dev \
  libxxhash-dev libopenblas-dev libsentencepiece-dev liburing-dev
number=$((number + 1)) sentence='and nothing is installed' missed=
test ! -f "$log" || missed=" $(cat "$log")"
tell
run 1000 ubuntu --demo
holds 'ubuntu is named as debian is' 1 libsentencepiece-dev
run 1000 fedora --check
holds 'fedora is told by dnf' 1 'dnf install -y' cjson-devel openblas-devel \
  sentencepiece-devel
run 1000 rocky --check
holds 'rocky gets its repositories first' 1 epel-release \
  'config-manager --set-enabled crb' openblas-devel
run 1000 arch --demo
holds 'arch is told by pacman' 1 'pacman -S' cjson sentencepiece
run 1000 strange --demo
holds 'an unknown system is told what is needed' 1 'no package manager' \
  libcjson sentencepiece
run 1000 debian --packages -- --with-blas=-lmkl_rt
number=$((number + 1)) sentence='a CBLAS of the user is not asked for' missed=
case $output in *openblas*) missed=' it is' ;; esac
tell
run 1000 debian --packages --yes
logged 'with --yes it installs through sudo' '^sudo$' \
  '^apt-get update' '^apt-get install -y .*libcjson-dev'
rm -f "$scratch/installed"
run 0 debian --packages
logged 'root needs no --yes' '^apt-get install -y .*libsentencepiece-dev'
run 1000 debian --packages
holds 'the second time there is nothing to do' 0 'all there'
fake dnf "echo \"dnf \$*\" >>'$log'"
rm -f "$scratch/installed"
run 0 fedora --packages
holds 'what installing did not bring is named' 1 'still missing' libcjson
exit $failed
