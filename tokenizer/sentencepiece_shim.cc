/* sentencepiece_shim.cc - the only C++ of this folder: libsentencepiece behind functions of C. */
#include "tokenizer/tokenizer_impl.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

struct piece_model {
    sentencepiece::SentencePieceProcessor processor;
};

struct piece_model *piece_model_create(const char *model, size_t bytes, struct error *err)
{
    struct piece_model *pieces = nullptr;

    try {
        pieces = new piece_model;
        const auto status = pieces->processor.LoadFromSerializedProto(std::string_view(model, bytes));
        if (status.ok())
            return pieces;
        error_set(err, CODE_DATA, "libsentencepiece refuses it: %.500s", status.error_message());
    } catch (const std::exception &thrown) {
        error_set(err, CODE_DATA, "libsentencepiece fails on it: %.500s", thrown.what());
    }
    delete pieces;
    return nullptr;
}

void piece_model_destroy(struct piece_model *pieces)
{
    delete pieces;
}

int piece_model_encode(const struct piece_model *pieces, const char *text, size_t bytes, struct token_list *ids,
                       struct error *err)
{
    try {
        std::vector<int> found;
        const auto status = pieces->processor.Encode(std::string_view(text, bytes), &found);

        if (!status.ok())
            return error_set(err, CODE_DATA, "libsentencepiece: %.500s", status.error_message());
        if (token_list_reserve(ids, found.size(), err) < 0)
            return -1;
        for (int id : found)
            ids->ids[ids->count++] = id;
        return 0;
    } catch (const std::exception &thrown) {
        return error_set(err, CODE_IO, "libsentencepiece: %.500s", thrown.what());
    }
}

void piece_model_special(const struct piece_model *pieces, int32_t special[SPECIAL_TOKENS])
{
    special[SPECIAL_END] = pieces->processor.eos_id();
    special[SPECIAL_BEGIN] = pieces->processor.bos_id();
    special[SPECIAL_PAD] = pieces->processor.pad_id();
    special[SPECIAL_UNKNOWN] = pieces->processor.unk_id();
}

namespace
{

/* The caller's lines as the library asks for them: the current one is read ahead. */
class line_iterator : public sentencepiece::SentenceIterator
{
  public:
    explicit line_iterator(const struct tokenizer_training *training) : training(training)
    {
        Next();
    }

    bool done() const override
    {
        return ended;
    }

    void Next() override
    {
        size_t bytes = 0;
        const char *text = training->next_line(training->arg, &bytes);

        ended = text == nullptr;
        if (!ended)
            line.assign(text, bytes);
    }

    const std::string &value() const override
    {
        return line;
    }

    sentencepiece::util::Status status() const override
    {
        return sentencepiece::util::Status();
    }

  private:
    const struct tokenizer_training *training;
    std::string line;
    bool ended = false;
};

} // namespace

int tokenizer_train(const struct tokenizer_training *training, char **model, size_t *bytes, struct error *err)
{
    try {
        const std::unordered_map<std::string, std::string> options = {
            {"model_type", training->unigram ? "unigram" : "bpe"},
            {"vocab_size", std::to_string(training->vocab_size)},
            {"num_threads", std::to_string(training->threads < 16 ? training->threads : 16)},
            {"max_sentence_length", std::to_string(TRAINING_LINE_MOST)},
            {"input_sentence_size", "2000000"},
            {"shuffle_input_sentence", "true"},
            {"normalization_rule_name", "identity"},
            {"remove_extra_whitespaces", "false"},
            {"split_digits", "true"},
            {"byte_fallback", "true"},
            {"character_coverage", "0.9995"},
            {"minloglevel", "2"},
        };
        line_iterator lines(training);
        std::string serialized;
        const auto status = sentencepiece::SentencePieceTrainer::Train(options, &lines, &serialized);

        if (!status.ok())
            return error_set(err, CODE_DATA, "libsentencepiece cannot train: %.500s", status.error_message());
        *model = static_cast<char *>(malloc(serialized.size() + 1));
        if (!*model)
            return error_set(err, CODE_IO, "no memory for a model");
        memcpy(*model, serialized.data(), serialized.size());
        *bytes = serialized.size();
        return 0;
    } catch (const std::exception &thrown) {
        return error_set(err, CODE_DATA, "libsentencepiece cannot train: %.500s", thrown.what());
    }
}
