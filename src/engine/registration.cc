#include "engine/registration.h"

#include <string>
#include <utility>

namespace fairway::engine {

Registration register_with(std::span<const std::unique_ptr<transport::Transport>> transports, std::uint16_t worker,
                           const Region& memory, const MemorySource& source) {
  Registration made;
  made.handles.assign(transports.size(), kNotRegistered);
  Status none;    // the error of one whose peers would notice
  Status missed;  // and of one whose peers would not
  bool taken = false;
  for (std::uint16_t i = 0; i < transports.size(); ++i) {
    transport::Transport& transport = *transports[i];
    if (!reaches(transport, memory.kind)) continue;
    auto registered = transport.register_memory(memory, source);
    if (registered) {
      taken = true;
      made.handles[i] = registered->handle;
      for (const auto& key : registered->keys)
        if (key.empty()) made.partly |= std::uint64_t{1} << i;
      if (!registered->keys.empty())
        made.keys.push_back({worker, std::string(transport.name()), std::move(registered->keys)});
      continue;
    }
    const Status why = registered.status().with_context(std::string(transport.name()));
    (needs_keys(transport) ? none : missed) = why;
    made.refused.emplace_back(i, why);
    made.without |= std::uint64_t{1} << i;
  }
  if (none.is_ok() && missed.is_ok() && !taken)
    none = {ErrorCode::unsupported,
            "no transport in use here reaches memory of that kind: a GPU's needs the transport cuda"};
  made.status = !missed ? missed : taken ? Status() : none;
  return made;
}

}  // namespace fairway::engine
