#!/usr/bin/env bats
# Which Slurm ./setup, configure and the sandbox use.
load helpers

setup() {
    TREE=$BATS_TEST_DIRNAME/../..
    BUILD=${top_builddir:-$TREE/build}
    export TMPDIR=$BATS_TEST_TMPDIR # a setup that fails leaves its log
}

@test "the plugin is compiled again after configure finds another Slurm" {
    [ -f "$BUILD/slurm_release.h" ] || skip "the build has no plugin"
    for source in srun-plugin/spank/spank_muster srun-plugin/order/slurmctld; do
        grep -q slurm_release.h "$BUILD"/${source%/*}/.deps/*"${source##*/}.Plo"
    done
    [ -n "${MUSTER_CHECK_FULL:-}" ] || return 0
    local release before
    release=$(ls -d "${MUSTER_SLURMS:-/opt/slurm-test}"/*/ 2>/dev/null | tail -n 1)
    [ -n "$release" ] || skip "there is no second Slurm"
    cd "$BATS_TEST_TMPDIR"
    "$TREE/configure" --without-cuda --with-slurm=/usr >/dev/null
    make plugin >/dev/null
    before=$(cksum <srun-plugin/.libs/spank_muster.so)
    "$TREE/configure" --without-cuda --with-slurm="${release%/}" >/dev/null
    make plugin >/dev/null
    [ "$(cksum <srun-plugin/.libs/spank_muster.so)" != "$before" ]
}

@test "setup refuses a Slurm without headers" {
    run "$TREE/setup" --with-slurm=/nonexistent
    echo "$output"
    [ "$status" -eq 64 ]
    [ "$output" = "setup: --with-slurm=/nonexistent: there is no include/slurm/spank.h; DIR is what Slurm was installed to, as /opt/slurm" ]
}

# Most sites build Slurm that way. Here only what scontrol says of it can be had.
@test "the sandbox refuses a Slurm built without --enable-multiple-slurmd" {
    skip_if "$(why_no_slurm)"
    mkdir "$BATS_TEST_TMPDIR/bin"
    printf '#!/bin/sh\n"%s" "$@" | sed "/^MULTIPLE_SLURMD/s/[Yy]es/No/"\n' "$(command -v scontrol)" >"$BATS_TEST_TMPDIR/bin/scontrol"
    chmod +x "$BATS_TEST_TMPDIR/bin/scontrol"
    PATH=$BATS_TEST_TMPDIR/bin:$PATH run "$SANDBOX" start --dir "$BATS_TEST_TMPDIR/slurm" --nodes 2
    echo "$output"
    [ "$status" -eq 70 ]
    [[ $output == *"built without --enable-multiple-slurmd"*"./quickstart --slurm DIR"* ]]
    ! grep -lzxF "SLURM_CONF=$BATS_TEST_TMPDIR/slurm/etc/slurm.conf" /proc/[0-9]*/environ 2>/dev/null
}

# A checkout of setup alone, with a configure that keeps its options as the real one does, and a site's Slurm. Of Debian's
# packages, only those of Slurm are missing; apt-get writes down what it is asked for.
site() {
    SITE=$BATS_TEST_TMPDIR/site
    mkdir -p "$SITE/slurm/bin" "$SITE/bin" "$SITE/tree"
    cp "$TREE/setup" "$SITE/tree"
    printf '#!/bin/sh\n' >"$SITE/slurm/bin/srun"
    cat >"$SITE/bin/dpkg-query" <<'END'
#!/bin/sh
case $* in
-S*) [ ! -e "$SITE/debian" ] || echo "slurm-client: $2" ;;
*slurm*) echo not-installed ;;
*) echo installed ;;
esac
END
    printf '#!/bin/sh\necho "$*" >>"$SITE/apt"\n' >"$SITE/bin/apt-get"
    printf '#!/bin/sh\nshift\nexec "$@"\n' >"$SITE/bin/sudo"
    cat >"$SITE/tree/configure" <<'END'
#!/bin/bash
for option in "$@"; do case $option in --with-slurm=*) slurm=${option#*=} ;; esac; done
echo "/* Slurm 26.05 in ${slurm:-/usr} */" >slurm_release.h
printf '#!/bin/sh\necho "%s"\n' "${*@Q}" >config.status
echo all: >Makefile
chmod +x config.status
END
    touch "$SITE/tree/Makefile.in"
    chmod +x "$SITE/slurm/bin/srun" "$SITE"/bin/* "$SITE/tree/configure"
    export SITE
    PATH=$SITE/bin:$SITE/slurm/bin:$PATH
}

site_headers() { mkdir -p "$SITE/slurm/include/slurm" && touch "$SITE/slurm/include/slurm/spank.h"; }

@test "setup uses the Slurm in PATH, installs no other, and keeps it in the next run" {
    site
    site_headers
    run "$SITE/tree/setup"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "${lines[-1]}" = "setup: ready: build/ is up to date; the plugin is for Slurm 26.05 in $SITE/slurm" ]
    rm "$SITE/slurm/bin/srun"
    run "$SITE/tree/setup" --prefix=/nonexistent/muster
    [[ $(<"$SITE/tree/build/config.status") == *"--with-slurm=$SITE/slurm"* ]]
    [ ! -e "$SITE/apt" ]
}

@test "setup configures again after Slurm is upgraded in place" {
    site
    site_headers
    echo "#define SLURM_VERSION_NUMBER 0x1a0503" >"$SITE/slurm/include/slurm/slurm_version.h"
    "$SITE/tree/setup" | grep -qx "setup: configure"
    "$SITE/tree/setup" | { ! grep -x "setup: configure"; }
    echo "#define SLURM_VERSION_NUMBER 0x1a0b00" >"$SITE/slurm/include/slurm/slurm_version.h"
    "$SITE/tree/setup" | grep -qx "setup: configure"
}

@test "setup stops if the Slurm in PATH has no headers" {
    site
    run "$SITE/tree/setup"
    echo "$output"
    [ "$status" -eq 64 ]
    [[ $output == "setup: the Slurm of $SITE/slurm/bin/srun has no $SITE/slurm/include/slurm/spank.h, "*--with-slurm=DIR* ]]
    [ ! -e "$SITE/apt" ]
}

@test "setup installs no Slurm daemon on a node of a cluster with Debian's Slurm" {
    site
    touch "$SITE/debian" "$SITE/slurm.conf"
    SLURM_CONF=$SITE/slurm.conf run "$SITE/tree/setup"
    echo "$output"
    [ "$status" -eq 0 ]
    grep -q '^install .*libslurm-dev' "$SITE/apt"
    ! grep -E 'slurmd|slurmctld|slurm-client' "$SITE/apt"
}
