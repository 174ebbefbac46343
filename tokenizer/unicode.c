#include "tokenizer/unicode.h"

#include <pthread.h>
#include <stdlib.h>
#include <utf8proc.h>

static uint8_t classes[CODE_POINTS];

static int is_space(uint32_t code)
{
    return (code >= 9 && code <= 13) || code == 0x20 || code == 0x85 || code == 0xa0 || code == 0x1680 ||
           (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f ||
           code == 0x3000;
}

static uint8_t class_of(uint32_t code)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    uint8_t class = CLASS_OTHER;

    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO)
        class = CLASS_LETTER;
    else if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO)
        class = CLASS_NUMBER;
    else if (is_space(code))
        class = CLASS_SPACE;
    if (code == '\n' || code == '\r')
        class |= CLASS_NEWLINE;
    if (category == UTF8PROC_CATEGORY_MN)
        class |= CLASS_ACCENT;
    if (category >= UTF8PROC_CATEGORY_CC && category <= UTF8PROC_CATEGORY_CO)
        class |= CLASS_CONTROL;
    if ((category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO) ||
        (code > ' ' && code < 0x7f && (class & CLASS_OTHER)))
        class |= CLASS_PUNCT;
    return class;
}

static void fill_classes(void)
{
    for (uint32_t code = 0; code < CODE_POINTS; code++)
        classes[code] = class_of(code);
}

const uint8_t *unicode_classes(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, fill_classes);
    return classes;
}

int unicode_in_word(uint32_t code)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);

    /* letters, marks, digits and numbers that are letters; joiners; circled and squared letters, which are alphabetic */
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) || category == UTF8PROC_CATEGORY_PC ||
           code == 0x200c || code == 0x200d || (code >= 0x24b6 && code <= 0x24e9) ||
           (code >= 0x1f130 && code <= 0x1f149) || (code >= 0x1f150 && code <= 0x1f169) ||
           (code >= 0x1f170 && code <= 0x1f189);
}

int utf8_previous(const uint8_t *begin, const uint8_t *text, uint32_t *code)
{
    for (int length = 1; length <= 4 && length <= text - begin; length++) {
        if ((text[-length] & 0xc0) == 0x80)
            continue;
        if (utf8_next(text - length, text, code) == length)
            return length;
        break;
    }
    *code = REPLACEMENT;
    return 1;
}

/* The end of the run of valid characters that begins at text; *composed becomes false if it may not be in NFC. */
static const uint8_t *valid_run(const uint8_t *text, const uint8_t *end, bool *composed)
{
    uint32_t code;

    while (text < end) {
        int length = utf8_next(text, end, &code);

        if (code == REPLACEMENT && length == 1)
            break;
        if (code >= 0x300)
            *composed = false;
        text += length;
    }
    return text;
}

static int append_composed(struct text_list *out, const uint8_t *text, size_t bytes, struct error *err)
{
    utf8proc_uint8_t *form = NULL;
    utf8proc_ssize_t length = utf8proc_map(text, (utf8proc_ssize_t)bytes, &form, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    int result = length < 0 ? error_set(err, CODE_IO, "out of memory for the normal form of %zu bytes", bytes)
                            : text_list_append(out, (const char *)form, (size_t)length, err);

    free(form);
    return result;
}

int unicode_nfc(const char *text, size_t bytes, struct text_list *out, struct error *err)
{
    const uint8_t *at = (const uint8_t *)text, *end = at + bytes, *stop = at;

    while (stop < end && *stop < 0xcc) /* U+0300 begins with that byte */
        stop++;
    if (stop == end)
        return 0;
    for (; at < end; at = stop) {
        bool composed = true;

        stop = valid_run(at, end, &composed);
        stop += stop == at; /* a byte that is not UTF-8 */
        if ((composed ? text_list_append(out, (const char *)at, (size_t)(stop - at), err)
                      : append_composed(out, at, (size_t)(stop - at), err)) < 0)
            return -1;
    }
    return 1;
}
