// SentencePiece behind sentencepiece_shim.h.  Exceptions end here; so does
// the library's habit of writing to standard error.

#include "src/data/sentencepiece_shim.h"

#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <sentencepiece_processor.h>

#include "src/base/memory.h"

// Declared in a header that the library does not install.  Weak, since a
// build of the library may hide it: then the library may print a line.
namespace sentencepiece
{
namespace logging
{
__attribute__((weak)) void SetMinLogLevel(int level);
}
} // namespace sentencepiece

namespace
{
constexpr int log_nothing = 4; // above LOG_FATAL, 3
}

struct zo_sentencepiece {
    sentencepiece::SentencePieceProcessor processor;
    std::string path;
};

enum zo_status zo_sentencepiece_open(const void *bytes, size_t size_bytes,
                                     const char *path,
                                     struct zo_sentencepiece **model_out)
{
    struct zo_sentencepiece *model = nullptr;

    if (sentencepiece::logging::SetMinLogLevel != nullptr) {
        sentencepiece::logging::SetMinLogLevel(log_nothing);
    }
    try {
        model = new zo_sentencepiece;
        model->path = path;
        const auto status = model->processor.LoadFromSerializedProto(
            std::string_view(static_cast<const char *>(bytes), size_bytes));

        if (status.ok()) {
            *model_out = model;
            return ZO_OK;
        }
        delete model;
        return ZO_FAIL(ZO_E_CORRUPT, "%s: not a usable SentencePiece model: %s",
                       path, status.ToString().c_str());
    } catch (const std::bad_alloc &) {
        delete model;
        return ZO_FAIL(ZO_E_NOMEM, "no memory for the tokenizer %s", path);
    } catch (...) {
        delete model;
        return ZO_FAIL(ZO_E_CORRUPT, "%s: not a usable SentencePiece model",
                       path);
    }
}

void zo_sentencepiece_close(struct zo_sentencepiece *model)
{
    delete model;
}

int32_t zo_sentencepiece_count(const struct zo_sentencepiece *model)
{
    return model->processor.GetPieceSize();
}

int32_t zo_sentencepiece_unk(const struct zo_sentencepiece *model)
{
    return model->processor.unk_id();
}

int32_t zo_sentencepiece_bos(const struct zo_sentencepiece *model)
{
    return model->processor.bos_id();
}

int32_t zo_sentencepiece_eos(const struct zo_sentencepiece *model)
{
    return model->processor.eos_id();
}

bool zo_sentencepiece_is_special(const struct zo_sentencepiece *model,
                                 int32_t id)
{
    return model->processor.IsControl(id) || model->processor.IsUnknown(id);
}

const char *zo_sentencepiece_piece(const struct zo_sentencepiece *model,
                                   int32_t id)
{
    return model->processor.IdToPiece(id).c_str();
}

int32_t zo_sentencepiece_find(const struct zo_sentencepiece *model,
                              const char *piece)
{
    const int32_t id = model->processor.PieceToId(piece);

    // The library answers with the unknown piece for a spelling it lacks.
    return model->processor.IdToPiece(id) == piece ? id : -1;
}

enum zo_status zo_sentencepiece_encode(const struct zo_sentencepiece *model,
                                       const char *text, size_t size_bytes,
                                       struct zo_ids *ids)
{
    static_assert(sizeof(int) == sizeof(int32_t), "ids are 32 bits");
    try {
        std::vector<int> found;
        const auto status =
            model->processor.Encode(std::string_view(text, size_bytes), &found);

        if (!status.ok()) {
            return ZO_FAIL(ZO_E_CORRUPT, "%s: encoding %zu bytes of text: %s",
                           model->path.c_str(), size_bytes,
                           status.ToString().c_str());
        }
        return zo_ids_append(ids, found.data(), found.size());
    } catch (...) {
        return ZO_FAIL(ZO_E_NOMEM, "no memory to encode %zu bytes of text",
                       size_bytes);
    }
}

enum zo_status zo_sentencepiece_decode(const struct zo_sentencepiece *model,
                                       const int32_t *ids, size_t count,
                                       char **text_out, size_t *size_bytes_out)
{
    try {
        const std::vector<int> list(ids, ids + count);
        std::string text;
        const auto status = model->processor.Decode(list, &text);

        if (!status.ok()) {
            return ZO_FAIL(ZO_E_CORRUPT, "%s: decoding %zu ids: %s",
                           model->path.c_str(), count,
                           status.ToString().c_str());
        }
        ZO_TRY(zo_strndup(text.data(), text.size(), text_out));
        *size_bytes_out = text.size();
        return ZO_OK;
    } catch (...) {
        return ZO_FAIL(ZO_E_NOMEM, "no memory to decode %zu ids", count);
    }
}
