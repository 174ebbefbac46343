/*
 * What root does in an epilog with directories and a process that are the user's: scripts stand in for muster-ckptd. As
 * root the user is nobody, else ourselves.
 */
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "srun-plugin/spank/epilog.h"
#include "tests/unit/test_files.h"

enum { NOBODY = 65534, JOB = 4711, TEXT = 64 * 1024 };

static char base[] = "/tmp/muster-epilog-XXXXXX", program[128];
static char said[TEXT];
static int lines;
static uid_t user;

static void keep(const char *line)
{
    size_t used = strlen(said);

    lines++;
    snprintf(said + used, sizeof said - used, "%s\n", line);
}

static void stage_path(char path[256], const char *suffix)
{
    snprintf(path, 256, "%s/muster-%u-%d%s", base, (unsigned)user, JOB, suffix);
}

static void make_stage(const char *suffix)
{
    char path[256];

    stage_path(path, suffix);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chown(path, user, (gid_t)-1), 0);
}

/* The program that is run for each stage: $5 is the stage. */
static void script(const char *text)
{
    FILE *file = fopen(program, "w");

    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n%s\n", text);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(program, 0755), 0);
}

static int drain(int seconds)
{
    const struct epilog epilog = {.job_id = JOB, .uid = user, .roots = base, .ckptd = program, .seconds = seconds};

    said[0] = '\0';
    lines = 0;
    return epilog_drain(&epilog, keep);
}

static int set_up(void **state)
{
    user = geteuid() == 0 ? NOBODY : geteuid();
    if (!mkdtemp(base) || chmod(base, 0755) < 0)
        return -1;
    snprintf(program, sizeof program, "%s/program", base);
    return 0;
}

static int empty(void **state)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s/muster-*", base);
    return system(command);
}

static int tear_down(void **state)
{
    unlink(program);
    return rmdir(base);
}

static void each_stage_of_the_job_is_drained(void **state)
{
    make_stage("");
    make_stage(".n1.5d0c1b2a");
    make_stage("0"); /* of job 47110 */
    script("echo $(id -u) \"$@\"; cat");
    assert_int_equal(drain(30), 2);
    assert_non_null(strstr(said, "4711: drained after job 4711\n"));
    assert_non_null(strstr(said, "4711.n1.5d0c1b2a: drained after job 4711\n"));
    assert_null(strstr(said, "47110"));
    assert_non_null(
        strstr(said, user == NOBODY ? "65534 --once --partner --seconds " : " --once --partner --seconds "));
}

/* Slurm ends each component under its own id, while the tasks of all have that of the first. */
static void of_a_heterogeneous_job_too(void **state)
{
    struct epilog epilog = {.job_id = JOB + 1, .het_job_id = JOB, .uid = user, .roots = base, .ckptd = program};

    make_stage(".n1.5d0c1b2a");
    script("exit 0");
    epilog.seconds = 30;
    said[0] = '\0';
    assert_int_equal(epilog_drain(&epilog, keep), 1);
    assert_non_null(strstr(said, "4711.n1.5d0c1b2a: drained"));
    epilog.het_job_id = 0;
    assert_int_equal(epilog_drain(&epilog, keep), 0);
}

/* Those of earlier jobs too, each as its user, and after the job's own. */
static void what_earlier_jobs_left_is_drained(void **state)
{
    struct epilog epilog = {.job_id = JOB, .uid = user, .roots = base, .ckptd = program, .keep = "24h", .seconds = 30};
    char path[256];

    if (getenv("MUSTER_TEST_EMULATED")) {
        print_message("# an emulator sets no limit on memory\n");
        skip();
    }
    make_stage(".n1.5d0c1b2a");
    make_stage("0.n1.5d0c1b2a");
    make_stage("0x"); /* no job's */
    stage_path(path, "00");
    assert_int_equal(mkdir(path, 0700), 0); /* another user's who pretends, or root's */
    assert_int_equal(chown(path, user + (geteuid() == 0), (gid_t)-1), 0);
    script("echo got \"$@\"; ulimit -d");
    said[0] = '\0';
    assert_int_equal(epilog_drain(&epilog, keep), geteuid() == 0 ? 2 : 3);
    assert_non_null(strstr(said, "4711.n1.5d0c1b2a\n4194304\n")); /* KiB */
    assert_non_null(strstr(said, "47110.n1.5d0c1b2a --reclaim=24h\n"));
    assert_true(strstr(said, "drained after job 4711\n") < strstr(said, "--reclaim"));
    assert_null(strstr(said, "0x"));
    epilog.job_id = 0; /* slurmd starts: none is its own */
    said[0] = '\0';
    assert_int_equal(epilog_drain(&epilog, keep), geteuid() == 0 ? 2 : 3);
    assert_non_null(strstr(said, "4711.n1.5d0c1b2a --reclaim=24h\n"));
}

static void slurmd_does_not_wait_for_it(void **state)
{
    const struct epilog epilog = {.uid = user, .roots = base, .ckptd = program, .keep = "24h", .seconds = 30};
    int ends[2];
    char byte;

    make_stage("");
    assert_int_equal(pipe(ends), 0); /* open until the process has ended that nobody waits for */
    script("while [ ! -e \"$5/go\" ]; do sleep 0.01; done");
    assert_int_equal(epilog_start(&epilog, keep), 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    make_stage("/go");
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 0);
    close(ends[0]);
}

static int distrust(const char *path, struct error *err)
{
    snprintf(err->text, sizeof err->text, "%s is anybody's", path);
    return -1;
}

static void a_program_that_anybody_could_write_is_not_run(void **state)
{
    const struct epilog epilog = {
        .job_id = JOB, .uid = user, .roots = base, .ckptd = program, .trust = distrust, .seconds = 30};

    make_stage("");
    script("echo ran");
    said[0] = '\0';
    epilog_drain(&epilog, keep);
    assert_non_null(strstr(said, "4711: not drained: "));
    assert_non_null(strstr(said, "program is anybody's\n"));
    assert_null(strstr(said, "ran"));
}

/* The directory is everybody's, and the log is root's. */
static void a_name_forges_no_line_of_the_log(void **state)
{
    make_stage(".x\n[2026-11-22T14:22:53] error: forged");
    make_stage(".x\033[31m");
    make_stage(".x y");
    script("exit 0");
    assert_int_equal(drain(30), 0);
    assert_string_equal(said, "");
}

static void what_it_prints_comes_as_printable_lines(void **state)
{
    make_stage("");
    script("printf 'a\\033[31mb\\302\\233c\\n\\nlast' >&2; exit 74");
    assert_int_equal(drain(30), 1);
    assert_non_null(strstr(said, "a?[31mb??c\nlast\n"));
    assert_non_null(strstr(said, "not fully drained: muster-ckptd ended with 74"));
}

/* What muster-ckptd could not write stays there: nobody is promised to go on with it. */
static void what_is_left_is_said_to_be_kept(void **state)
{
    make_stage("");
    script("exit 75");
    assert_int_equal(drain(30), 1);
    assert_non_null(strstr(said, "not fully drained; the rest is kept"));
    assert_null(strstr(said, "requeued job"));
}

static void endless_output_is_cut(void **state)
{
    make_stage("");
    script("yes | head -n 100000; exit 0");
    assert_int_equal(drain(30), 1);
    assert_in_range(lines, 10, 60);
    assert_non_null(strstr(said, "left out\n"));
    assert_non_null(strstr(said, "drained after job"));
}

static void thousands_of_stages_are_no_work_for_root(void **state)
{
    char suffix[16];

    for (int i = 0; i < 200; i++) {
        snprintf(suffix, sizeof suffix, ".%d", i);
        make_stage(suffix);
    }
    script("exit 0");
    assert_int_equal(drain(300), 64);
    assert_int_equal(lines, 65);
}

/* A stage of an earlier job, of each of some users: ours, and if we are root others. */
static int make_leftovers(uid_t first, int users, int each)
{
    char path[256];

    if (geteuid() != 0)
        users = 1;
    for (int i = 0; i < users * each; i++) {
        uid_t owner = geteuid() == 0 ? first + (uid_t)(i / each) : user;

        snprintf(path, sizeof path, "%s/muster-%u-%d", base, (unsigned)owner, 1 + i % each);
        assert_int_equal(mkdir(path, 0700), 0);
        assert_int_equal(chown(path, owner, (gid_t)-1), 0);
    }
    return users;
}

static void drain_leftovers(uint32_t job, int seconds)
{
    const struct epilog epilog = {
        .job_id = job, .uid = user, .roots = base, .ckptd = program, .keep = "24h", .seconds = seconds};

    said[0] = '\0';
    lines = 0;
    epilog_drain(&epilog, keep);
}

static void junk_of_one_user_keeps_no_other_from_its_turn(void **state)
{
    char name[64];

    if (geteuid() != 0) {
        print_message("# only root drains for several users; names must exist: nobody, and those of Debian's base\n");
        skip();
    }
    make_leftovers(1, 1, 500);
    make_leftovers(2, 4, 1);
    script("echo \"$5\"");
    drain_leftovers(JOB, 60);
    for (int i = 2; i < 6; i++) {
        snprintf(name, sizeof name, "%s/muster-%d-1\n", base, i);
        assert_non_null(strstr(said, name));
    }
    assert_non_null(strstr(said, " stages are not looked at: "));
    assert_null(strstr(strstr(said, " stages are not looked at: ") + 1, " stages are not looked at: "));
}

/* So that what hangs, and takes the time of an epilog, takes that of one user only in some of them. */
static void each_user_comes_first_in_some_epilogs(void **state)
{
    int users = make_leftovers(1, 3, 2), firsts[2][4] = {0};

    script("echo \"$5\"");
    for (uint32_t job = JOB; job < JOB + 100; job++) { /* lots depend on inodes: one in ten million runs fails */
        unsigned owner, number;

        drain_leftovers(job, 60);
        assert_int_equal(sscanf(said + strlen(base), "/muster-%u-%u", &owner, &number), 2);
        firsts[number - 1][geteuid() == 0 ? owner : 1]++;
    }
    for (int i = 1; i <= users; i++)
        assert_true(firsts[0][i] > 0 && firsts[1][i] > 0);
}

static double seconds_told(void);

static void what_others_left_gets_two_seconds_in_all(void **state)
{
    make_stage("");
    make_leftovers(1, 1, 2);
    script("case $5 in *-4711) exit 0 ;; esac\necho told $4");
    drain_leftovers(JOB, 60);
    assert_true(seconds_told() > 0 && seconds_told() <= 1);
    drain_leftovers(0, 60); /* slurmd starts: no job waits */
    assert_true(seconds_told() > 10);
}

/* By a signal, which its user may send. It would take all the time of every epilog. */
static void one_that_its_user_stops_is_killed_at_once(void **state)
{
    make_stage("");
    script("kill -STOP $$");
    assert_int_equal(drain(86400), 1);
    assert_non_null(strstr(said, "was killed"));
}

/* What the script got as --seconds. */
static double seconds_told(void)
{
    const char *at = strstr(said, "told ");

    assert_non_null(at);
    return strtod(at + 5, NULL);
}

static void its_seconds_are_less_than_the_epilogs(void **state)
{
    make_stage("");
    script("echo told $4");
    assert_int_equal(drain(60), 1);
    assert_true(seconds_told() > 40 && seconds_told() <= 50);
    assert_int_equal(drain(6), 1);
    assert_true(seconds_told() > 1 && seconds_told() <= 4);
    assert_int_equal(drain(1), 1);
    assert_true(seconds_told() > 0 && seconds_told() < 1);
}

/* Drains a stage whose script hangs, for 4 s. What is granted beyond them, once 5 or 10 s, would be noticed. */
static bool drain_in_time(void)
{
    time_t start = time(NULL);

    return drain(4) == 1 && time(NULL) - start <= 7;
}

static void what_hangs_is_killed_in_time(void **state)
{
    make_stage("");
    script("trap '' TERM; sleep 60");
    assert_true(drain_in_time());
    assert_non_null(strstr(said, "was killed"));
}

static char warning[512];

static void keep_warning(const char *line)
{
    snprintf(warning, sizeof warning, "%s", line);
}

static void it_ends_before_slurmd_kills_it(void **state)
{
    warning[0] = '\0';
    assert_int_equal(epilog_timeout_fit(60, EPILOG_NO_TIMEOUT, keep_warning), 60);
    assert_int_equal(epilog_timeout_fit(60, 63, keep_warning), 60);
    assert_int_equal(epilog_timeout_fit(60, 62, NULL), 59);
    assert_int_equal(epilog_timeout_fit(0, 1, keep_warning), 0);
    assert_string_equal(warning, "");
    assert_int_equal(epilog_timeout_fit(60, 0, keep_warning), 0);
    assert_int_equal(epilog_timeout_fit(60, 62, keep_warning), 59);
    assert_non_null(strstr(warning, " of 62 s is too short for epilog_seconds=60 "));
    assert_non_null(strstr(warning, " for 59 s only; make the timeout 63 s or longer"));
}

/* The id of the process that runs the script, which writes it down; 0 after 10 s. */
static pid_t process_of_script(void)
{
    const struct timespec nap = {.tv_nsec = 10000000};
    char path[256], pid_path[280];
    int pid = 0;

    stage_path(path, "");
    snprintf(pid_path, sizeof pid_path, "%s/pid", path);
    for (int i = 0; i < 1000 && pid == 0; i++) {
        FILE *file = fopen(pid_path, "r");

        if (file && fscanf(file, "%d", &pid) != 1)
            pid = 0;
        if (file)
            fclose(file);
        nanosleep(&nap, NULL);
    }
    return pid;
}

enum { THIEF_GOT_NOTHING, THIEF_TOOK_A_DESCRIPTOR, THIEF_TRACES, THIEF_FOUND_NOBODY };

/* Another process of the user's, in another job on the node. */
static int steal(void)
{
    pid_t pid = process_of_script();
    int fd;

    if (pid == 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(user, user, user) < 0)
        return THIEF_FOUND_NOBODY;
    fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return THIEF_FOUND_NOBODY;
    if (syscall(SYS_pidfd_getfd, fd, STDERR_FILENO, 0) >= 0)
        return THIEF_TOOK_A_DESCRIPTOR;
    return ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0 ? THIEF_TRACES : THIEF_GOT_NOTHING;
}

static void the_user_cannot_take_the_process_over(void **state)
{
    int status;
    pid_t thief;

    if (geteuid() != 0) {
        print_message("# it is root who has something to lose\n");
        skip();
    }
    make_stage("");
    script("echo $$ >\"$5/pid\"; sleep 3; cat /proc/self/oom_score_adj");
    thief = fork();
    if (thief == 0)
        _exit(steal());
    assert_int_equal(drain(30), 1);
    assert_int_equal(waitpid(thief, &status, 0), thief);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), THIEF_GOT_NOTHING);
    assert_non_null(strstr(said, "0\n"));
}

/* A debugger keeps what was killed from its parent, as a file system that hangs does. */
static void what_cannot_be_killed_is_left_behind(void **state)
{
    int ends[2], status;
    pid_t tracer;
    char seized;
    bool in_time;

    make_stage("");
    script("echo $$ >\"$5/pid\"; sleep 60");
    assert_int_equal(pipe(ends), 0);
    tracer = fork();
    if (tracer == 0) {
        pid_t pid = process_of_script();

        seized = pid != 0 && ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0;
        if (write(ends[1], &seized, 1) == 1)
            pause();
        _exit(1);
    }
    in_time = drain_in_time();
    assert_int_equal(read(ends[0], &seized, 1), 1);
    kill(tracer, SIGKILL);
    waitpid(tracer, &status, 0);
    close(ends[0]);
    close(ends[1]);
    if (!seized) {
        print_message("# this machine lets nobody trace\n");
        skip();
    }
    assert_true(in_time);
    assert_non_null(strstr(said, "cannot be killed"));
}

/* A file system whose server takes all requests and answers the first only, which the kernel asks of itself. */
static void serve_nothing(int fd)
{
    static union {
        struct fuse_in_header header;
        char bytes[FUSE_MIN_READ_BUFFER * 4];
    } request;
    struct {
        struct fuse_out_header header;
        struct fuse_init_out init;
    } answer = {.init = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = 4096}};

    while (read(fd, &request, sizeof request) > 0) {
        if (request.header.opcode != FUSE_INIT)
            continue;
        answer.header = (struct fuse_out_header){.len = sizeof answer, .unique = request.header.unique};
        if (write(fd, &answer, sizeof answer) < 0)
            break;
    }
    _exit(1);
}

/* The server of what is mounted at `path`; -1 where this machine lets nobody mount. */
static pid_t mount_hanging(const char *path)
{
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    char options[128];
    pid_t server;

    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd);
    if (mkdir(path, 0755) < 0 || fd < 0 || mount("hanging", path, "fuse", 0, options) < 0)
        return -1;
    server = fork();
    if (server == 0)
        serve_nothing(fd);
    close(fd);
    return server;
}

/* 'D': not even SIGKILL ends it. */
static char state_of(pid_t pid)
{
    char path[64], state = '?';
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "r");
    if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = '?';
    if (file)
        fclose(file);
    return state;
}

static void what_hangs_in_the_kernel_is_left_behind(void **state)
{
    char path[128], left;
    bool in_time;
    pid_t server;

    snprintf(path, sizeof path, "%s/hanging", base);
    server = mount_hanging(path);
    if (server < 0) {
        rmdir(path);
        print_message("# nobody can mount a FUSE file system here\n");
        skip();
    }
    make_stage("");
    script("echo $$ >\"$5/pid\"; exec <\"${0%/*}/hanging/file\"");
    in_time = drain_in_time();
    left = state_of(process_of_script());
    kill(server, SIGKILL); /* who waits for it then ends */
    waitpid(server, NULL, 0);
    waitpid(process_of_script(), NULL, 0);
    umount2(path, MNT_DETACH);
    rmdir(path);
    assert_true(in_time);
    assert_int_equal(left, 'D');
    assert_non_null(strstr(said, "cannot be killed"));
}

static void removes_the_file_for_prometheus(void **state)
{
    const struct epilog epilog = {
        .job_id = JOB, .het_job_id = JOB - 1, .uid = user, .roots = base, .ckptd = program, .prometheus = base};
    const uid_t other = user == NOBODY ? 0 : user;
    char path[256];

    said[0] = '\0';
    for (int job = JOB - 1; job <= JOB; job++) {
        snprintf(path, sizeof path, "%s/muster-%u-%d.prom", base, (unsigned)user, job);
        write_file(path, "x", 1);
        assert_int_equal(chown(path, user, (gid_t)-1), 0);
    }
    assert_int_equal(chmod(base, 01777), 0);
    epilog_drain(&epilog, keep);
    assert_string_equal(said, "");
    for (int job = JOB - 1; job <= JOB; job++) {
        snprintf(path, sizeof path, "%s/muster-%u-%d.prom", base, (unsigned)user, job);
        assert_int_equal(access(path, F_OK), -1);
    }
    assert_int_equal(symlink("/etc/passwd", path), 0);
    epilog_drain(&epilog, keep);
    assert_non_null(strstr(said, ".prom: left: not a regular file of the job's user"));
    assert_int_equal(unlink(path), 0);
    if (other != user) {
        write_file(path, "x", 1);
        said[0] = '\0';
        epilog_drain(&epilog, keep);
        assert_non_null(strstr(said, ".prom: left: not a regular file of the job's user"));
        assert_int_equal(access(path, F_OK), 0);
    }
    assert_int_equal(chmod(base, 0755), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(each_stage_of_the_job_is_drained, empty),
        cmocka_unit_test_teardown(of_a_heterogeneous_job_too, empty),
        cmocka_unit_test_teardown(what_earlier_jobs_left_is_drained, empty),
        cmocka_unit_test_teardown(slurmd_does_not_wait_for_it, empty),
        cmocka_unit_test_teardown(a_program_that_anybody_could_write_is_not_run, empty),
        cmocka_unit_test_teardown(a_name_forges_no_line_of_the_log, empty),
        cmocka_unit_test_teardown(what_it_prints_comes_as_printable_lines, empty),
        cmocka_unit_test_teardown(what_is_left_is_said_to_be_kept, empty),
        cmocka_unit_test_teardown(endless_output_is_cut, empty),
        cmocka_unit_test_teardown(thousands_of_stages_are_no_work_for_root, empty),
        cmocka_unit_test_teardown(junk_of_one_user_keeps_no_other_from_its_turn, empty),
        cmocka_unit_test_teardown(each_user_comes_first_in_some_epilogs, empty),
        cmocka_unit_test_teardown(what_others_left_gets_two_seconds_in_all, empty),
        cmocka_unit_test_teardown(one_that_its_user_stops_is_killed_at_once, empty),
        cmocka_unit_test_teardown(its_seconds_are_less_than_the_epilogs, empty),
        cmocka_unit_test_teardown(what_hangs_is_killed_in_time, empty),
        cmocka_unit_test(it_ends_before_slurmd_kills_it),
        cmocka_unit_test_teardown(the_user_cannot_take_the_process_over, empty),
        cmocka_unit_test_teardown(what_cannot_be_killed_is_left_behind, empty),
        cmocka_unit_test_teardown(what_hangs_in_the_kernel_is_left_behind, empty),
        cmocka_unit_test_teardown(removes_the_file_for_prometheus, empty),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
