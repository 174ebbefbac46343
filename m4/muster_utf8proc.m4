AC_DEFUN([MUSTER_UTF8PROC], [
  PKG_CHECK_MODULES([UTF8PROC], [libutf8proc], [], [AC_MSG_ERROR([utf8proc is needed for tokenizers; on Debian: apt-get install libutf8proc-dev])])
])
