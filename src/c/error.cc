#include "c/abi.h"

namespace fairway::c {

fairway_error* make_error(const Status& status) {
  if (status) return nullptr;
  try {
    return new fairway_error{status, status.to_string()};
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

fairway_code answer(const Status& status, fairway_error** error) {
  if (error != nullptr) *error = make_error(status);
  return static_cast<fairway_code>(status.code());
}

char* copy_text(std::string_view text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

Timeout timeout_of(std::int64_t timeout_us) {
  return timeout_us < 0 ? kForever : Timeout(timeout_us);
}

Status check_size(std::size_t given, std::size_t known, std::size_t first) {
  if (given >= first && given <= 16 * known) return {};
  return {ErrorCode::invalid_argument, "a struct's struct_size is " + std::to_string(given) + ", not about " +
                                           std::to_string(known) + ": set it to the struct's size, or call its _init"};
}

}  // namespace fairway::c

using namespace fairway;

extern "C" {

FAIRWAY_API const char* fairway_version(void) {
  return FAIRWAY_VERSION;
}
FAIRWAY_API const char* fairway_code_name(fairway_code code) {
  return to_string(code < 0 || code > 255 ? static_cast<ErrorCode>(255) : static_cast<ErrorCode>(code)).data();
}
FAIRWAY_API const char* fairway_error_text(const fairway_error* error) {
  return error == nullptr ? "" : error->text.c_str();
}
FAIRWAY_API const char* fairway_error_message(const fairway_error* error) {
  return error == nullptr ? "" : error->status.message().c_str();
}
FAIRWAY_API const char* fairway_error_peer(const fairway_error* error) {
  return error == nullptr ? "" : error->status.peer().c_str();
}
FAIRWAY_API const char* fairway_error_link(const fairway_error* error) {
  return error == nullptr ? "" : error->status.link().c_str();
}
FAIRWAY_API fairway_code fairway_error_code(const fairway_error* error) {
  return error == nullptr ? FAIRWAY_OK : static_cast<fairway_code>(error->status.code());
}
FAIRWAY_API int32_t fairway_error_effect(const fairway_error* error) {
  return error == nullptr ? FAIRWAY_EFFECT_NOT_APPLIED : static_cast<int32_t>(error->status.effect());
}
FAIRWAY_API void fairway_error_free(fairway_error* error) {
  delete error;
}
FAIRWAY_API void fairway_free(void* memory) {
  std::free(memory);
}

}  // extern "C"
