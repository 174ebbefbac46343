# MPICH, by name: Debian's default mpicc may be Open MPI, which does not start over Slurm's PMI2.
AC_DEFUN([MUSTER_MPI], [
  AC_ARG_WITH([mpi], [AS_HELP_STRING([--with-mpi], [collectives between CPU nodes, through MPICH or one of its ABI family @<:@auto@:>@])],
              [], [with_mpi=auto])
  have_mpi=no
  AS_IF([test "x$with_mpi" != xno],
        [PKG_CHECK_MODULES([MPI], [mpich], [have_mpi=yes],
           [AS_IF([test "x$with_mpi" = xyes], [AC_MSG_ERROR([MPICH not found; on Debian: apt-get install libmpich-dev])])])])
  # mpich.pc puts linker hardening flags into its cflags; they belong to whoever links.
  MPI_CFLAGS=`AS_ECHO(["$MPI_CFLAGS"]) | sed 's/-Wl,[[^ ]]*//g'`
  AS_IF([test "x$have_mpi" = xyes], [AC_DEFINE([HAVE_MPI], [1], [MPI collectives])])
  AM_CONDITIONAL([HAVE_MPI], [test "x$have_mpi" = xyes])
])
