#pragma once

#include <optional>

#include "common.h"
#include "lower.h"

// Other people's memory as Python shows it: the buffer protocol, DLPack, __cuda_array_interface__.
namespace fairway::python {

// Keeps what a protocol lent from being freed, moved or resized. Released with the interpreter's lock.
class Hold {
 public:
  virtual ~Hold() = default;
};

struct View {
  std::uintptr_t address = 0;  // of element [0, 0, ...]
  Shape shape;                 // its offset is 0
  bool read_only = false;
  bool on_gpu = false;
  int gpu = -1;
  // Of its elements: 'i' 'u' 'f' 'c' 'b', 'I' 'U' 'F' 'C' in the other byte order, 'E' bfloat16, 0: bytes of no kind
  char kind = 0;
  std::shared_ptr<Hold> hold;

  [[nodiscard]] std::pair<std::uintptr_t, std::uint64_t> range() const;  // the bytes it touches
};

// Raises, with the reason, when the object shows no memory or memory that cannot be used. Looks at no byte.
// `or_nothing`: an array of 0 bytes is one, too.
View view_of(py::handle object, bool or_nothing = false);

// What owns the memory of an array that may die unseen, when that is known: registered once for all its views and for
// as long as it lives. None: nobody says when the memory ends, and it is registered for one transfer at a time.
struct Owner {
  py::object object;  // can be weakly referenced, and dies before its memory does
  std::uintptr_t address = 0;
  std::uint64_t size_bytes = 0;
};
std::optional<Owner> owner_of(py::handle object, const View& view);

py::capsule to_dlpack(std::uintptr_t address, std::uint64_t size_bytes, int device_kind, int device,
                      std::shared_ptr<void> keep);

}  // namespace fairway::python
