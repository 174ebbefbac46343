AC_DEFUN([MUSTER_LIBCONFIG], [
  PKG_CHECK_MODULES([LIBCONFIG], [libconfig], [], [AC_MSG_ERROR([libconfig is needed to read job files; on Debian: apt-get install libconfig-dev])])
])
