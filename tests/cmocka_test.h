/*
 * cmocka_test.h - what every file of a cmocka program includes: cmocka, the headers that it needs before it, and the
 * standard headers that most tests use.
 */
#ifndef MUSTER_TESTS_CMOCKA_TEST_H
#define MUSTER_TESTS_CMOCKA_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* cmocka's tests and fixtures have a parameter `state`, which few of them use. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#endif
