AC_DEFUN([MUSTER_ISAL], [
  PKG_CHECK_MODULES([ISAL], [libisal], [], [AC_MSG_ERROR([ISA-L is needed for crc32c; on Debian: apt-get install libisal-dev])])
])
