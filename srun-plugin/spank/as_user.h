/*
 * as_user.h - helper of slurmstepd and the epilog: root starts a program of muster as the user of a job.
 *
 * The user may have other processes on the node, in another job or by ssh. Through this program they must gain neither
 * root's privileges nor a process outside of all jobs' cgroups. So nothing of slurmd's goes along, and the program's
 * real group differs from the effective one. Only the latter counts for files; because they differ, the kernel lets
 * only root trace the program or take its descriptors or memory, from its first instruction on. (A shell would set the
 * effective group to the real one.)
 */
#ifndef MUSTER_SRUN_PLUGIN_SPANK_AS_USER_H
#define MUSTER_SRUN_PLUGIN_SPANK_AS_USER_H

#include <sys/types.h>

struct user_ids {
    uid_t uid;
    gid_t gid; /* if there are groups */
    const gid_t *groups;
    int group_count; /* 0: gid and groups are those of the password database */
};

enum { AS_NO_USER = 126, AS_NO_PROGRAM = 127 }; /* exit statuses of a child that is not the program */

/*
 * In a child process: becomes the user and runs argv[0]. files: what it has as standard input, output and errors (the
 * input -1: /dev/null); all others are closed. Does not return. Where this process is not root's, it must be the user's.
 */
_Noreturn void as_user_run(const struct user_ids *user, const int files[3], char *const argv[],
                           char *const environment[]);

#endif
