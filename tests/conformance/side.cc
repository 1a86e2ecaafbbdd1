#include "conformance/side.h"

#include <algorithm>
#include <utility>

namespace fairway::conformance {

void Side::carry_to(Side& other, Edit edit) {
  const std::lock_guard lock(carry_mutex_);
  other_ = &other;
  edit_ = std::move(edit);
}

void Side::carry_no_more() {
  const std::lock_guard lock(carry_mutex_);
  other_ = nullptr;
}

void Side::carry(std::vector<std::byte> bytes) {
  const std::lock_guard lock(carry_mutex_);
  if (edit_) edit_(bytes);
  if (other_ != nullptr && !bytes.empty()) other_->hear(std::move(bytes));
}

void Side::let_other_pass() {
  const std::lock_guard lock(carry_mutex_);
  if (other_ != nullptr) other_->pass();
}

void Side::tell(Seen seen) {
  const std::lock_guard lock(mutex_);
  log_.push_back(std::move(seen));
}

void Side::news() {
  news_.fetch_add(1);
  runtime_.executor.wake_all(news_);
}

Memory Side::remember(Buffer& buffer, Access access) {
  Kept kept = keep({{}, buffer.data(), buffer.size(), buffer.kind(), access},
                   {buffer.kind(), buffer.file(), buffer.file_offset()});
  return {&buffer, kept.region, kept.registered.handle, access, std::move(kept.registered.keys), std::move(kept.held)};
}

std::uint64_t Side::import(const Memory& memory) {
  return import_keys({memory.region, nullptr, memory.buffer->size(), MemoryKind::host, memory.access}, memory.keys);
}

bool Side::post_all(std::span<const Slice> slices) {
  const Time end = after(runtime_.clock.now(), 20 * kSecond);
  while (!slices.empty()) {
    const std::uint32_t before = news_.load();
    const std::size_t taken = post(slices);
    slices = slices.subspan(taken);
    if (slices.empty()) return true;
    if (runtime_.clock.now() >= end) return false;
    // `before` is stale by our own command at least: this only lets others run.
    if (taken == 0) runtime_.executor.wait(news_, before + 1, after(runtime_.clock.now(), 100 * kMicrosecond));
  }
  return true;
}

std::vector<Seen> Side::seen() {
  std::lock_guard lock(mutex_);
  return log_;
}

bool Side::wait(const std::function<bool(const std::vector<Seen>&)>& done, Time most) {
  const Time end = after(runtime_.clock.now(), most);
  for (;;) {
    const std::uint32_t before = news_.load();
    {
      std::lock_guard lock(mutex_);
      if (done(log_)) return true;
    }
    if (runtime_.clock.now() >= end) return false;
    runtime_.executor.wait(news_, before, std::min(end, after(runtime_.clock.now(), kSecond)));
  }
}

void Side::rest(Time time) {
  const Time end = after(runtime_.clock.now(), time);
  while (runtime_.clock.now() < end) {
    const std::uint32_t now = news_.load();
    runtime_.executor.wait(news_, now, end);
  }
}

bool Side::wait_asleep() {
  const Time end = after(runtime_.clock.now(), 20 * kSecond);
  while (!asleep()) {
    if (runtime_.clock.now() >= end) return false;
    rest(kMillisecond / 4);
  }
  return true;
}

std::size_t Side::count(EventKind kind) {
  std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(log_.begin(), log_.end(), [kind](const Seen& seen) { return seen.event.kind == kind; }));
}

bool Side::wait_ended(std::size_t slices) {
  return wait([slices](const std::vector<Seen>& log) {
    return static_cast<std::size_t>(std::count_if(log.begin(), log.end(), [](const Seen& seen) {
             return seen.event.kind == EventKind::done || seen.event.kind == EventKind::failed;
           })) >= slices;
  });
}

Seen Side::wait_token(transport::SliceToken token) {
  Seen found;
  found.event.kind = EventKind::exchange;
  static_cast<void>(wait([&](const std::vector<Seen>& log) {
    for (const Seen& seen : log)
      if ((seen.event.kind == EventKind::done || seen.event.kind == EventKind::failed) && seen.event.token == token) {
        found = seen;
        return true;
      }
    return false;
  }));
  return found;
}

std::vector<UpLink> Side::wait_links(std::size_t count) {
  std::vector<UpLink> links;
  static_cast<void>(wait([&](const std::vector<Seen>& log) {
    links.clear();
    for (const Seen& seen : log) {
      if (seen.event.kind == EventKind::link_up)
        links.push_back({seen.event.link, seen.event.device, seen.event.value});
      if (seen.event.kind == EventKind::link_down || seen.event.kind == EventKind::fenced)
        std::erase_if(links, [&](const UpLink& link) { return link.id == seen.event.link; });
    }
    return links.size() >= count;
  }));
  std::sort(links.begin(), links.end(), [](const UpLink& a, const UpLink& b) { return a.name < b.name; });
  return links;
}

}  // namespace fairway::conformance
