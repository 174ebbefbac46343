/* tokenizer_save: the copy gives the same tokenizer, is complete or not there, and replaces nothing. */
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/test_files.h"
#include "tokenizer/tokenizer.h"

static char directory[] = "test_tokenizer_save.XXXXXX";
static struct error err;

static int enter(void **state)
{
    return mkdtemp(directory) && chdir(directory) == 0 ? 0 : -1;
}

static int leave(void **state)
{
    return chdir("..") == 0 && rmdir(directory) == 0 ? 0 : -1;
}

/* By name from outside, so that it can empty no other directory. */
static int clean(void **state)
{
    char command[256];

    snprintf(command, sizeof command, "rm -rf ../%s/*", directory);
    return system(command) == 0 ? 0 : -1;
}

/* GPT-2's kind of vocabulary: the bytes in the alphabet of such files, and two merges. */
static void write_pair(const char *vocab, const char *merges)
{
    FILE *file = fopen(vocab, "w");
    int next = 256;

    assert_non_null(file);
    fprintf(file, "{\"th\": 256, \"the\": 257, \"<|endoftext|>\": 258");
    for (int byte = 0; byte < 256; byte++) {
        int shown = (byte > ' ' && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);

        fprintf(file, ", \"\\u%04x\": %d", (unsigned)(shown ? byte : next), byte);
        next += !shown;
    }
    fprintf(file, "}");
    assert_int_equal(fclose(file), 0);
    write_text(merges, "#version: 0.2\nt h\nth e\n");
}

static uint32_t fingerprint(const char *path)
{
    struct tokenizer *tokenizer = tokenizer_open(path, &err);
    uint32_t sum;

    if (!tokenizer)
        fail_msg("%s", err.text);
    sum = tokenizer_fingerprint(tokenizer);
    tokenizer_close(tokenizer);
    return sum;
}

static void expect_files(const char *dir, const char *names)
{
    char command[300];

    snprintf(command, sizeof command, "test \"$(ls -A %s | tr '\\n' ' ')\" = '%s '", dir, names);
    assert_int_equal(system(command), 0);
}

static void save(const char *path, const char *dir)
{
    if (tokenizer_save(path, dir, &err) < 0)
        fail_msg("%s", err.text);
}

static void a_copy_is_the_same_tokenizer(void **state)
{
    write_pair("gpt2-vocab.json", "gpt2-merges.txt");
    save("gpt2-merges.txt", "copy/");
    expect_files("copy", "merges.txt vocab.json");
    assert_int_equal(fingerprint("copy"), fingerprint("gpt2-vocab.json"));
    expect_files(".", "copy gpt2-merges.txt gpt2-vocab.json");

    assert_int_equal(mkdir("openai", 0777), 0);
    write_pair("openai/encoder.json", "openai/vocab.bpe");
    save("openai", "copy2");
    expect_files("copy2", "merges.txt vocab.json");
    assert_int_equal(fingerprint("copy2"), fingerprint("copy"));

    write_text("bert-vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n");
    write_text("tokenizer_config.json", "{\"do_lower_case\": false}");
    save("bert-vocab.txt", "copy3");
    expect_files("copy3", "tokenizer_config.json vocab.txt");
    assert_int_equal(fingerprint("copy3"), fingerprint("bert-vocab.txt"));
    save("copy3", "copy4"); /* of a copy */
    assert_int_equal(fingerprint("copy4"), fingerprint("bert-vocab.txt"));
}

static void refuse(const char *path, const char *dir)
{
    assert_int_equal(tokenizer_save(path, dir, &err), -1);
    assert_int_equal(err.code, CODE_USAGE);
    assert_string_equal(err.text, "copy is another tokenizer: move it, or choose another name");
}

static void another_tokenizer_is_not_replaced(void **state)
{
    struct stat before, after;

    write_pair("vocab.json", "merges.txt");
    write_text("vocab.txt", "[UNK]\na\n##b\n");
    assert_int_equal(mkdir("copy.tmp", 0777), 0); /* of a process that was killed */
    write_text("copy.tmp/vocab.json", "{");
    save("vocab.json", "copy");
    assert_int_equal(stat("copy", &before), 0);
    save("vocab.json", "copy");
    assert_int_equal(stat("copy", &after), 0);
    assert_int_equal(before.st_ino, after.st_ino); /* the same: nothing was written */
    refuse("vocab.txt", "copy");
    refuse("bytes", "copy");
    write_text("copy/vocab.txt", ""); /* a file more makes another tokenizer */
    refuse("vocab.json", "copy");
    expect_files("copy", "merges.txt vocab.json vocab.txt");
    assert_int_equal(tokenizer_remove("copy", &err), 0);
    assert_int_equal(tokenizer_remove("copy", &err), 0);
    save("bytes", "copy");
    expect_files(".", "merges.txt vocab.json vocab.txt");
}

static void other_files_are_kept(void **state)
{
    write_text("vocab.txt", "[UNK]\na\n##b\n");
    assert_int_equal(mkdir("copy", 0777), 0);
    write_text("copy/notes", "mine");
    refuse("vocab.txt", "copy");
    refuse("bytes", "copy");
    assert_int_equal(tokenizer_remove("copy", &err), -1);
    assert_string_equal(err.text, "cannot remove copy/: Directory not empty");
    expect_files("copy", "notes");
    write_text("file", "");
    assert_int_equal(tokenizer_save("vocab.txt", "file", &err), -1);
    assert_int_equal(err.code, CODE_IO);
    assert_int_equal(tokenizer_save("vocab.txt", "none/copy", &err), -1);
    assert_string_equal(err.text, "cannot create none/copy.tmp: No such file or directory");
    assert_int_equal(tokenizer_save("none", "copy2", &err), -1);
    assert_string_equal(err.text, "none: No such file or directory");
    expect_files(".", "copy file vocab.txt");
}

/* Templates, and what only transformers reads, go along; of a directory, all vocabularies. */
static void all_files_that_belong_to_it_are_copied(void **state)
{
    assert_int_equal(system("mkdir -p hf/additional_chat_templates hf/chat_templates hf/other"), 0);
    assert_int_equal(
        system("cd hf; for name in tokenizer_config.json special_tokens_map.json added_tokens.json; do echo {} "
               ">$name; done; for name in chat_template.jinja additional_chat_templates/rag.jinja "
               "chat_templates/tool.jinja chat_template.json tokenization_own.py model.safetensors "
               "README.md other/x.jinja; do echo $name >$name; done"),
        0);
    write_pair("hf/vocab.json", "hf/merges.txt");
    write_text("hf/spiece.model", "a model");
    write_text("hf/vocab.txt", "[UNK]\na\n##b\n");
    write_text("hf/tokenizer.json", "{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}");
    save("hf", "copy");
    assert_int_equal(system("cd hf && rm -r README.md model.safetensors other && diff -r . ../copy"), 0);
    save("copy", "copy/"); /* the same: nothing is written */
    assert_int_equal(unlink("copy/chat_templates/tool.jinja"), 0);
    refuse("hf", "copy");
    save("hf/vocab.txt", "again"); /* of one vocabulary: itself, and the others that are beside it */
    expect_files("again", "added_tokens.json additional_chat_templates chat_template.jinja chat_template.json "
                          "chat_templates special_tokens_map.json tokenization_own.py tokenizer_config.json vocab.txt");
    assert_int_equal(tokenizer_remove("again", &err), 0);
    expect_files(".", "copy hf");
}

static void a_pair_beside_an_unknown_vocabulary_is_taken(void **state)
{
    struct tokenizer *tokenizer;

    assert_int_equal(mkdir("hf", 0777), 0);
    write_pair("hf/vocab.json", "hf/merges.txt");
    write_text("hf/tokenizer.json", "{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"th\": 256, \"\\u0120\": 32}}, "
                                    "\"added_tokens\": [{\"content\": \"<|endoftext|>\", \"id\": 258}]}");
    tokenizer = tokenizer_open("hf", &err);
    if (!tokenizer)
        fail_msg("%s", err.text);
    assert_string_equal(tokenizer_path(tokenizer), "hf/vocab.json");
    assert_string_equal(tokenizer_note(tokenizer),
                        "hf/vocab.json is taken instead of hf/tokenizer.json: model.type: \"WordLevel\" is not "
                        "supported; expected \"BPE\" or \"WordPiece\"; of a SentencePiece model give the .model file");
    assert_int_equal(tokenizer_fingerprint(tokenizer), fingerprint("hf/merges.txt"));
    tokenizer_close(tokenizer);
    save("hf", "copy");
    expect_files("copy", "merges.txt tokenizer.json vocab.json");
    assert_int_equal(fingerprint("copy"), fingerprint("hf"));
    assert_int_equal(unlink("hf/merges.txt"), 0); /* then it is no pair */
    assert_null(tokenizer_open("hf", &err));
    assert_null(strstr(err.text, "beside"));
    save("hf", "other");
    expect_files("other", "tokenizer.json");
}

/* As an export has a tokenizer.json beside a SentencePiece model. */
static void any_vocabulary_of_a_directory_matches(void **state)
{
    struct tokenizer *pair, *json;

    assert_int_equal(mkdir("hf", 0777), 0);
    write_pair("hf/vocab.json", "hf/merges.txt");
    pair = tokenizer_open("hf", &err);
    write_text("hf/tokenizer.json", "{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", "
                                    "\"vocab\": {\"\\u0120\": 0}, \"merges\": []}}");
    json = tokenizer_open("hf", &err);
    assert_int_equal(tokenizer_size(json), 1);
    assert_true(tokenizer_matches(pair, "hf"));
    assert_true(tokenizer_matches(json, "hf"));
    assert_true(tokenizer_matches(pair, "hf/merges.txt"));
    assert_false(tokenizer_matches(json, "hf/merges.txt"));
    assert_false(tokenizer_matches(json, "bytes"));
    assert_false(tokenizer_matches(json, "nowhere"));
    tokenizer_close(json);
    tokenizer_close(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_copy_is_the_same_tokenizer, clean),
        cmocka_unit_test_setup(another_tokenizer_is_not_replaced, clean),
        cmocka_unit_test_setup(all_files_that_belong_to_it_are_copied, clean),
        cmocka_unit_test_setup(a_pair_beside_an_unknown_vocabulary_is_taken, clean),
        cmocka_unit_test_setup(any_vocabulary_of_a_directory_matches, clean),
        cmocka_unit_test_setup_teardown(other_files_are_kept, clean, clean),
    };

    return cmocka_run_group_tests_name("tokenizer_save", tests, enter, leave);
}
