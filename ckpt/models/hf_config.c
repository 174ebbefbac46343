/* hf_config.c - Hugging Face's config.json: the model that it describes, and one of an export. */
#include <limits.h>
#include <string.h>

#include "ckpt/models/hf_internal.h"

enum { LONGEST = 8192 }; /* tokens a sample of an imported model that could have more: a job chooses its own */

/* ---- import ------------------------------------------------------------------------------------------------------ */

/* transformers tests a boolean by Python's rule: null and 0 are false, any other number is true. -1 for anything else. */
static int python_truth(json_t *value)
{
    if (json_is_boolean(value) || json_is_null(value))
        return json_is_true(value);
    return json_is_number(value) ? json_number_value(value) != 0 : -1;
}

static int read_truth(json_t *config, const char *key, bool absent, bool *value, struct error *err)
{
    json_t *given = json_object_get(config, key);

    if (given && python_truth(given) < 0)
        return error_set(err, CODE_DATA, "%s must be true or false", key);
    *value = given ? python_truth(given) == 1 : absent;
    return 0;
}

static int check_fixed(json_t *config, const struct hf_class *class, struct error *err)
{
    for (const struct hf_fixed *fixed = class->fixed; fixed->key; fixed++) {
        json_t *value = json_object_get(config, fixed->key);
        const char *text = json_string_value(value);

        if (value && (fixed->text ? !text || strcmp(text, fixed->text) != 0 : python_truth(value) != fixed->value))
            return error_set(err, CODE_DATA, "%s must be %s: %s", fixed->key,
                             fixed->text    ? fixed->text
                             : fixed->value ? "true"
                                            : "false",
                             fixed->why);
    }
    return 0;
}

static int check_activation(json_t *config, const struct hf_class *class, struct error *err)
{
    json_t *value = json_object_get(config, class->activation);
    const char *name = !value ? class->absent : json_is_string(value) ? json_string_value(value) : "";

    for (const char *const *synonym = class->synonyms; *synonym; synonym++)
        if (strcmp(name, *synonym) == 0)
            return 0;
    return error_set(err, CODE_DATA, "%s is %s\"%.40s\", must be \"%s\": other activations cannot be imported",
                     class->activation, value ? "" : "missing, which means ", name, class->written);
}

/* Keys that change the model and that no muster model has. A factor of 1 changes nothing. */
static int check_strangers(json_t *config, struct error *err)
{
    static const struct {
        const char *key, *why;
        bool factor;
    } strangers[] = {
        {"quantization_config", "quantized weights cannot be imported; save the model with plain ones", false},
        {"pruned_heads", "a model with pruned heads cannot be imported", false},
        {"auto_map", "a model with Python code of its own cannot be imported", false},
        {"partial_rotary_factor", "muster rotates whole heads", true},
        {"attention_multiplier", "muster's attention divides by the root of the head size", false},
        {"embedding_multiplier", "muster has no such factor", true},
        {"residual_multiplier", "muster has no such factor", true},
        {"logits_scaling", "muster has no such factor", true},
        {"attn_logit_softcapping", "muster caps no scores", false},
        {"final_logit_softcapping", "muster caps no logits", false},
    };

    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++) {
        json_t *value = json_object_get(config, strangers[i].key);

        if (value && !json_is_null(value) && !(json_is_object(value) && json_object_size(value) == 0) &&
            !(strangers[i].factor && json_is_number(value) && json_number_value(value) == 1))
            return error_set(err, CODE_DATA, "has %s: %s", strangers[i].key, strangers[i].why);
    }
    return 0;
}

/* Integers of at least 1 in a key or its other name. 1 if there is one. */
static int read_size(json_t *config, const struct hf_key *key, int *value, struct error *err)
{
    const char *const names[] = {key->key, key->other};
    const char *found = NULL;

    for (int i = 0; i < 2; i++) {
        json_t *number = names[i] ? json_object_get(config, names[i]) : NULL;
        bool null = key->type != HF_SIZE && json_is_null(number);

        if (!number)
            continue;
        if (!null &&
            (!json_is_integer(number) || json_integer_value(number) < 1 || json_integer_value(number) > INT_MAX))
            return error_set(err, CODE_DATA, "%s must be an integer of at least 1", names[i]);
        if (found && json_integer_value(number) != *value)
            return error_set(err, CODE_DATA, "%s is %d, but %s is %lld", found, *value, names[i],
                             (long long)json_integer_value(number));
        *value = (int)json_integer_value(number); /* null: 0 */
        found = names[i];
    }
    return found != NULL;
}

/* A number that is missing is left as it is. */
static int read_number(json_t *object, const char *name, double *value, struct error *err)
{
    json_t *number = json_object_get(object, name);

    if (number && (!json_is_number(number) || json_number_value(number) <= 0))
        return error_set(err, CODE_DATA, "%s must be a number of more than 0", name);
    if (number)
        *value = json_number_value(number);
    return 0;
}

static int read_biases(json_t *config, const struct hf_key *key, enum model_biases *biases, struct error *err)
{
    bool first, second;

    if (read_truth(config, key->key, false, &first, err) < 0 || read_truth(config, key->other, false, &second, err) < 0)
        return -1;
    if (first != second)
        return error_set(err, CODE_DATA, "%s and %s differ: muster has biases of both, or of none", key->key,
                         key->other);
    *biases = first ? BIASES_ALL : BIASES_NONE;
    return 0;
}

/* The layers that may have a window, by the list that v5 writes or else by max_window_layers. */
static int count_windows(json_t *config, int layers, int *count, struct error *err)
{
    json_t *list = json_object_get(config, "layer_types"), *type;
    int full = 28; /* of a missing max_window_layers */
    size_t i;

    *count = 0;
    if (!json_is_array(list)) {
        json_t *first = json_object_get(config, "max_window_layers");

        if (first && (!json_is_integer(first) || json_integer_value(first) < 0))
            return error_set(err, CODE_DATA, "max_window_layers must be an integer of at least 0");
        full = first && json_integer_value(first) < layers ? (int)json_integer_value(first) : first ? layers : full;
        *count = layers > full ? layers - full : 0;
        return 0;
    }
    json_array_foreach(list, i, type)
    {
        const char *name = json_is_string(type) ? json_string_value(type) : "";

        if (strcmp(name, "sliding_attention") == 0)
            ++*count;
        else if (strcmp(name, "full_attention") != 0)
            return error_set(err, CODE_DATA, "layer_types has \"%.40s\", must be full_attention or sliding_attention",
                             name);
    }
    return json_array_size(list) == (size_t)layers
               ? 0
               : error_set(err, CODE_DATA, "layer_types has %zu layers, there are %d", json_array_size(list), layers);
}

static int read_window(json_t *config, const struct hf_key *key, struct model_shape *shape, struct error *err)
{
    int count;
    bool used;

    if (read_truth(config, "use_sliding_window", false, &used, err) < 0 ||
        read_size(config, key, &shape->window, err) < 0 || count_windows(config, shape->layers, &count, err) < 0)
        return -1;
    if (!used || count == 0)
        shape->window = 0;
    if (count > 0 && !shape->window && json_is_array(json_object_get(config, "layer_types")))
        return error_set(err, CODE_DATA, "layer_types has sliding_attention, but there is no window");
    if (shape->window && count < shape->layers)
        return error_set(err, CODE_DATA,
                         "%d of %d layers have a window (layer_types, max_window_layers): muster's have all the same",
                         count, shape->layers);
    return 0;
}

static int read_key(json_t *config, const struct hf_key *key, struct job *job, struct error *err)
{
    void *field = (char *)job + key->field;
    bool tied;

    switch (key->type) {
    case HF_SIZE:
    case HF_SIZE_0:
        return read_size(config, key, field, err) < 0 ? -1 : 0;
    case HF_NUMBER:
        return read_number(config, key->key, field, err);
    case HF_TIED:
        if (read_truth(config, key->key, !*(bool *)field, &tied, err) < 0)
            return -1;
        *(bool *)field = !tied;
        return 0;
    case HF_BIASES:
        return read_biases(config, key, field, err);
    case HF_WINDOW:
        return read_window(config, key, &job->model, err);
    case HF_WRITTEN:
        break;
    }
    return 0;
}

/* ---- rotary positions ---- */

/* An object with rotary parameters, or NULL. transformers 5 has one for each type of layer where they differ. */
static int find_rope(json_t *config, const char *key, json_t **rope, struct error *err)
{
    json_t *value;
    const char *name;

    *rope = json_object_get(config, key);
    if (json_is_null(*rope))
        *rope = NULL;
    if (*rope && !json_is_object(*rope))
        return error_set(err, CODE_DATA, "%s must be an object", key);
    json_object_foreach(*rope, name, value)
    {
        if (json_is_object(value))
            return error_set(err, CODE_DATA, "%s has \"%.40s\": layers that differ cannot be imported", key, name);
    }
    return *rope && check_strangers(*rope, err) < 0 ? error_prefix(err, "%s", key) : 0;
}

static int read_llama3(json_t *rope, struct model_shape *shape, struct error *err)
{
    const struct hf_key original = {"original_max_position_embeddings", NULL, HF_SIZE, 0};
    int found = read_size(rope, &original, &shape->rope_original, err);

    shape->rope_scaling = ROPE_SCALING_LLAMA3;
    if (found < 0 || read_number(rope, "factor", &shape->rope_factor, err) < 0 ||
        read_number(rope, "low_freq_factor", &shape->rope_low, err) < 0 ||
        read_number(rope, "high_freq_factor", &shape->rope_high, err) < 0)
        return -1;
    if (!found || shape->rope_factor == 0 || shape->rope_low == 0 || shape->rope_high == 0)
        return error_set(err, CODE_DATA,
                         "rope_type llama3 needs factor, low_freq_factor, high_freq_factor and "
                         "original_max_position_embeddings");
    return 0;
}

static int read_rope_type(json_t *rope, struct model_shape *shape, struct error *err)
{
    static const struct {
        const char *type, *has;
    } others[] = {{"linear", "divides positions by a factor"},
                  {"dynamic", "raises rope_theta with the length of the text"},
                  {"yarn", "scales each wavelength by a ramp of its own, and attention too"},
                  {"longrope", "has factors for each wavelength, and others for short texts"}};
    json_t *type = json_object_get(rope, "rope_type");
    const char *name;

    if (!type)
        type = json_object_get(rope, "type");
    name = json_is_string(type) ? json_string_value(type) : !type || json_is_null(type) ? "default" : "";
    if (strcmp(name, "default") == 0)
        return 0;
    if (strcmp(name, "llama3") == 0)
        return read_llama3(rope, shape, err);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i].type) == 0)
            return error_set(err, CODE_DATA, "rope_type is \"%s\", which %s: must be default or llama3", name,
                             others[i].has);
    return error_set(err, CODE_DATA, "rope_type is \"%.40s\": must be default or llama3", name);
}

/*
 * transformers 4 has rope_theta and rope_scaling, 5 has rope_parameters with rope_theta. 5 reads all; rope_scaling then
 * replaces rope_parameters. 4 ignores rope_parameters. A file in which they have different thetas is refused.
 */
static int read_rope(json_t *config, struct model_shape *shape, struct error *err)
{
    json_t *scaling, *parameters, *rope;
    double theta = 1e4;

    if (find_rope(config, "rope_scaling", &scaling, err) < 0 ||
        find_rope(config, "rope_parameters", &parameters, err) < 0)
        return -1;
    rope = scaling ? scaling : parameters;
    if (read_number(config, "rope_theta", &theta, err) < 0 || read_number(rope, "rope_theta", &theta, err) < 0)
        return -1;
    shape->rope_theta = theta;
    for (int i = 0; i < 2; i++) {
        double other = theta;

        if (read_number(i ? parameters : config, "rope_theta", &other, err) < 0)
            return -1;
        if (other != theta)
            return error_set(err, CODE_DATA, "%s is %.9g, but %s makes it %.9g",
                             i ? "rope_parameters' rope_theta" : "rope_theta", other,
                             scaling ? "rope_scaling" : "rope_parameters", theta);
    }
    return read_rope_type(rope, shape, err);
}

int hf_config_read(json_t *config, const struct hf_class *class, int heads, struct model_shape *shape,
                   struct error *err)
{
    struct job job = {.model = class->shape};

    if (check_strangers(config, err) < 0 || check_activation(config, class, err) < 0 ||
        check_fixed(config, class, err) < 0)
        return -1;
    if (heads > 0)
        job.model.heads = heads;
    for (const struct hf_key *key = class->keys; key->key; key++)
        if (read_key(config, key, &job, err) < 0)
            return -1;
    *shape = job.model;
    if (heads > 0 && shape->heads != heads) /* neither config.json nor --heads can be trusted */
        return error_set(err, CODE_USAGE, "has %d heads, --heads has %d; leave --heads out", shape->heads, heads);
    if (shape->positions == POSITIONS_LEARNED)
        return 0;
    shape->seq_length = shape->max_positions < LONGEST ? shape->max_positions : LONGEST;
    return read_rope(config, shape, err);
}

/* ---- export ------------------------------------------------------------------------------------------------------ */

static void set_key(json_t *config, const struct hf_key *key, const struct job *job)
{
    const void *field = (const char *)job + key->field;
    int size = *(const int *)field;
    json_t *value = NULL;

    switch (key->type) {
    case HF_WINDOW:
        json_object_set_new(config, "use_sliding_window", json_boolean(size > 0));
        json_object_set_new(config, "max_window_layers", json_integer(size ? 0 : job->model.layers));
        /* fall through */
    case HF_SIZE:
    case HF_SIZE_0:
        value = size ? json_integer(size) : json_null();
        break;
    case HF_NUMBER:
    case HF_WRITTEN:
        value = json_real(*(const double *)field);
        break;
    case HF_TIED:
        value = json_boolean(!*(const bool *)field);
        break;
    case HF_BIASES:
        value = json_boolean(size == BIASES_ALL);
        json_object_set(config, key->other, value);
        break;
    }
    json_object_set_new(config, key->key, value);
}

/* transformers 4 reads rope_theta and rope_scaling, 5 rope_parameters too, and later releases perhaps that alone. */
static void set_rope(json_t *config, const struct model_shape *shape)
{
    bool scaled = shape->rope_scaling == ROPE_SCALING_LLAMA3;
    json_t *rope = scaled ? json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor", shape->rope_factor,
                                      "low_freq_factor", shape->rope_low, "high_freq_factor", shape->rope_high,
                                      "original_max_position_embeddings", shape->rope_original)
                          : json_pack("{s:s}", "rope_type", "default");

    json_object_set_new(config, "rope_theta", json_real(shape->rope_theta));
    json_object_set_new(config, "rope_scaling", scaled ? json_copy(rope) : json_null());
    json_object_set_new(rope, "rope_theta", json_real(shape->rope_theta));
    json_object_set_new(config, "rope_parameters", rope);
}

static json_t *json_id(int64_t id)
{
    return id < 0 ? json_null() : json_integer(id);
}

json_t *hf_config_make(const struct hf_class *class, const struct job *job, const struct hf_ids *ids, enum dtype dtype)
{
    json_t *config = json_pack("{s:[s], s:s, s:s}", "architectures", class->name, "model_type", class->model_type,
                               class->activation, class->written);
    struct job all = *job;

    if (!config)
        return NULL;
    all.model = model_resolve(&job->model);
    for (const struct hf_key *key = class->keys; key->key; key++)
        set_key(config, key, &all);
    for (const struct hf_fixed *fixed = class->fixed; fixed->key; fixed++)
        json_object_set_new(config, fixed->key, fixed->text ? json_string(fixed->text) : json_boolean(fixed->value));
    if (all.model.positions == POSITIONS_ROTARY)
        set_rope(config, &all.model);
    json_object_set_new(config, "initializer_range", json_real(job->init_std));
    json_object_set_new(config, "torch_dtype", json_string(hf_dtypes[dtype].torch));
    json_object_set_new(config, "dtype", json_string(hf_dtypes[dtype].torch));
    /* Ids are given even if there are none: a missing key would have GPT-2's, or 0, of which there may be no token. */
    json_object_set_new(config, "bos_token_id", json_id(ids->begin));
    json_object_set_new(config, "eos_token_id", json_id(ids->end));
    json_object_set_new(config, "pad_token_id", json_id(ids->pad));
    return config;
}

json_t *hf_generation_make(const struct hf_ids *ids)
{
    return json_pack("{s:o, s:o, s:o}", "bos_token_id", json_id(ids->begin), "eos_token_id", json_id(ids->end),
                     "pad_token_id", json_id(ids->pad));
}
