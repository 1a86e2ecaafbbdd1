#include "collectives/nccl/calls.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "collectives/nccl/library.h"
#include "collectives/nccl/way_table.h"
#include "collectives/way_file.h"
#include "sys/cuda_memory.h"

namespace fairway::collectives {
namespace {

constexpr std::chrono::microseconds kBetweenLooks{50};
constexpr Timeout kOthersLeave{1'000'000};
constexpr std::size_t kWarmBytes = 4U << 20;

}  // namespace

Result<std::unique_ptr<NcclGroup>> NcclGroup::open(std::shared_ptr<const nccl::Library> library, const GpuGroup& on,
                                                   int rank, int size, const nccl::UniqueId& id, Time deadline) {
  std::unique_ptr<NcclGroup> group(new NcclGroup(std::move(library), on.driver(), on.context(), rank, size));
  const sys::CurrentContext current(*group->driver_, group->context_);
  nccl::Config config;
  config.blocking = 0;
  const int result = (*group->library_)->ncclCommInitRankConfig(&group->comm_, size, id, rank, &config);
  Status status = group->comm_ == nullptr ? group->library_->check(result, "making a communicator")
                                          : group->settle(result, "making a communicator", deadline);
  if (status) status = group->warm(deadline);
  if (!status) {
    group->abort();
    return status;
  }
  return group;
}

NcclGroup::~NcclGroup() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  const sys::CurrentContext current(*driver_, context_);
  const Time deadline = after(Clock::now(), kOthersLeave);
  int result = (*library_)->ncclCommFinalize(comm_);
  while (result == nccl::kInProgress && Clock::now() < deadline) {
    std::this_thread::sleep_for(kBetweenLooks);
    int state = nccl::kSuccess;
    if ((*library_)->ncclCommGetAsyncError(comm_, &state) != nccl::kSuccess) break;
    result = state;
  }
  if (result == nccl::kSuccess)
    (*library_)->ncclCommDestroy(comm_);
  else if (!captured_)
    (*library_)->ncclCommAbort(comm_);
}

// Until it is no longer in progress. Others may abort it meanwhile.
Status NcclGroup::settle(int result, const char* what, Time deadline) {
  while (result == nccl::kInProgress) {
    {
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr) return {ErrorCode::cancelled, fmt::format("NCCL: {}: it was aborted", what)};
      if (const int code = (*library_)->ncclCommGetAsyncError(comm_, &result); code != nccl::kSuccess) result = code;
    }
    if (result != nccl::kInProgress) break;
    if (Clock::now() >= deadline)
      return {ErrorCode::deadline_exceeded, fmt::format("NCCL: {}: the timeout passed", what)};
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return library_->check(result, what);
}

Status NcclGroup::enqueue(const Collective& call, void* stream, bool captured, Time deadline) {
  const sys::CurrentContext current(*driver_, context_);
  int result = nccl::kSuccess;
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return {ErrorCode::cancelled, "NCCL's communicator was aborted"};
    captured_ = captured_ || captured;
    result = nccl::enqueue(*library_, call, {comm_, rank_, size_}, stream);
  }
  return settle(result, "enqueueing", deadline);
}

// The first operation of a kind and size makes connections, for which ranks wait for each other.
Status NcclGroup::warm(Time deadline) {
  const sys::CudaDriver& cu = *driver_;
  sys::cuda::Address memory = 0;
  sys::cuda::Stream stream = nullptr;
  Status status = cu.check(cu->cuMemAlloc_v2(&memory, 2 * kWarmBytes), "NCCL: allocating memory for a trial");
  if (status)
    status = cu.check(cu->cuStreamCreateWithPriority(&stream, sys::cuda::kStreamNonBlocking, 0), "making a stream");
  auto* const input = reinterpret_cast<std::byte*>(memory);
  for (const std::size_t bytes : {std::size_t{256}, kWarmBytes})
    if (status) status = run_each(input, input + kWarmBytes, bytes, stream, deadline);
  bool busy = false;
  while (stream != nullptr && (busy = cu->cuStreamQuery(stream) == sys::cuda::kErrorNotReady) &&
         Clock::now() < deadline && error())
    std::this_thread::sleep_for(kBetweenLooks);
  if (status) status = error();
  if (status && busy) status = {ErrorCode::deadline_exceeded, "NCCL: a trial has not ended within the timeout"};
  if (busy) abort();
  if (stream != nullptr) cu->cuStreamDestroy_v2(stream);
  if (memory != 0) cu->cuMemFree_v2(memory);
  return status;
}

Status NcclGroup::run_each(std::byte* input, std::byte* output, std::size_t bytes, void* stream, Time deadline) {
  for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::broadcast, CollectiveKind::all_gather,
                                    CollectiveKind::reduce_scatter, CollectiveKind::all_to_all, CollectiveKind::reduce,
                                    CollectiveKind::gather, CollectiveKind::scatter}) {
    const bool blocks = bytes_of_all({.kind = kind, .count = 1}, 2) == 2;
    Collective call{.kind = kind, .input = input, .output = output, .type = DataType::f32};
    call.count = bytes / sizeof(float) / (blocks ? static_cast<std::size_t>(size_) : 1);
    Status status = enqueue(call, stream, false, deadline);
    if (!status) return status.with_context(fmt::format("a trial of {}", to_string(kind)));
  }
  return {};
}

void NcclGroup::abort() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  const sys::CurrentContext current(*driver_, context_);
  (void)(*library_)->ncclCommAbort(std::exchange(comm_, nullptr));
}

Status NcclGroup::error() {
  const std::lock_guard lock(mutex_);
  int state = nccl::kSuccess;
  if (comm_ == nullptr) return {};
  const int result = (*library_)->ncclCommGetAsyncError(comm_, &state);
  return library_->check(result != nccl::kSuccess || state == nccl::kInProgress ? result : state, "an operation");
}

namespace {

template <std::size_t kBytes>
void put_text(char (&to)[kBytes], const std::string& from) {
  std::memcpy(to, from.data(), std::min(from.size(), kBytes - 1));
}

// "580.159.03", or nothing.
std::string driver_release() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line, word;
  std::getline(file, line);
  for (std::istringstream words(line); words >> word;)
    if (word[0] >= '0' && word[0] <= '9' && word.find('.') != std::string::npos) return word;
  return {};
}

std::string this_host() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::string of_us(std::uint64_t ns) {
  return fmt::format("{:.1f} us", static_cast<double>(ns) / 1e3);
}

}  // namespace

// What a rank tells the others.
struct NcclCalls::Offer {
  std::int32_t use = 0, guarded = 0;
  std::int32_t version = 0;  // 0: it has none
  std::int32_t driver = 0;
  char why_not[320] = {};
  char gpu[96] = {};
  char bus[32] = {};
};

Result<std::unique_ptr<NcclCalls>> NcclCalls::open(const Ranks& ranks, const GpuGroup& on, const GpuOptions& options) {
  std::unique_ptr<NcclCalls> calls(new NcclCalls(options, ranks.size));
  const sys::CudaDriver& cu = *on.driver();
  Offer mine;
  mine.use = static_cast<std::int32_t>(options.nccl);
  mine.guarded = options.guarded ? 1 : 0;
  mine.driver = cu.version();
  (void)cu->cuDeviceGetName(mine.gpu, sizeof mine.gpu - 1, on.device());
  (void)cu->cuDeviceGetPCIBusId(mine.bus, sizeof mine.bus - 1, on.device());
  std::shared_ptr<const nccl::Library> library;
  if (options.nccl != NcclUse::never) {
    if (auto opened = nccl::Library::open(options.nccl_library); opened) {
      library = *opened;
      mine.version = library->version();
      calls->nccl_ = "NCCL " + library->version_text();
    } else {
      put_text(mine.why_not, opened.status().message());
    }
  }
  std::vector<Offer> all(static_cast<std::size_t>(ranks.size));
  const Collective gather{
      .kind = CollectiveKind::all_gather, .input = &mine, .output = all.data(), .count = sizeof(Offer)};
  Status status = ranks.run(gather);
  if (status) status = calls->compare(ranks, all);
  if (!status) return status;
  if (options.nccl == NcclUse::never) {
    calls->reason_ = "NCCL was not asked for";
  } else if (ranks.size == 1) {
    calls->reason_ = "there is one rank";
  } else if (!calls->has_nccl_) {
    if (options.nccl == NcclUse::always) return calls->has_nccl_;
    calls->reason_ = calls->has_nccl_.message();
  }
  if (calls->reason_.empty() && options.nccl == NcclUse::measured) {
    status = calls->share_table(ranks);
    if (!status) return status;
  }
  if (!calls->reason_.empty()) return calls;
  const Status made = calls->make_group(ranks, on, std::move(library));
  if (made) return calls;
  calls->watch_.reset();
  calls->group_.reset();
  if (options.nccl == NcclUse::always) return made;
  calls->reason_ = made.message();
  return calls;
}

// Comes to the same on every rank. An error: the options differ.
Status NcclCalls::compare(const Ranks& ranks, const std::vector<Offer>& offers) {
  std::string gpus;
  for (int rank = 0; rank < ranks.size; ++rank) {
    const Offer& one = offers[static_cast<std::size_t>(rank)];
    if (one.use != offers[0].use || one.guarded != offers[0].guarded)
      return {ErrorCode::invalid_argument,
              fmt::format("GpuOptions: nccl and guarded differ between {} and {}", ranks.name(0), ranks.name(rank))};
    if (has_nccl_ && one.version == 0)
      has_nccl_ = Status(ErrorCode::unsupported, one.why_not).with_context(ranks.name(rank));
    if (has_nccl_ && one.version != offers[0].version)
      has_nccl_ = {ErrorCode::unsupported,
                   fmt::format("NCCL is {} at {} and {} at {}", nccl::version_text(offers[0].version), ranks.name(0),
                               nccl::version_text(one.version), ranks.name(rank))};
    gpus += fmt::format("{}{} at {}", rank == 0 ? "" : ", ", one.gpu, one.bus);
  }
  const std::string release = driver_release();
  key_ = fmt::format("Fairway {}; NCCL {}; driver {}CUDA {}.{}; host {}; {} ranks: {}", FAIRWAY_VERSION,
                     nccl::version_text(offers[0].version), release.empty() ? "" : release + " ",
                     offers[0].driver / 1000, offers[0].driver % 1000 / 10, this_host(), ranks.size, gpus);
  path_ = options_.table;
  if (path_.empty())
    if (const auto usual = way_file_path(key_); usual) path_ = *usual;
  return {};
}

// Rank 0's is everybody's.
Status NcclCalls::share_table(const Ranks& ranks) {
  struct Head {
    std::uint64_t bytes = 0;
    char text[504] = {};  // where it is, or why there is none
  } head;
  std::string text;
  if (ranks.rank == 0) {
    const auto read = path_.empty() ? Result<std::string>(way_file_path(key_).status()) : read_way_file(path_);
    const auto table = read ? WayTable::parse(*read, key_) : Result<WayTable>(read.status());
    if (table) text = table->text(key_);
    head.bytes = text.size();
    put_text(head.text, table  ? path_
                        : read ? fmt::format("{}: {}", path_, table.status().message())
                               : table.status().message());
  }
  Collective share{.kind = CollectiveKind::broadcast, .input = &head, .output = &head, .count = sizeof head};
  if (Status status = ranks.run(share); !status) return status;
  if (head.bytes == 0) {
    reason_ = fmt::format("there is no table of this machine, which measure_gpu() writes: {}", head.text);
    return {};
  }
  text.resize(head.bytes);
  share.input = share.output = text.data();
  share.count = head.bytes;
  if (Status status = ranks.run(share); !status) return status;
  const auto table = WayTable::parse(text, key_);
  if (!table) return table.status();
  table_ = *table;
  path_ = head.text;
  if (!table_.takes_any(way()))
    reason_ = fmt::format("in the table of this machine ({}) NCCL is nowhere faster", path_);
  return {};
}

Status NcclCalls::make_group(const Ranks& ranks, const GpuGroup& on, std::shared_ptr<const nccl::Library> library) {
  nccl::UniqueId id = {};
  Status own;
  if (ranks.rank == 0) own = library->check((*library)->ncclGetUniqueId(&id), "making an id");
  if (Status status = ranks.agree(own); !status) return status;
  const Collective share{.kind = CollectiveKind::broadcast, .input = &id, .output = &id, .count = sizeof id};
  if (Status status = ranks.run(share); !status) return status;
  // Half of what the others wait for this rank's answer.
  const Time deadline = after(Clock::now(), ranks.timeout / 2);
  auto made = NcclGroup::open(std::move(library), on, ranks.rank, ranks.size, id, deadline);
  if (made) {
    group_ = std::move(*made);
    if (auto watch = NcclWatch::start(group_, on, ranks.rank, ranks.size, options_.guarded); watch)
      watch_ = std::move(*watch);
    else
      own = watch.status();
  } else {
    own = made.status();
    if (own.code() == ErrorCode::deadline_exceeded)
      own = own.with_context(
          fmt::format("NCCL was not ready after {} ms, half of this communicator's timeout: give it a longer one",
                      std::chrono::ceil<std::chrono::milliseconds>(ranks.timeout / 2).count()));
  }
  const Status all = ranks.agree(own);
  if (!all && group_) group_->abort();
  return all;
}

bool NcclCalls::takes(const Collective& call, bool captured) const {
  if (!may_take(call)) return false;
  if (options_.nccl == NcclUse::always) return true;
  return table_.takes(way(), call.kind, captured, bytes_of_all(call, size_));
}

Status NcclCalls::enqueue(GpuGroup& on, const Collective& call, std::uint64_t digest, std::uint64_t number,
                          Timeout timeout, void* stream, bool captured) {
  Status status;
  if (options_.guarded) {
    watch_->allow(number, timeout);
    status = on.launch(call, digest, number, timeout, stream, GpuGroup::Part::entry);
    if (!status) return status;
  }
  status = group_->enqueue(call, stream, captured, after(Clock::now(), timeout));
  if (status && options_.guarded) status = on.launch(call, digest, number, timeout, stream, GpuGroup::Part::exit);
  if (!status && !captured) watch_->give_up(status);
  return status;
}

std::string NcclCalls::explain(const Collective& call, bool captured) const {
  const std::uint64_t bytes = bytes_of_all(call, size_);
  const std::string what = fmt::format("{} of {} bytes{}", to_string(call.kind), bytes, captured ? " in a graph" : "");
  const auto ours = [&](const std::string& why) { return fmt::format("{}: by Fairway's kernels: {}", what, why); };
  if (group_ == nullptr) return ours(reason_);
  const std::string theirs = nccl_ + (options_.guarded ? ", guarded" : ", unguarded");
  if (!nccl::can(call)) return ours("NCCL does not do it as it is asked for");
  if (options_.nccl == NcclUse::always) return fmt::format("{}: by {}: it was asked for always", what, theirs);
  std::string rows;
  WayTable::Around around = table_.around(call.kind, captured, bytes);
  if (around.above == around.below) around.above = nullptr;
  for (const WayRow* row : {around.below, around.above}) {
    if (row == nullptr) continue;
    rows += fmt::format("{}{} bytes take {} by Fairway, {} by {}", rows.empty() ? "" : ", ", row->bytes,
                        of_us(row->ns[0]), of_us(row->ns[static_cast<std::size_t>(way())]), theirs);
  }
  if (rows.empty()) return ours(fmt::format("it was not measured ({})", path_));
  rows += fmt::format(" ({})", path_);
  return takes(call, captured) ? fmt::format("{}: by {}: {}", what, theirs, rows) : ours(rows);
}

}  // namespace fairway::collectives
