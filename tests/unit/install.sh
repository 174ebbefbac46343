#!/usr/bin/env bash
# install.sh - make install, the files with its directories in them, and make uninstall, which leaves nothing.
build=$(realpath "${top_builddir:-$(dirname "$0")/../../build}")
DIR=$(mktemp -d)
trap 'rm -rf "$DIR"' EXIT
root=$DIR/root
unset MAKEFLAGS MAKELEVEL MAKEOVERRIDES MFLAGS
echo 1..6

# it NUMBER WORDS COMMAND...: a line of TAP
it() {
    local result=ok
    "${@:3}" >"$DIR/out" 2>&1 || { result='not ok'; sed 's/^/# /' "$DIR/out"; }
    echo "$result $1 - $2"
}

modulecmd=$(compgen -G '/usr/lib/*/modulecmd.tcl' | head -n 1)
module() {
    local modules bin
    modules=$(find "$root" -type d -name modulefiles)
    bin=$(dirname "$(find "$root" -name muster-train -o -name muster-topo | head -n 1)")
    set -x
    # A module system of another machine or user is not this test's.
    eval "$(env -i PATH=/usr/bin:/bin HOME="$DIR" MODULEPATH="$modules" MANPATH=/man "$modulecmd" bash load muster)"
    set +x
    [[ $PATH == "${bin#"$root"}":* && $MANPATH == */man:/man && $LOADEDMODULES == muster/* ]]
}

# A plugin's build without MPI has none. The whole measurement takes longer than a test may.
machine() {
    local script
    script=$(find "$root" -path '*/libexec/muster/machine')
    [ -f "$build/muster-train" ] || { [ -z "$script" ]; return; }
    [ -x "$(dirname "$script")/kernels" ] && [ "$("$script" none 2>&1)" = "usage: $script [RANKS [THREADS]]" ]
}

plugin_line() {
    local example line
    example=$(find "$root" -name plugstack.conf.example)
    read -r optional line < <(tail -n 1 "$example")
    echo "$optional $line"
    [ "$optional" = optional ] && [[ $line == /*/spank_muster.so ]] &&
        { [ ! -f "$build/srun-plugin/spank_muster.la" ] || [ -f "$root$line" ]; }
}

# Others have files in bin, man and doc, and the name of the prefix is the site's.
nothing_left() {
    local prefix
    prefix=$(sed -n 's/^prefix = //p' "$build/Makefile")
    make -C "$build" uninstall DESTDIR="$root" || return
    cd "$root$prefix" || return
    find . \( -not -type d -o -name 'muster*' -o -name modulefiles \) -print >"$DIR/left"
    cat "$DIR/left"
    [ ! -s "$DIR/left" ]
}

# After configure with another --prefix, Makefile is new.
paths_follow() {
    local file
    make -C "$build" -n -W Makefile srun-plugin/libplugin.la muster-topo >"$DIR/make"
    for file in spank/trust.c topo/topo_environment.c; do grep -q "srun-plugin/$file" "$DIR/make" || return; done
}

it 1 "make install succeeds" make -C "$build" install DESTDIR="$root"
it 2 "plugstack.conf.example has the plugin's path" plugin_line
if [ -n "$modulecmd" ]; then
    (it 3 "the environment module adds the programs to PATH and the man pages to MANPATH" module)
else
    echo "ok 3 # SKIP environment-modules is not installed"
fi
it 4 "the program that measures a node's CPUs as a machine of muster-plan is installed and runs" machine
it 5 "make uninstall removes all installed files" nothing_left
it 6 "files that contain the prefix are compiled again after another --prefix" paths_follow
