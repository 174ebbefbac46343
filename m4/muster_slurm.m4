# The plugin is built against one Slurm release and runs only with it: SPANK_PLUGIN() embeds major.minor. Without
# --with-slurm=DIR it is the Slurm whose srun is in PATH, if its headers are beside it, else the compiler's default.
AC_DEFUN([MUSTER_SLURM], [
  AC_ARG_WITH([slurm], [AS_HELP_STRING([--with-slurm@<:@=DIR@:>@],
                       [the SPANK plugin; DIR holds include/slurm/spank.h @<:@the Slurm of the srun in PATH@:>@])],
              [], [with_slurm=auto])
  have_slurm=no slurm_version= SLURM_DIR=
  AS_CASE([$with_slurm],
    [no], [],
    [yes|auto], [muster_srun=`command -v srun` && SLURM_DIR=`dirname "$muster_srun"` && SLURM_DIR=`dirname "$SLURM_DIR"`
                 AS_IF([test ! -r "$SLURM_DIR/include/slurm/spank.h"], [SLURM_DIR=])],
    [SLURM_DIR=$with_slurm])
  # Slurm's headers are system headers: their warnings are not ours. /usr/include is one already, and must keep its place.
  AS_CASE([$SLURM_DIR], [""|/|/usr], [], [SLURM_CFLAGS="-isystem $SLURM_DIR/include"])
  AS_IF([test "x$with_slurm" != xno], [
    muster_save_CPPFLAGS="$CPPFLAGS"; CPPFLAGS="$CPPFLAGS $SLURM_CFLAGS"
    AC_CHECK_HEADER([slurm/spank.h], [have_slurm=yes], [], [[#include <stdint.h>]])
    AS_IF([test "x$have_slurm" = xyes],
      [AC_COMPUTE_INT([slurm_major], [SLURM_VERSION_MAJOR(SLURM_VERSION_NUMBER)], [[#include <slurm/slurm_version.h>]], [slurm_major=0])
       AC_COMPUTE_INT([slurm_minor], [SLURM_VERSION_MINOR(SLURM_VERSION_NUMBER)], [[#include <slurm/slurm_version.h>]], [slurm_minor=0])
       slurm_version=`printf '%d.%02d' $slurm_major $slurm_minor`])
    CPPFLAGS="$muster_save_CPPFLAGS"
    AS_IF([test "x$have_slurm" = xno && test "x$with_slurm" != xauto],
          [AC_MSG_ERROR([slurm/spank.h not found in ${SLURM_DIR:-the compiler's directories}; on Debian: apt-get install libslurm-dev slurm-wlm-basic-plugins-dev])])])
  # Objects depend on this file, so they are compiled again when configure finds another release or directory.
  AC_CONFIG_COMMANDS([slurm_release.h],
    [echo "/* Slurm ${slurm_version:-(none)} in ${SLURM_DIR:-/usr} */" >slurm_release.new
     if cmp -s slurm_release.new slurm_release.h; then rm -f slurm_release.new; else mv slurm_release.new slurm_release.h; fi],
    [slurm_version='$slurm_version' SLURM_DIR='$SLURM_DIR'])
  SLURM_CFLAGS="$SLURM_CFLAGS -include slurm_release.h"
  AC_SUBST([SLURM_CFLAGS])
  AM_CONDITIONAL([HAVE_SLURM], [test "x$have_slurm" = xyes])
])
