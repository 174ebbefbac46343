/* hf_model.c - names, shapes and config.json: where Hugging Face's GPT-2 and ours differ. */
#include "config.h"

#include "ckpt/hf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void hf_model_text(char *text, size_t size, const struct model_shape *shape)
{
    snprintf(text, size, "model = { layers = %d; hidden = %d; heads = %d; seq_length = %d; vocab = %d; };\n",
             shape->layers, shape->hidden, shape->heads, shape->seq_length, shape->vocab);
}

json_t *hf_config(const struct model_shape *shape, const struct job *job, enum dtype dtype)
{
    static const char *const types[] = {[DTYPE_F32] = "float32", [DTYPE_BF16] = "bfloat16", [DTYPE_F16] = "float16"};
    double hidden = job ? job->dropout.hidden : 0, attention = job ? job->dropout.attention : 0;
    json_t *config =
        json_pack("{s:[s], s:s, s:s, s:f, s:b, s:f, s:f, s:f, s:f, s:i, s:i, s:i, s:n, s:i, s:b, s:s, s:i}",
                  "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "activation_function", "gelu_new",
                  "layer_norm_epsilon", HF_EPSILON, "tie_word_embeddings", 1, "embd_pdrop", hidden, "resid_pdrop",
                  hidden, "attn_pdrop", attention, "initializer_range", job ? job->init_std : 0.02, "n_embd",
                  shape->hidden, "n_head", shape->heads, "n_layer", shape->layers, "n_inner", "n_positions",
                  shape->seq_length, "scale_attn_weights", 1, "torch_dtype", types[dtype], "vocab_size", shape->vocab);
    bool end_of_text = shape->vocab > 50256; /* of GPT-2's tokenizer; theirs is the default, which must exist */

    if (config) {
        json_object_set_new(config, "bos_token_id", end_of_text ? json_integer(50256) : json_null());
        json_object_set_new(config, "eos_token_id", end_of_text ? json_integer(50256) : json_null());
    }
    return config;
}

/* transformers tests a flag by Python's rule: null and 0 are false, any other number is true. */
static bool has_truth(json_t *value, bool truth)
{
    if (json_is_boolean(value) || json_is_null(value))
        return json_is_true(value) == truth;
    return json_is_number(value) && (json_number_value(value) != 0) == truth;
}

/* A flag that is absent has the value that it must have. */
static int check_flags(json_t *config, struct error *err)
{
    static const struct {
        const char *key;
        bool value;
        const char *why;
    } flags[] = {
        {"tie_word_embeddings", true, "a head of its own cannot be imported"},
        {"scale_attn_weights", true, "another attention cannot be imported"},
        {"scale_attn_by_inverse_layer_idx", false, "another attention cannot be imported"},
        {"add_cross_attention", false, "another attention cannot be imported"},
    };

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        json_t *value = json_object_get(config, flags[i].key);

        if (value && !has_truth(value, flags[i].value))
            return error_set(err, CODE_DATA, "%s must be %s: %s", flags[i].key, flags[i].value ? "true" : "false",
                             flags[i].why);
    }
    return 0;
}

int hf_check_type(json_t *config, struct error *err)
{
    json_t *type = json_object_get(config, "model_type"), *epsilon = json_object_get(config, "layer_norm_epsilon");
    json_t *activation = json_object_get(config, "activation_function");
    const char *type_name = json_is_string(type) ? json_string_value(type) : "";
    const char *name = json_is_string(activation) ? json_string_value(activation) : "";

    if (type && strcmp(type_name, "gpt2") != 0)
        return error_set(err, CODE_DATA, "model_type is \"%.40s\", must be \"gpt2\"", type_name);
    if (activation && strcmp(name, "gelu_new") != 0 && strcmp(name, "gelu_pytorch_tanh") != 0)
        return error_set(err, CODE_DATA, "activation_function is \"%.40s\", must be \"gelu_new\"", name);
    if (epsilon && fabs(json_number_value(epsilon) - HF_EPSILON) > 1e-9)
        return error_set(err, CODE_DATA, "layer_norm_epsilon is %g, must be %g", json_number_value(epsilon),
                         HF_EPSILON);
    return check_flags(config, err);
}

int hf_heads(struct model_shape *shape, const char *path, const char *teller, int told, int given, struct error *err)
{
    shape->heads = told > 0 ? told : given;
    if (told > 0 && given > 0 && told != given)
        return error_set(err, CODE_USAGE,
                         "%s: its %s says that it has %d heads, and --heads says %d; leave --heads out", path, teller,
                         told, given);
    if (shape->heads < 1)
        return error_set(err, CODE_USAGE, "%s: how many heads has it? No %s tells: --heads N, N dividing %d", path,
                         teller, shape->hidden);
    if (shape->hidden % shape->heads != 0)
        return error_set(err, told > 0 ? CODE_DATA : CODE_USAGE, "%s: %d heads do not divide its width of %d", path,
                         shape->heads, shape->hidden);
    return 0;
}

int hf_check_sizes(json_t *config, const struct model_shape *shape, int *heads, struct error *err)
{
    const struct {
        const char *key;
        int value;
    } sizes[] = {{"n_embd", shape->hidden},
                 {"n_layer", shape->layers},
                 {"n_positions", shape->seq_length},
                 {"vocab_size", shape->vocab},
                 {"n_inner", 4 * shape->hidden}};
    json_t *n_head = json_object_get(config, "n_head");

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        json_t *value = json_object_get(config, sizes[i].key);

        if (json_is_integer(value) && json_integer_value(value) != sizes[i].value)
            return error_set(err, CODE_DATA, "%s is %lld, but the tensors make it %d", sizes[i].key,
                             (long long)json_integer_value(value), sizes[i].value);
    }
    if (n_head && (!json_is_integer(n_head) || json_integer_value(n_head) < 1 ||
                   json_integer_value(n_head) > shape->hidden || shape->hidden % json_integer_value(n_head) != 0))
        return error_set(err, CODE_DATA, "n_head must divide n_embd = %d", shape->hidden);
    if (n_head)
        *heads = (int)json_integer_value(n_head);
    return 0;
}

int hf_shape(const struct ckpt_tensor *tensor, uint64_t shape[2])
{
    /* c_attn, [d, 3, d] and [3, d], has Q, K and V on an axis of their own. */
    bool apart = strstr(tensor->name, ".attn.c_attn.") != NULL;
    int ndim = tensor->ndim - apart;

    shape[0] = tensor->shape[0];
    shape[1] = ndim > 1 ? tensor->shape[1] : 1;
    if (apart)
        shape[ndim - 1] *= tensor->shape[ndim];
    return ndim;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);

    return length >= tail && strcmp(text + length - tail, end) == 0;
}

bool hf_tensor(const char *name, int ndim, const uint64_t *shape, struct ckpt_tensor *tensor)
{
    if (strncmp(name, HF_PREFIX, strlen(HF_PREFIX)) == 0)
        name += strlen(HF_PREFIX);
    if (ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias"))
        return false;
    memset(tensor, 0, sizeof *tensor);
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->ndim = ndim < CKPT_MAX_DIMS ? ndim : CKPT_MAX_DIMS; /* what has more is not the model's, and found so */
    for (int d = 0; d < tensor->ndim; d++)
        tensor->shape[d] = shape[d];
    if (strstr(name, ".attn.c_attn.") && ndim >= 1 && ndim <= 2 && shape[ndim - 1] % 3 == 0) {
        tensor->shape[ndim] = shape[ndim - 1] / 3;
        tensor->shape[ndim - 1] = 3;
        tensor->ndim++;
    }
    return true;
}
