/* muster-data on files of other programs: JSON lines under any name, vocabularies of unknown kinds, values of any size. */
#include "config.h"
#include "tests/unit/muster_data_run.h"

/* transformers writes this number where a tokenizer has no longest text. */
static void values_that_are_not_needed_do_not_matter(void **state)
{
    static const char others[] = "{\"model_max_length\": 1000000000000000019884624838656, \"a\": [NaN, -Infinity, "
                                 "1e999], \"\\u0000\": \"\\ud800\", \"b\": 1, \"b\": 2%s}";
    char text[300];

    write_text("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n");
    write_text("a.jsonl", "{\"text\": 1e999, \"\\ud800\": \"\\udc00\", \"n\": [NaN, 1000000000000000019884624838656], "
                          "\"text\": \"a b\"}\n");
    snprintf(text, sizeof text, others, "");
    write_text("tokenizer_config.json", text);
    write_text("special_tokens_map.json", text);
    write_text("added_tokens.json", "{}");
    expect("a.jsonl --tokenizer . --out set", 0, "set: 2 tokens, 1 document; wrote set.bin and set.idx\n");
    snprintf(text, sizeof text, others, ", \"added_tokens_decoder\": {\"1\": NaN}");
    write_text("tokenizer_config.json", text);
    expect("a.jsonl --tokenizer . --out other", 65,
           "muster-data: ./tokenizer_config.json: added_tokens_decoder.1.content: a missing value is not supported; "
           "expected a string\n");
    write_text("tokenizer_config.json", "{\"a\": NaN,\n \"b\": nan}");
    expect("a.jsonl --tokenizer . --out other", 65,
           "muster-data: ./tokenizer_config.json:2:9: invalid token near 'nan'\n");
    write_text("b.jsonl", "{\"text\": \"\\ud800\"}\n");
    expect("b.jsonl --out other", 65,
           "muster-data: b.jsonl:1, offset 16: half of a surrogate pair, which is no character\n");
}

#define UNKNOWN                                                                                                        \
    "tok/tokenizer.json: pre_tokenizer.type: \"Whitespace\" is not supported; expected \"Metaspace\", "                \
    "\"ByteLevel\" or a \"Sequence\" that ends with it"

/* Writes a tokenizer.json of a kind that is not known, with these members of its model. */
static void write_unknown(const char *model, const char *added)
{
    char text[300];

    snprintf(text, sizeof text,
             "{\"pre_tokenizer\": {\"type\": \"Whitespace\"}, \"added_tokens\": [%s], \"model\": {\"type\": \"BPE\", "
             "\"merges\": []%s}}",
             added, model);
    write_text("tok/tokenizer.json", text);
}

static void a_known_vocabulary_beside_an_unknown_one_is_taken(void **state)
{
    write_text("a", "a b");
    assert_int_equal(system("mkdir tok && printf '[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb\\n' >tok/vocab.txt"),
                     0);
    write_unknown(", \"vocab\": {\"[PAD]\": 0, \"b\": 6}", "");
    expect("a --tokenizer tok --out set", 0,
           "muster-data: tok/vocab.txt is taken instead of " UNKNOWN
           "\nset: 2 tokens, 1 document; wrote set.bin and set.idx\n");
    assert_int_equal(system("test \"$(ls set.tokenizer)\" = vocab.txt"), 0); /* what was taken */
    expect("decode set", 0, "a b");
    write_unknown(", \"vocab\": {\"a\": 5, \"b\": 4, \"c\": 7}",
                  "{\"content\": \"c\", \"id\": 7}, {\"content\": \"<x>\", \"id\": 9}");
    expect("a --tokenizer tok --out b", 0,
           "muster-data: tok/vocab.txt is taken instead of " UNKNOWN
           "; warning: tokens that are not in it: 2, the first 'c' (7); warning: tokens that have another id in it: 1, "
           "the first 'b' (4)\nb: 2 tokens, 1 document; wrote b.bin and b.idx\n");
    expect("a --tokenizer tok/tokenizer.json --out c", 65, "muster-data: " UNKNOWN "\n");
    assert_int_equal(system("echo a >tok/vocab.txt"), 0);
    expect("a --tokenizer tok --out c", 65,
           "muster-data: " UNKNOWN "; beside it, tok/vocab.txt: has no [UNK]: not a vocabulary of WordPiece\n");
    assert_int_equal(unlink("tok/vocab.txt"), 0);
    expect("a --tokenizer tok --out c", 65, "muster-data: " UNKNOWN "\n");
    assert_int_equal(system("cp a tok/vocab.txt && echo { >tok/tokenizer.json"), 0);
    expect("a --tokenizer tok --out c", 65, /* a damaged file is no other kind */
           "muster-data: tok/tokenizer.json:2:0: string or '}' expected near end of file\n");
}

static void a_sentencepiece_model_beside_an_unknown_vocabulary_is_taken(void **state)
{
#ifndef HAVE_SENTENCEPIECE
    skip();
#endif
    assert_int_equal(
        system("awk 'BEGIN { for (i = 1; i < 4000; i++) { for (k = i * 7919 % 10007; k > 0; k = int(k / 6)) "
               "printf \"%s\", substr(\"etaoin\", k % 6 + 1, 1); print \"\" } }' >a"),
        0);
    write_text("tokenizer_config.json", "{\"eos_token\": \"x\"}"); /* of another tokenizer */
    expect("train-tokenizer a --vocab-size 300 --out tok", 0, "tok: a BPE vocabulary of 300 tokens\n");
    assert_int_equal(system("test \"$(ls tok)\" = tokenizer.model && test \"$(ls)\" = 'a\ntok\ntokenizer_config.json'"),
                     0);
    assert_int_equal(system("printf 7 >b; echo '{\"<pad>\": 300}' >added.json"), 0);
    expect("b --tokenizer tok --out alone", 0, "alone: 2 tokens, 1 document; wrote alone.bin and alone.idx\n");
    write_unknown("", "");
    expect("b --tokenizer tok --out set", 0,
           "muster-data: tok/tokenizer.model is taken instead of " UNKNOWN
           "\nset: 2 tokens, 1 document; wrote set.bin and set.idx\n");
    same_set("alone", "set");
    assert_int_equal(
        system("cmp tok/tokenizer.model set.tokenizer/tokenizer.model && mv added.json tok/added_tokens.json"), 0);
    expect(
        "b --tokenizer tok/tokenizer.model --out added", 0,
        "muster-data: tok/tokenizer.model is taken without added_tokens.json; warning: tokens that are not in it: 1, "
        "the first '<pad>' (300)\nadded: 2 tokens, 1 document; wrote added.bin and added.idx\n");
}

/* A vocabulary of a, b, a blank, a line feed, <s> and </s>, with this post-processor. */
static void write_small(const char *post)
{
    char text[800];

    snprintf(text, sizeof text,
             "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"post_processor\": %s, "
             "\"added_tokens\": [{\"id\": 4, \"content\": \"<s>\", \"special\": true}, {\"id\": 5, \"content\": "
             "\"</s>\", \"special\": true}], \"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {\"a\": 0, "
             "\"b\": 1, \"\xc4\xa0\": 2, \"\xc4\x8a\": 3}}}",
             post);
    write_text("tok/tokenizer.json", text);
}

#define LOST  "1 byte of the texts has no token in the vocabulary, the first: a.jsonl:3, byte 0x78\n"
#define EMPTY "left out 1 of 3 documents, which is empty: a.jsonl:2\n"

static void documents_begin_with_a_token_on_request(void **state)
{
    assert_int_equal(system("mkdir tok"), 0);
    write_small(
        "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, {\"Sequence\": {}}]}");
    write_text("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"\"}\n{\"text\": \"ba x\"}\n");
    expect("a.jsonl --tokenizer tok --out without", 0,
           "muster-data: tok begins each text with <s> by its template, which is left out; --bos template puts it "
           "there\n" LOST EMPTY "without: 5 tokens, 2 documents; wrote without.bin and without.idx\n");
    expect("a.jsonl --tokenizer tok --out set --bos template", 0,
           LOST EMPTY "set: 7 tokens, 2 documents; wrote set.bin and set.idx\n");
    expect("decode set", 0, "<s>ab<s>ba ");
    expect("a.jsonl --tokenizer tok --out both --bos '</s>' --append-eod --workers 2", 0,
           LOST EMPTY "both: 9 tokens, 2 documents; wrote both.bin and both.idx\n");
    expect("decode both --documents 1", 0, "</s>ba </s>");
    expect("a.jsonl --tokenizer tok --out other --bos '<x>'", 78, "muster-data: --bos <x>: tok has no such token\n");
    write_small("null");
    expect("a.jsonl --tokenizer tok --out other --bos template", 78,
           "muster-data: tok has no template that begins a text: give --bos the token\n");
    expect("a.jsonl --out other --bos template", 64,
           "muster-data: --bos was given without --tokenizer; muster-data --help lists the options\n");
    assert_int_equal(system("printf '<s>a' >special && ! ls other.* 2>/dev/null"),
                     0); /* a special token in a text is text */
    expect("special --tokenizer tok --out special", 0,
           "3 bytes of the texts have no token in the vocabulary, the first: special:1, byte 0x3c\n"
           "special: 1 token, 1 document; wrote special.bin and special.idx\n");
}

static void the_first_byte_without_a_token_is_named(void **state)
{
    static const char *const workers[] = {"1", "3"};
    char command[100];

    assert_int_equal(system("mkdir tok; yes 'a b' | head -n 200000 >a; printf 'ab x\\303\\251\\nx' >>a; "
                            "yes 'ax' | head -n 100000 >b"),
                     0);
    write_small("null");
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "a b --tokenizer tok --out set%d --workers %s", i, workers[i]);
        assert_int_equal(run_shell("'%s' %s", program, command), 0);
        assert_non_null(strstr(output,
                               "100004 bytes of the texts have no token in the vocabulary, the first: a:200001, "
                               "byte 0x78\n"));
    }
    same_set("set0", "set1");
    assert_int_equal(run_shell("'%s' a --tokenizer tok --out sentences --sentences", program), 0);
    assert_non_null(
        strstr(output, "4 bytes of the texts have no token in the vocabulary, the first: a:200001, byte 0x78\n"));
}

#define NOTICE " is read as JSON lines, and so are other texts like it; --raw takes each text as one document\n"

static void json_lines_are_found_by_their_contents(void **state)
{
    static const char *const names[] = {"a.ndjson", "a.JSONL", "part-00000", "a.txt", "b.ndjson.gz", "part.zst", "-"};
    char command[200], expected[400];

    write_text("a.ndjson", "\n {\"n\": [NaN, {}], \"text\": \"one\"} \r\n{\"text\": \"two\"}\n");
    assert_int_equal(
        system("for to in a.JSONL part-00000 a.txt; do cp a.ndjson $to; done; gzip <a.ndjson >b.ndjson.gz"), 0);
    assert_int_equal(system("printf '(\\265/\\375 3\\231\\001\\000' >part.zst; tail -c +2 a.ndjson >>part.zst"), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *name = names[i];

        snprintf(command, sizeof command, "%s --out set%zu < part-00000", name, i);
        snprintf(expected, sizeof expected,
                 "muster-data: %s" NOTICE "set%zu: 6 tokens, 2 documents; wrote set%zu.bin and set%zu.idx\n",
                 strcmp(name, "-") == 0 ? "standard input" : name, i, i, i);
        expect(command, 0, expected);
        snprintf(command, sizeof command, "%s --raw --out raw%zu < part-00000", name, i);
        snprintf(expected, sizeof expected, "raw%zu: 5%d tokens, 1 document; wrote raw%zu.bin and raw%zu.idx\n", i,
                 strcmp(name, "part.zst") == 0 ? 1 : 2, i, i);
        expect(command, 0, expected);
    }
    expect("a.ndjson part-00000 a.txt --out all", 0, /* one line for all */
           "muster-data: a.ndjson" NOTICE "all: 18 tokens, 6 documents; wrote all.bin and all.idx\n");
    expect("part-00000 --key other --out key", 65,
           "muster-data: part-00000:2, offset 1: the object has no key \"other\"; --key names another\n");
    expect("part-00000 --raw --key text --out key", 64,
           "muster-data: --key and --raw were both given; muster-data --help lists the options\n");
}

/* Long lines are as short ones, whatever is cut; a text that only looks like JSON is none. */
static void a_long_first_line_is_json_and_other_braces_are_text(void **state)
{
    static const char *const texts[] = {
        "{", "{}x\n", "{\n \"text\": \"a\"\n}\n", "{\"text\": \"a\"", "[1, {\"text\": 1}]\n", "{ int x; }\n"};
    char expected[200];

    assert_int_equal(
        system("{ printf '{\"text\": \"'; yes '\\u00e9' | head -n 60000 | tr -d '\\n'; echo '\"}'; } >long"), 0);
    expect("long --out long", 0,
           "muster-data: long" NOTICE "long: 120000 tokens, 1 document; wrote long.bin and long.idx\n");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_text("text", texts[i]);
        snprintf(expected, sizeof expected, "set: %zu token%s, 1 document; wrote set.bin and set.idx\n",
                 strlen(texts[i]), i ? "s" : "");
        assert_int_equal(system("rm -f set.*"), 0);
        expect("text --out set", 0, expected);
    }
    write_text("broken.ndjson", "{\"text\": \"a\n");
    expect("broken.ndjson --out none", 65,
           "muster-data: broken.ndjson" NOTICE "muster-data: broken.ndjson:1, offset 11: the JSON ends early\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(values_that_are_not_needed_do_not_matter, clean),
        cmocka_unit_test_setup(a_known_vocabulary_beside_an_unknown_one_is_taken, clean),
        cmocka_unit_test_setup(a_sentencepiece_model_beside_an_unknown_vocabulary_is_taken, clean),
        cmocka_unit_test_setup(documents_begin_with_a_token_on_request, clean),
        cmocka_unit_test_setup(the_first_byte_without_a_token_is_named, clean),
        cmocka_unit_test_setup(json_lines_are_found_by_their_contents, clean),
        cmocka_unit_test_setup_teardown(a_long_first_line_is_json_and_other_braces_are_text, clean, clean),
    };

    return cmocka_run_group_tests_name("muster_data_foreign", tests, enter, leave);
}
