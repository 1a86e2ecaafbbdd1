#include "case.h"

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

}  // namespace fairway::tool::bench
