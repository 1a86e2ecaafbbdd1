#include "sys/thread.h"

#include <algorithm>
#include <cstddef>
#include <memory>

#include <fmt/format.h>

#include "sys/error.h"

namespace fairway::sys {
namespace {

// What a thread's own variables of libraries (TLS) take comes out of it, too.
constexpr std::size_t kLeastStack = std::size_t{1} << 20;

void* run(void* body) {
  const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(body));
  (*owned)();
  return nullptr;
}

}  // namespace

Result<Thread> Thread::start(const std::string& name, std::function<void()> body) {
  auto owned = std::make_unique<std::function<void()>>(std::move(body));
  pthread_attr_t attributes;
  std::size_t stack = 0;
  int error = ::pthread_attr_init(&attributes);
  Thread made;
  if (error == 0) {
    ::pthread_attr_getstacksize(&attributes, &stack);
    error = ::pthread_attr_setstacksize(&attributes, std::max(stack, kLeastStack));
    if (error == 0) error = ::pthread_create(&made.thread_, &attributes, run, owned.get());
    ::pthread_attr_destroy(&attributes);
  }
  if (error != 0) return system_status(error, fmt::format("cannot start the thread {}", name));
  (void)owned.release();
  made.runs_ = true;
  return made;
}

}  // namespace fairway::sys
