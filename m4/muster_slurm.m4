# The plugin is built against one Slurm release and runs only with it: SPANK_PLUGIN() embeds major.minor.
AC_DEFUN([MUSTER_SLURM], [
  AC_ARG_WITH([slurm], [AS_HELP_STRING([--with-slurm@<:@=DIR@:>@], [the SPANK plugin; DIR holds include/slurm/spank.h @<:@auto@:>@])],
              [], [with_slurm=auto])
  have_slurm=no slurm_version=
  AS_CASE([$with_slurm], [no|yes|auto], [], [SLURM_CFLAGS="-I$with_slurm/include"])
  AS_IF([test "x$with_slurm" != xno], [
    muster_save_CPPFLAGS="$CPPFLAGS"; CPPFLAGS="$CPPFLAGS $SLURM_CFLAGS"
    AC_CHECK_HEADER([slurm/spank.h], [have_slurm=yes], [], [[#include <stdint.h>]])
    AS_IF([test "x$have_slurm" = xyes],
      [AC_COMPUTE_INT([slurm_major], [SLURM_VERSION_MAJOR(SLURM_VERSION_NUMBER)], [[#include <slurm/slurm_version.h>]], [slurm_major=0])
       AC_COMPUTE_INT([slurm_minor], [SLURM_VERSION_MINOR(SLURM_VERSION_NUMBER)], [[#include <slurm/slurm_version.h>]], [slurm_minor=0])
       slurm_version=`printf '%d.%02d' $slurm_major $slurm_minor`])
    CPPFLAGS="$muster_save_CPPFLAGS"
    AS_IF([test "x$have_slurm" = xno && test "x$with_slurm" != xauto],
          [AC_MSG_ERROR([slurm/spank.h not found; on Debian: apt-get install libslurm-dev slurm-wlm-basic-plugins-dev])])])
  AC_SUBST([SLURM_CFLAGS])
  AM_CONDITIONAL([HAVE_SLURM], [test "x$have_slurm" = xyes])
])
