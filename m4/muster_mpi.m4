# MPI. MPICC names a library's compiler wrapper, of which only the flags are used: CC compiles. Without MPICC it is MPICH
# by name, since Debian's default mpicc is Open MPI where both are installed; else the mpicc in PATH.
AC_DEFUN([MUSTER_MPI], [
  AC_ARG_WITH([mpi], [AS_HELP_STRING([--with-mpi], [collectives between CPU nodes, through MPICH, Open MPI or a relative @<:@auto@:>@])],
              [], [with_mpi=auto])
  AC_ARG_VAR([MPICC], [compiler wrapper of the MPI library, such as mpicc.openmpi @<:@MPICH's flags by pkg-config, else mpicc@:>@])
  have_mpi=no mpi_title=
  AS_IF([test "x$with_mpi" != xno], [
    muster_mpicc=$MPICC
    AS_IF([test "x$MPICC" = x],
          [PKG_CHECK_MODULES([MPI], [mpich], [have_mpi=yes],
             [AS_IF([test "x$cross_compiling" != xyes], [muster_mpicc=`command -v mpicc`])])])
    AS_IF([test "x$muster_mpicc" != x], [MUSTER_MPI_WRAPPER])
    AS_IF([test "x$have_mpi$with_mpi" = xnoyes], [AC_MSG_ERROR([no MPI found; on Debian: apt-get install libmpich-dev])])])
  # mpich.pc puts linker hardening flags into its cflags; they belong to whoever links. Its headers' warnings are not ours.
  MPI_CFLAGS=`AS_ECHO(["$MPI_CFLAGS"]) | sed 's/-Wl,[[^ ]]*//g; s/-I/-isystem /g'`
  AS_IF([test "x$have_mpi" = xyes],
        [AC_DEFINE([HAVE_MPI], [1], [MPI collectives])
         muster_save_CPPFLAGS="$CPPFLAGS"; CPPFLAGS="$CPPFLAGS $MPI_CFLAGS"
         AC_PREPROC_IFELSE([AC_LANG_SOURCE([[#include <mpi.h>
#ifndef OPEN_MPI
#error
#endif]])], [mpi_title="Open MPI, over PMIx"], [mpi_title="MPICH or a relative, over PMI2"])
         CPPFLAGS="$muster_save_CPPFLAGS"])
  # The objects of MPI depend on this file, so they are compiled again when configure finds another library.
  AC_CONFIG_COMMANDS([mpi_library.h],
    [echo "/* ${mpi_flags:-(none)} */" >mpi_library.new
     if cmp -s mpi_library.new mpi_library.h; then rm -f mpi_library.new; else mv mpi_library.new mpi_library.h; fi],
    [mpi_flags='$mpi_flags'])
  mpi_flags="$MPI_CFLAGS $MPI_LIBS"
  MPI_CFLAGS="$MPI_CFLAGS -include mpi_library.h"
  AM_CONDITIONAL([HAVE_MPI], [test "x$have_mpi" = xyes])
])

# The flags that the wrapper $muster_mpicc shows. They must link a program that uses MPI 3.
AC_DEFUN([MUSTER_MPI_WRAPPER], [
  AC_MSG_CHECKING([the MPI library of $muster_mpicc])
  for muster_word in `$muster_mpicc -show 2>/dev/null`; do
    AS_CASE([$muster_word],
      [-I/usr/include], [],
      [-I*|-D*], [MPI_CFLAGS="$MPI_CFLAGS $muster_word"],
      [-pthread], [MPI_CFLAGS="$MPI_CFLAGS $muster_word"; MPI_LIBS="$MPI_LIBS $muster_word"],
      [-L*|-l*|-Wl,*], [MPI_LIBS="$MPI_LIBS $muster_word"])
  done
  muster_save_CPPFLAGS="$CPPFLAGS" muster_save_LIBS="$LIBS"
  CPPFLAGS="$CPPFLAGS $MPI_CFLAGS" LIBS="$LIBS $MPI_LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[MPI_Request request; return MPI_Ibarrier(MPI_COMM_WORLD, &request);]])],
                 [have_mpi=yes])
  CPPFLAGS="$muster_save_CPPFLAGS" LIBS="$muster_save_LIBS"
  AC_MSG_RESULT([$have_mpi])
  AS_IF([test "x$have_mpi" = xno],
        [AS_IF([test "x$MPICC" != x], [AC_MSG_ERROR([MPICC=$MPICC is not the compiler wrapper of an MPI 3 library; on Debian: mpicc.mpich or mpicc.openmpi])])
         MPI_CFLAGS= MPI_LIBS=])
])
