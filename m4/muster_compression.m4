# muster-data reads compressed texts.
AC_DEFUN([MUSTER_COMPRESSION], [
  PKG_CHECK_MODULES([ZLIB], [zlib], [], [AC_MSG_ERROR([zlib is needed for compressed texts; on Debian: apt-get install zlib1g-dev])])
  PKG_CHECK_MODULES([ZSTD], [libzstd], [], [AC_MSG_ERROR([libzstd is needed for compressed texts; on Debian: apt-get install libzstd-dev])])
])
