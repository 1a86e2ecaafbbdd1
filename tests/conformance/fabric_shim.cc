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
  std::uint64_t swaps = 0, storms = 0, sends = 0;
  std::uint64_t loses = 0, losses = 0;  // so many of the next arrivals, and so many so far
  std::uint64_t lengthens = 0;          // so many of the next arrivals
  std::size_t least_bytes = 0;          // of frames that are lost or longer
  std::uint64_t forgets = 0;            // so many of the next operations' ends
  std::uint64_t keeps = 0, receives = ~0UL, held_parity = 2;
  bool only_errors = false, takes_first = false;
  std::set<fid*> regions;                   // that are watched
  std::map<fid*, fid*> bound;               // regions, and to which end
  std::map<fid*, const fi_ops*> closed_by;  // of ends and bound regions: whose own these are
  std::map<const fi_ops*, fi_ops> ours;     // theirs, with another close

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
  if (the.only_errors) return -FI_EAVAIL;
  if (the.broken.erase(reinterpret_cast<std::uintptr_t>(queue->fid.context)) != 0) return -FI_EIO;
  if (the.setting.seed == 0) {
    const ssize_t got = the.real.read_queue(queue, into, count);
    for (ssize_t i = 0; i < got && the.lengthens != 0; ++i)
      if ((into[i].flags & FI_RECV) != 0 && into[i].len >= the.least_bytes) {
        into[i].len += 8;
        --the.lengthens;
      }
    if (got <= 0 || (the.loses == 0 && the.forgets == 0)) return got;
    const auto lost = [&](const fi_cq_data_entry& each) {
      const bool arrival = (each.flags & FI_RECV) != 0;
      if (arrival && each.len < the.least_bytes) return false;
      std::uint64_t& left = arrival ? the.loses : the.forgets;
      if (left == 0 || (!arrival && each.op_context == nullptr)) return false;
      --left;
      the.losses += arrival ? 1 : 0;
      return true;
    };
    const ssize_t kept = std::remove_if(into, into + got, lost) - into;
    return kept == 0 ? -FI_EAGAIN : kept;
  }
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
    if (the.setting.seed != 0 || the.setting.unordered) each->tx_attr->msg_order = FI_ORDER_NONE;
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

// As providers that bind memory to ends have it (cxi): while a region is bound to an end, that one does not close.
int close_bound(fid* object) {
  Shim& the = shim();
  const fi_ops* own = nullptr;
  {
    const std::lock_guard lock(the.mutex);
    for (const auto& [region, end] : the.bound)
      if (end == object) return -FI_EBUSY;
    const bool region = the.regions.contains(object);
    if (region ? the.keeps != 0 : the.setting.keeps_ends) {
      the.keeps -= region ? 1 : 0;
      return -FI_EBUSY;
    }
    the.regions.erase(object);
    the.bound.erase(object);
    own = the.closed_by.at(object);
    the.closed_by.erase(object);
  }
  object->ops = const_cast<fi_ops*>(own);
  return own->close(object);
}

// Under the shim's mutex.
void watch_close(fid* object) {
  Shim& the = shim();
  the.closed_by[object] = object->ops;
  fi_ops& ours = the.ours.emplace(object->ops, *object->ops).first->second;
  ours.close = &close_bound;
  object->ops = &ours;
}

int bind_in_name(fid_mr* region, fid_ep* end) {
  Shim& the = shim();
  const std::lock_guard lock(the.mutex);
  watch_close(&region->fid);
  the.bound[&region->fid] = &end->fid;
  return 0;
}

int open_end(fid_domain* domain, fi_info* info, fid_ep** end, void* context) {
  Shim& the = shim();
  const int result = the.real.open_end(domain, info, end, context);
  const std::lock_guard lock(the.mutex);
  const bool watched = the.setting.keeps_ends || (the.setting.extra_mr_mode & FI_MR_ENDPOINT) != 0;
  if (result == 0 && watched) watch_close(&(*end)->fid);
  return result;
}

int open_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** queue, void* context) {
  Shim& the = shim();
  const std::size_t most = the.setting.most_completions;
  return most != 0 && attributes->size > most ? -FI_EINVAL : the.real.open_queue(domain, attributes, queue, context);
}

int register_memory(fid_domain* domain, const fi_mr_attr* attributes, fid_mr** region) {
  Shim& the = shim();
  {
    const std::lock_guard lock(the.mutex);
    const std::size_t takes = the.setting.takes_bytes;
    if (takes != 0 && (domain->fid.context == nullptr) == the.takes_first && attributes->mr_iov[0].iov_len > takes)
      return -FI_ENOMEM;
  }
  const int result = the.real.register_memory(domain, attributes, region);
  const std::lock_guard lock(the.mutex);
  if (result == 0 && the.setting.watches_regions) {
    watch_close(&(*region)->fid);
    the.regions.insert(&(*region)->fid);
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
  the.loses = the.lengthens = the.forgets = the.keeps = 0;
  the.receives = ~0UL;
  the.held_parity = 2;
  the.only_errors = the.takes_first = false;
  the.least_bytes = 0;
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
    if (reinterpret_cast<std::uintptr_t>(end->fid.context) % 2 == shim().held_parity) return ssize_t{-FI_EAGAIN};
    const ssize_t result = shim().storm() ? ssize_t{-FI_EAGAIN} : shim().real.send(end, message, flags);
    shim().sends += result == 0 ? 1 : 0;
    return result;
  };
  calls->receive = [](fid_ep* end, void* into, std::size_t size, void* descriptor, void* context) {
    const std::lock_guard guard(shim().mutex);
    if (shim().receives == 0) return ssize_t{-FI_EINVAL};
    --shim().receives;
    return shim().real.receive(end, into, size, descriptor, context);
  };
  calls->may_sleep = [](fid_fabric* fabric, fid_cq* queue) {
    const std::lock_guard guard(shim().mutex);
    const auto held = shim().held.find(queue);
    const bool known = !shim().setting.unannounced && held != shim().held.end() && !held->second.empty();
    return known ? -FI_EAGAIN : shim().real.may_sleep(fabric, queue);
  };
  calls->open_queue = &open_queue;
  calls->open_end = &open_end;
  calls->register_memory = &register_memory;
  if (setting.extra_mr_mode != 0) calls->bind = &bind_in_name;
  return calls;
}

bool shim_break(std::uint64_t link_name) {
  Shim& the = shim();
  const std::lock_guard lock(the.mutex);
  the.broken.insert(link_name << 1 | 1);
  return true;
}

void shim_lose(std::uint64_t arrivals, std::size_t least_bytes) {
  const std::lock_guard lock(shim().mutex);
  shim().least_bytes = least_bytes;
  shim().loses = arrivals;
}

void shim_lengthen(std::uint64_t arrivals, std::size_t least_bytes) {
  const std::lock_guard lock(shim().mutex);
  shim().least_bytes = least_bytes;
  shim().lengthens = arrivals;
}

void shim_forget(std::uint64_t completions) {
  const std::lock_guard lock(shim().mutex);
  shim().forgets = completions;
}

void shim_keep_regions(std::uint64_t ends) {
  const std::lock_guard lock(shim().mutex);
  shim().keeps = ends;
}

void shim_hold_sends(std::uint64_t end_parity) {
  const std::lock_guard lock(shim().mutex);
  shim().held_parity = end_parity;
}

void shim_receives(std::uint64_t taken) {
  const std::lock_guard lock(shim().mutex);
  shim().receives = taken;
}

void shim_only_errors(bool on) {
  const std::lock_guard lock(shim().mutex);
  shim().only_errors = on;
}

std::uint64_t shim_forgets() {
  const std::lock_guard lock(shim().mutex);
  return shim().forgets;
}

std::uint64_t shim_losses() {
  const std::lock_guard lock(shim().mutex);
  return shim().losses;
}

std::uint64_t shim_swaps() {
  const std::lock_guard lock(shim().mutex);
  return shim().swaps;
}

std::uint64_t shim_sends() {
  const std::lock_guard lock(shim().mutex);
  return shim().sends;
}

std::size_t shim_bound() {
  const std::lock_guard lock(shim().mutex);
  return shim().bound.size();
}

void shim_takes(std::size_t bytes, bool first) {
  const std::lock_guard lock(shim().mutex);
  shim().takes_first = first;
  shim().setting.takes_bytes = bytes;
}

std::uint64_t shim_storms() {
  const std::lock_guard lock(shim().mutex);
  return shim().storms;
}

}  // namespace fairway::conformance
