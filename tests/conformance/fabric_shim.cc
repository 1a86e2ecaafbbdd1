#include "conformance/fabric_shim.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace fairway::conformance {
namespace {

using transport::fabric::Calls;

struct Shim {
  std::mutex mutex;  // guards all of it
  ShimSetting setting;
  Calls real;
  std::uint64_t chance = 1;
  std::set<std::uint64_t> broken;  // names of ends, told once
  std::map<fid_cq*, std::vector<fi_cq_data_entry>> held;
  std::uint64_t swaps = 0, storms = 0;

  std::uint64_t random() {
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return chance >> 33;
  }
  bool storm() {
    if (setting.seed == 0 || random() % 4 != 0) return false;
    ++storms;
    return true;
  }
};

Shim& shim() {
  static Shim the;
  return the;
}

// Holds some back, and tells what it has in an order of its own.
ssize_t read_queue(fid_cq* queue, fi_cq_data_entry* into, std::size_t count) {
  Shim& the = shim();
  const std::lock_guard lock(the.mutex);
  if (the.broken.erase(reinterpret_cast<std::uintptr_t>(queue->fid.context)) != 0) return -FI_EIO;
  if (the.setting.seed == 0) return the.real.read_queue(queue, into, count);
  auto& held = the.held[queue];
  fi_cq_data_entry some[16];
  const ssize_t got = the.real.read_queue(queue, some, 16);
  if (got > 0) held.insert(held.end(), some, some + got);
  if (held.empty() || (held.size() < 24 && the.random() % 3 == 0)) return got > 0 ? -FI_EAGAIN : got;
  std::size_t told = 0;
  while (told < count && !held.empty() && (told == 0 || the.random() % 4 != 0)) {
    const std::size_t which = the.random() % held.size();
    the.swaps += which != 0 ? 1 : 0;
    into[told++] = held[which];
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
  }
  return static_cast<ssize_t>(told);
}

int getinfo(const sys::Libfabric& library, const fi_info* hints, fi_info** info) {
  Shim& the = shim();
  const int result = the.real.getinfo(library, hints, info);
  const std::lock_guard lock(the.mutex);
  for (fi_info* each = *info; result == 0 && each != nullptr; each = each->next) {
    each->domain_attr->mr_mode |= the.setting.extra_mr_mode;
    fi_info* const next = each->next;
    for (unsigned copy = 1; copy < the.setting.copies; ++copy) {
      fi_info* made = library.dupinfo(each);
      std::free(made->domain_attr->name);
      made->domain_attr->name = ::strdup((std::string(each->domain_attr->name) + "#" + std::to_string(copy)).c_str());
      made->next = each->next;
      each->next = made;
    }
    while (each->next != next) each = each->next;
  }
  return result;
}

}  // namespace

std::shared_ptr<const Calls> shim_calls(const ShimSetting& setting) {
  auto library = sys::Libfabric::open();
  if (!library) return nullptr;
  Shim& the = shim();
  const std::lock_guard lock(the.mutex);
  the.real = Calls::of(*library);
  the.setting = setting;
  the.chance = setting.seed;
  the.broken.clear();
  the.held.clear();
  auto calls = std::make_shared<Calls>(the.real);
  calls->getinfo = &getinfo;
  calls->read_queue = &read_queue;
  calls->write = [](fid_ep* end, const fi_msg_rma* message, std::uint64_t flags) {
    const std::lock_guard guard(shim().mutex);
    return shim().storm() ? ssize_t{-FI_EAGAIN} : shim().real.write(end, message, flags);
  };
  calls->read = [](fid_ep* end, const fi_msg_rma* message, std::uint64_t flags) {
    const std::lock_guard guard(shim().mutex);
    return shim().storm() ? ssize_t{-FI_EAGAIN} : shim().real.read(end, message, flags);
  };
  calls->send = [](fid_ep* end, const fi_msg* message, std::uint64_t flags) {
    const std::lock_guard guard(shim().mutex);
    return shim().storm() ? ssize_t{-FI_EAGAIN} : shim().real.send(end, message, flags);
  };
  calls->may_sleep = [](fid_fabric* fabric, fid_cq* queue) {
    const std::lock_guard guard(shim().mutex);
    const auto held = shim().held.find(queue);
    return held != shim().held.end() && !held->second.empty() ? -FI_EAGAIN : shim().real.may_sleep(fabric, queue);
  };
  if (setting.extra_mr_mode != 0) calls->bind = [](fid_mr*, fid_ep*) { return 0; };
  return calls;
}

bool shim_break(std::uint64_t link_name) {
  Shim& the = shim();
  const std::lock_guard lock(the.mutex);
  the.broken.insert(link_name << 1 | 1);
  return true;
}

std::uint64_t shim_swaps() {
  const std::lock_guard lock(shim().mutex);
  return shim().swaps;
}

std::uint64_t shim_storms() {
  const std::lock_guard lock(shim().mutex);
  return shim().storms;
}

}  // namespace fairway::conformance
