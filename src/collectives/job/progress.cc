#include "collectives/job/progress.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <new>
#include <set>
#include <span>
#include <system_error>
#include <tuple>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fairway/progress.h"

#include "collectives/clock.h"
#include "collectives/gpu/plan.h"
#include "collectives/job/launcher.h"
#include "sys/memory_file.h"
#include "sys/own_folder.h"

namespace fairway {
namespace collectives {
namespace {

constexpr std::uint64_t kProgressMagic = 0x3530474f52505746;  // "FWPROG05"
constexpr std::chrono::hours kKept{1};                        // what a killed process left
constexpr int kMostLeft = 1000;                               // by processes that had this one's number

constexpr const char* kBase = "/dev/shm";

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(coarse_now().time_since_epoch().count());
}

sys::Fd open_to_read(const std::filesystem::path& path) {
  sys::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));  // a pipe would hold it up
  struct stat found {};
  if (file && (::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode))) file.reset();
  return file;
}

// Whether no process of any PID namespace has it.
bool is_left(const sys::Fd& file) {
  return ::flock(file.get(), LOCK_SH | LOCK_NB) == 0;  // until it is closed; others may look at the same time
}

void remove_old(const std::filesystem::path& within) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(within, error)) {
    if (entry.path().filename().string().starts_with("job-")) continue;  // a meeting place
    const auto written = entry.last_write_time(error);
    if (error || std::filesystem::file_time_type::clock::now() - written < kKept) continue;
    if (const sys::Fd file = open_to_read(entry.path()); file && is_left(file))
      std::filesystem::remove(entry.path(), error);
  }
}

// A new file of this process. Another may have its name: a killed process had this one's number, or one that shares
// /dev/shm but not the numbers has it (a container). None can be made: an empty one.
sys::Fd create(const std::filesystem::path& within, std::string& path) {
  static std::atomic<std::uint64_t> count{0};
  sys::Fd file;
  for (int left = 0; !file && left < kMostLeft; ++left) {
    path = fmt::format("{}/{}-{}", within.string(), ::getpid(), ++count);
    file = sys::Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file && errno != EEXIST) break;
  }
  return file;
}

std::uint64_t group_of(const std::string& name, const std::vector<Words>& words) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto mix = [&hash](std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ (value >> shift & 0xFF)) * 0x100000001b3;
  };
  for (const char c : name) mix(static_cast<unsigned char>(c));
  for (const Words& each : words) {
    mix(each.process);
    mix(each.first_immediate);
  }
  return hash;
}

}  // namespace

ProgressFile::~ProgressFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

void ProgressFile::open(const std::string& name, int rank, const std::vector<Words>& words) {
  if (Clock::is_simulated()) return;
  const auto within = sys::make_own_folder(kBase);
  if (!within) return;
  remove_old(*within);
  std::string path;
  sys::Fd file = create(*within, path);
  if (!file) return;
  void* memory = MAP_FAILED;
  if (sys::check_file_size(sizeof(ProgressPages)) && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 &&
      ::posix_fallocate(file.get(), 0, sizeof(ProgressPages)) == 0)
    memory = ::mmap(nullptr, sizeof(ProgressPages), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) {
    ::unlink(path.c_str());
    return;
  }
  file_ = std::move(file);
  path_ = std::move(path);
  pages_ = {new (memory) ProgressPages, [](ProgressPages* mapped) { ::munmap(mapped, sizeof(ProgressPages)); }};
  words_ = &pages_->words;
  words_->group = group_of(name, words);
  words_->process = static_cast<std::uint64_t>(::getpid());
  words_->started = facts_of(::getpid()).started;
  words_->space = process_namespace();
  words_->rank = rank;
  words_->size = static_cast<std::int32_t>(words.size());
  std::memcpy(words_->name, name.data(), std::min(name.size(), sizeof words_->name - 1));
  words_->since.store(now_ns(), std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  words_->magic = kProgressMagic;
}

void ProgressFile::entered(std::uint64_t operation, CollectiveKind kind) {
  words_->kind.store(static_cast<std::uint32_t>(kind), std::memory_order_relaxed);
  words_->since.store(now_ns(), std::memory_order_relaxed);
  words_->operation.store(operation, std::memory_order_relaxed);
  words_->inside.store(1, std::memory_order_relaxed);
}

void ProgressFile::waits(int peer, std::size_t step, std::size_t steps) {
  words_->waits_for.store(peer, std::memory_order_relaxed);
  words_->step.store(static_cast<std::uint32_t>(step), std::memory_order_relaxed);
  words_->steps.store(static_cast<std::uint32_t>(steps), std::memory_order_relaxed);
}

void ProgressFile::ended() {
  words_->waits_for.store(-1, std::memory_order_relaxed);
  words_->since.store(now_ns(), std::memory_order_relaxed);
  words_->inside.store(0, std::memory_order_relaxed);
}

}  // namespace collectives

using namespace collectives;  // NOLINT(google-build-using-namespace)

namespace {

// What all ranks call what that one tells as number `told`: a stream, or a place of messages of it and another.
int stream_of(const RankProgress& host, std::uint32_t told) {
  using gpu::Layout;
  const auto rank = static_cast<std::uint32_t>(host.rank), size = static_cast<std::uint32_t>(host.size);
  if (told < Layout::kPlaces) return static_cast<int>(told);
  for (std::uint32_t peer = 0; peer < size; ++peer)
    for (std::uint32_t place = 0; peer != rank && place < Layout::kMessagePlaces; ++place) {
      if (Layout::told_of(rank, rank, peer, place) == told)
        return static_cast<int>(Layout::kPlaces + Layout::message_id(rank, peer, place));
      if (Layout::told_of(rank, peer, rank, place) == told)
        return static_cast<int>(Layout::kPlaces + Layout::message_id(peer, rank, place));
    }
  return -1;
}

// Of the streams that the rank has used, each beside `host`, which is what it says of itself.
void add_streams(const RankProgress& host, const gpu::Told* told, std::vector<RankProgress>& all) {
  for (std::uint32_t place = 0; place < gpu::Layout::kTolds; ++place) {
    const gpu::Told& one = told[place];
    const auto call = static_cast<std::uint32_t>(one.entered);
    const std::uint64_t kind = one.entered >> 32, peer = one.waits >> 32;
    if (one.entered == 0 || kind > gpu::kMessageKind) continue;
    RankProgress of = host;
    of.stream = host.size <= static_cast<int>(gpu::kMostRanks) ? stream_of(host, place) : -1;
    if (of.stream < 0) continue;
    of.call = call;
    of.operation = one.number;
    of.kind = static_cast<CollectiveKind>(kind);
    of.inside =
        peer != 0 && peer <= static_cast<std::uint64_t>(host.size) && static_cast<std::uint32_t>(one.waits) == call;
    of.waits_for = of.inside ? static_cast<int>(peer) - 1 : -1;
    of.phase = "";
    of.seconds = of.inside ? static_cast<double>(one.nanoseconds) / 1e9 : 0;
    all.push_back(std::move(of));
  }
}

// Without what a terminal would obey.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      out += c;
  return out;
}

// What one file tells; nothing: it is none of a rank.
void add_rank(const std::filesystem::path& path, std::vector<RankProgress>& all) {
  const sys::Fd file = open_to_read(path);
  if (!file) return;
  alignas(ProgressPages) std::byte bytes[sizeof(ProgressPages)];
  const bool whole = ::pread(file.get(), bytes, sizeof bytes, 0) == static_cast<ssize_t>(sizeof bytes);
  const auto* const pages = reinterpret_cast<const ProgressPages*>(bytes);
  const auto* const words = &pages->words;
  if (!whole || words->magic != kProgressMagic || words->size < 1 || words->rank < 0 || words->rank >= words->size ||
      words->kind > static_cast<std::uint32_t>(CollectiveKind::all_to_allv))
    return;
  char state = 0;  // of another PID namespace's process it is only known whether it lives
  if (words->space == process_namespace()) {
    const ProcessFacts facts = facts_of(static_cast<int>(words->process));
    state = facts.started == words->started ? facts.state : 'X';
  } else if (is_left(file)) {
    state = 'X';
  }
  const std::uint64_t since = words->since, now = now_ns();
  all.push_back({printable({words->name, strnlen(words->name, sizeof words->name)}), words->group, words->rank,
                 words->size, words->process, state != 'X', state == 'T' || state == 't', words->operation,
                 static_cast<CollectiveKind>(words->kind.load()), words->inside != 0, words->waits_for,
                 fmt::format("step {} of {}", words->step.load(), words->steps.load()),
                 now > since ? static_cast<double>(now - since) / 1e9 : 0});
  add_streams(RankProgress(all.back()), pages->told, all);
}

// Of a communicator of which nobody lives, once that is some time ago: nobody waits for those.
void leave_out_long_dead(std::vector<RankProgress>& all) {
  constexpr double kLong = 600;  // seconds
  std::set<std::uint64_t> recent;
  for (const RankProgress& one : all)  // of a stream in which it does not wait a rank knows no time
    if (one.lives || (one.stream < 0 && one.seconds <= kLong)) recent.insert(one.group);
  std::erase_if(all, [&](const RankProgress& one) { return !recent.contains(one.group); });
}

}  // namespace

std::vector<RankProgress> progress_of_ranks() {
  std::vector<RankProgress> all;
  std::error_code error;
  for (const auto& within : sys::own_folders(kBase))
    for (const auto& entry : std::filesystem::directory_iterator(within, error)) add_rank(entry.path(), all);
  leave_out_long_dead(all);
  std::sort(all.begin(), all.end(), [](const RankProgress& a, const RankProgress& b) {
    return std::tie(a.name, a.group, a.stream, a.rank) < std::tie(b.name, b.group, b.stream, b.rank);
  });
  return all;
}

// ---- who keeps a communicator's ranks waiting, by what each tells of itself; pure ----

namespace {

std::string call_of(const RankProgress& rank) {
  if (rank.stream >= 0)
    if (const auto ends = collectives::gpu::message_ends(static_cast<std::uint32_t>(rank.stream)))
      return fmt::format("message {} from rank {} to rank {}", rank.call, ends->from, ends->to);
  if (rank.stream >= 0) return fmt::format("{} {} on stream {}", to_string(rank.kind), rank.operation, rank.stream);
  return fmt::format("{} {}", to_string(rank.kind), rank.operation);
}

std::string seconds(double value) {
  return fmt::format("{:.1f} s", value);
}

// What one rank does, where `front` is the one that is furthest and waits, and `least` the operation of those that are
// furthest back: others behind the front may wait for these, where operations complete locally. Empty: it only waits.
std::string reason(const RankProgress& rank, const RankProgress& front, std::uint64_t least) {
  if (!rank.lives) return fmt::format("is gone (process {})", rank.process);
  const std::string stopped = rank.stopped ? fmt::format("; its process {} is stopped", rank.process) : "";
  if (rank.operation < front.operation && (rank.operation == least || rank.stopped)) {
    const std::string last = rank.operation == 0 ? std::string("it was in none before")
                             : rank.inside
                                 ? fmt::format("it has been in {} for {}", call_of(rank), seconds(rank.seconds))
                                 : fmt::format("it ended {} {} ago", call_of(rank), seconds(rank.seconds));
    return fmt::format("never entered {}: {}{}", call_of(front), last, stopped);
  }
  if (rank.stopped) return fmt::format("is in {}{}", call_of(rank), stopped);
  return {};
}

// Of one communicator, in the order of ranks.
std::string verdict(std::span<const RankProgress> ranks, double patience) {
  const RankProgress* front = nullptr;
  for (const RankProgress& rank : ranks)
    if (rank.lives && rank.inside && (front == nullptr || rank.operation > front->operation)) front = &rank;
  if (front == nullptr || front->seconds < patience) return {};
  std::uint64_t least = front->operation;
  for (const RankProgress& rank : ranks)
    if (rank.lives) least = std::min(least, rank.operation);
  std::string causes, waits;
  std::size_t known = 0;
  for (const RankProgress& rank : ranks) {
    ++known;
    if (const std::string why = reason(rank, *front, least); !why.empty())
      causes += fmt::format("{}rank {} {}", causes.empty() ? "" : "; ", rank.rank, why);
    else if (rank.inside && rank.waits_for >= 0)
      waits += fmt::format("; rank {} waits for rank {} ({})", rank.rank, rank.waits_for, rank.phase);
  }
  if (causes.empty()) causes = fmt::format("every rank here is in {}{}", call_of(*front), waits);
  std::string text = fmt::format("\"{}\": {}; rank {} has been in it for {}", front->name, causes, front->rank,
                                 seconds(front->seconds));
  if (known < static_cast<std::size_t>(front->size))
    text += fmt::format("; of its {} ranks {} are not on this host, or of another user", front->size,
                        static_cast<std::size_t>(front->size) - known);
  return text;
}

// Where a rank is that has not come to `front`, a call on a stream. `on_stream`: null, it never was there.
std::string reason_on_stream(const RankProgress& host, const RankProgress* on_stream, const RankProgress& front) {
  if (!host.lives) return fmt::format("is gone (process {})", host.process);
  if (on_stream != nullptr && static_cast<std::int32_t>(on_stream->call - front.call) >= 0) return {};
  std::string text = fmt::format("never entered {}: ", call_of(front));
  const bool message = collectives::gpu::message_ends(static_cast<std::uint32_t>(front.stream)).has_value();
  text += on_stream == nullptr ? "it has waited in none there before"
                               : fmt::format("the last there in which it waited is {} {}", to_string(on_stream->kind),
                                             message ? on_stream->call : on_stream->operation);
  if (host.inside) text += fmt::format("; its host has been in {} for {}", call_of(host), seconds(host.seconds));
  if (host.stopped) text += fmt::format("; its process {} is stopped", host.process);
  return text;
}

// Of one stream; `hosts`: what the ranks tell of themselves. Both in the order of ranks.
std::string verdict_on_stream(std::span<const RankProgress> hosts, std::span<const RankProgress> ranks,
                              double patience) {
  const RankProgress* front = nullptr;
  for (const RankProgress& rank : ranks)
    if (rank.lives && rank.inside && (front == nullptr || static_cast<std::int32_t>(rank.call - front->call) > 0))
      front = &rank;
  if (front == nullptr || front->seconds < patience) return {};
  std::string causes, waits;
  const auto ends = collectives::gpu::message_ends(static_cast<std::uint32_t>(front->stream));
  for (const RankProgress& host : hosts) {
    if (ends && host.rank != ends->from && host.rank != ends->to) continue;
    const auto found =
        std::find_if(ranks.begin(), ranks.end(), [&host](const auto& one) { return one.rank == host.rank; });
    const RankProgress* const on_stream = found == ranks.end() ? nullptr : &*found;
    if (const std::string why = reason_on_stream(host, on_stream, *front); !why.empty())
      causes += fmt::format("{}rank {} {}", causes.empty() ? "" : "; ", host.rank, why);
    else if (on_stream->inside)
      waits += fmt::format("; rank {} waits for rank {}", host.rank, on_stream->waits_for);
  }
  if (causes.empty())
    causes = fmt::format("{} has entered {}{}", ends ? "each of the two" : "every rank here", call_of(*front), waits);
  return fmt::format("\"{}\": {}; rank {} has waited in it for {}", front->name, causes, front->rank,
                     seconds(front->seconds));
}

}  // namespace

std::vector<std::string> who_hangs(const std::vector<RankProgress>& ranks, double patience_seconds) {
  std::vector<std::string> all;
  std::span<const RankProgress> hosts;  // of the communicator
  for (std::size_t from = 0, to = 0; from < ranks.size(); from = to) {
    while (to < ranks.size() && ranks[to].group == ranks[from].group && ranks[to].stream == ranks[from].stream) ++to;
    const auto part = std::span(ranks).subspan(from, to - from);
    const bool of_host = part.front().stream < 0;
    if (of_host || (!hosts.empty() && hosts.front().group != part.front().group))
      hosts = of_host ? part : std::span<const RankProgress>();
    std::string text = of_host ? verdict(part, patience_seconds) : verdict_on_stream(hosts, part, patience_seconds);
    if (!text.empty()) all.push_back(std::move(text));
  }
  return all;
}

}  // namespace fairway
