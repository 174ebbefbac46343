AC_DEFUN([MUSTER_PCRE2], [
  PKG_CHECK_MODULES([PCRE2], [libpcre2-8], [], [AC_MSG_ERROR([PCRE2 is needed for tokenizers; on Debian: apt-get install libpcre2-dev])])
])
