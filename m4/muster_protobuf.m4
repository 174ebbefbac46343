AC_DEFUN([MUSTER_PROTOBUF], [
  PKG_CHECK_MODULES([PROTOBUF], [libprotobuf-c], [], [AC_MSG_ERROR([protobuf-c is needed for TensorBoard's event files; on Debian: apt-get install libprotobuf-c-dev])])
  AC_CHECK_PROG([PROTOC_C], [protoc-c], [protoc-c])
  AS_IF([test "x$PROTOC_C" = x], [AC_MSG_ERROR([protoc-c is needed for TensorBoard's event files; on Debian: apt-get install protobuf-c-compiler])])
])
