/* test_job_broken.h - the part of test_job.c about job files that must be refused. */
#ifndef MUSTER_TESTS_TEST_JOB_BROKEN_H
#define MUSTER_TESTS_TEST_JOB_BROKEN_H

void every_broken_file_has_its_message(void **state);
void every_broken_override_has_its_message(void **state);
void unreadable_files_are_named(void **state);
void every_path_that_a_shell_would_expand_is_refused(void **state);
void a_byte_order_mark_is_no_part_of_a_job_file(void **state);
void mutations_never_crash(void **state);

#endif
