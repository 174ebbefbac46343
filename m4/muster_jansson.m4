AC_DEFUN([MUSTER_JANSSON], [
  PKG_CHECK_MODULES([JANSSON], [jansson], [], [AC_MSG_ERROR([jansson is needed to read checkpoint manifests; on Debian: apt-get install libjansson-dev])])
])
