#include "bench_case.h"

#include <charconv>

#include "via.h"

namespace fairway::tool::bench {
namespace {

Roof roof_of(const std::string& via, const std::string& from, const std::string& to) {
  if (from.starts_with("gpu:") || to.starts_with("gpu:")) return Roof::device;
  if (via == "tcp") return Roof::sockets;
  if (!provider_of(via).empty()) return Roof::fabric;
  if (via == "shm") return to == "shared" ? Roof::copies : Roof::attach;
  return Roof::none;
}

std::string name_of(Roof roof) {
  switch (roof) {
    case Roof::copies: return "memcpy";
    case Roof::attach: return "process_vm";
    case Roof::sockets: return "socket loop";
    case Roof::device: return "copy engine";
    case Roof::fabric: return "bare loop";
    case Roof::none: break;
  }
  return {};
}

}  // namespace

Case make_case(const std::string& via, const std::string& from, const std::string& to) {
  const Roof roof = roof_of(via, from, to);
  return {via, from, to, roof, name_of(roof), via, {}};
}

Result<std::uint64_t> parse_size(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string unit(end, text.data() + text.size());
  if (unit.ends_with("iB")) unit.resize(unit.size() - 2);
  const std::uint64_t scale = unit.empty() || unit == "B" ? 1
                              : unit == "K"               ? 1 << 10
                              : unit == "M"               ? 1 << 20
                              : unit == "G"               ? 1 << 30
                                                          : 0;
  if (error != std::errc() || scale == 0 || value == 0 || value > (std::uint64_t{64} << 30) / scale)
    return Status(ErrorCode::invalid_argument, "\"" + text + "\" is no size: a number with K, M or G, up to 64G");
  return value * scale;
}

}  // namespace fairway::tool::bench
