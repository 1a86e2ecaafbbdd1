#include "bench_verbs_end.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench_pattern.h"

namespace fairway::tool::bench::raw {
namespace {

namespace abi = verbs::abi;

constexpr std::uint32_t kDepth = 128;                        // of a send queue, where a list is no longer
constexpr std::uint64_t kHeader = 40;                        // what comes before a datagram
constexpr std::uint64_t kReceived = std::uint64_t{1} << 63;  // in a completion's id
constexpr std::uint8_t kReadsAtOnce = 16;

int type_of(Type type) {
  return type == Type::rc ? abi::kReliable : type == Type::uc ? abi::kUnreliable : abi::kDatagram;
}

int opcode_of(Action action) {
  switch (action) {
    case Action::write: return abi::kWrite;
    case Action::write_immediate: return abi::kWriteImmediate;
    case Action::read: return abi::kRead;
    case Action::send: return abi::kSend;
    case Action::fetch_add: return abi::kFetchAdd;
    case Action::compare_swap: return abi::kCompareSwap;
  }
  return abi::kSend;
}

std::uint8_t mtu_code(std::uint32_t bytes) {  // 1 is 256 bytes, 5 is 4096
  return static_cast<std::uint8_t>(std::countr_zero(bytes) - 7);
}

// `bytes` of memory in so many pieces.
void cut(std::span<abi::Gather> into, const std::byte* bytes, std::uint64_t size, std::uint32_t key) {
  const std::uint64_t each = size / into.size();
  for (std::size_t i = 0; i < into.size(); ++i) {
    const std::uint64_t length = i + 1 == into.size() ? size - each * i : each;
    into[i] = {reinterpret_cast<std::uintptr_t>(bytes) + each * i, static_cast<std::uint32_t>(length), key};
  }
}

}  // namespace

Result<std::unique_ptr<End>> End::open(const std::string& device, int gid_index) {
  transport::VerbsOptions options;
  if (!device.empty()) options.rdma.devices = {device};
  options.rdma.gid_index = gid_index;
  auto ports = verbs::open_ports(options);
  if (!ports) {
    constexpr std::string_view kOption = "EngineOptions::rdma.devices";  // is called otherwise here
    std::string text = ports.status().message();
    if (const auto at = text.find(kOption); at != text.npos) text.replace(at, kOption.size(), "--device");
    return Status(ports.status().code(), text);
  }
  return std::unique_ptr<End>(new End(std::move(ports->front())));
}

End::~End() {
  pairs_.clear();
  if (region_ != nullptr) port_->library().deregister(region_);
  if (memory_ != nullptr) ::munmap(memory_, 2 * area_ + kHeader);
}

Status End::reserve(std::uint64_t area) {
  area_ = (area + 4095) / 4096 * 4096;
  void* at = ::mmap(nullptr, 2 * area_ + kHeader, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    return {ErrorCode::resource_exhausted, fmt::format("no memory of {} bytes: {}", 2 * area_, std::strerror(errno))};
  memory_ = static_cast<std::byte*>(at);
  int access = abi::kLocalWrite | abi::kRemoteWrite | abi::kRemoteRead;
  if (port_->limits().atomics != abi::kAtomicsNone) access |= abi::kRemoteAtomic;
  region_ = port_->register_memory(memory_, 2 * area_ + kHeader, access, false);
  return region_ != nullptr ? Status()
                            : port_->refusal(fmt::format("{} bytes cannot be registered", 2 * area_ + kHeader), errno);
}

Place End::place() const {
  Place place;
  place.address = port_->address();
  place.mtu = std::uint32_t{128} << port_->state().active_mtu;
  place.atomics = port_->limits().atomics != abi::kAtomicsNone;
  place.out = reinterpret_cast<std::uintptr_t>(memory_);
  place.in = place.out + area_;
  place.key = region_ != nullptr ? region_->rkey : 0;
  return place;
}

Result<std::vector<verbs::Endpoint>> End::make_pairs(const Shape& shape, std::uint32_t path_mtu) {
  pairs_.clear();
  shape_ = shape;
  depth_ = std::max(kDepth, shape.post_list);
  const auto& limits = port_->limits();
  const std::uint32_t receives = shape.announced() ? shape.most_on_one_pair() : 1;
  const std::uint32_t receive_gathers = shape.type == Type::ud ? 2 : 1;
  const auto more = [&](const char* option, std::uint64_t wanted, int most) {
    return Status(ErrorCode::invalid_argument,
                  fmt::format("{}: {} asks for {}, and the device has {}", port_->device().name, option, wanted, most));
  };
  if (std::cmp_greater(std::max(depth_, receives), limits.requests))
    return more("--post-list (or the operations at once)", std::max(depth_, receives), limits.requests);
  if (std::cmp_greater(shape.gathers, limits.gathers)) return more("--sge", shape.gathers, limits.gathers);
  verbs::QueuePair::Kind kind;
  kind.type = type_of(shape.type);
  kind.receive_gathers = receive_gathers;
  kind.atomics = limits.atomics != abi::kAtomicsNone;
  if (shape.inline_bytes >= 0) kind.inline_bytes = static_cast<std::uint32_t>(shape.inline_bytes);
  own_.clear();
  for (std::uint32_t i = 0; i < shape.queue_pairs; ++i) {
    auto pair = verbs::QueuePair::make(*port_, {depth_, receives, shape.gathers}, i, kind);
    if (!pair)
      return Status(pair.status())
          .with_context(fmt::format(
              "{} queue pair {} of {}{}", name_of(shape.type), i + 1, shape.queue_pairs,
              shape.inline_bytes > 0 ? fmt::format(" (--inline {} may be too many)", shape.inline_bytes) : ""));
    verbs::Endpoint& own = own_.emplace_back();
    own.port = port_->address();
    own.number = (*pair)->number();
    own.first_psn = static_cast<std::uint32_t>(pattern(static_cast<std::uint64_t>(::getpid()), i)) & 0xffffff;
    own.mtu = mtu_code(path_mtu);
    own.reads = static_cast<std::uint8_t>(std::clamp(limits.reads_in, 1, int{kReadsAtOnce}));
    pairs_.push_back(std::move(*pair));
  }
  const bool carries =
      shape.action == Action::send || shape.action == Action::write || shape.action == Action::write_immediate;
  inline_ = carries && shape.size <= pairs_.front()->inline_bytes();
  requests_.assign(shape.post_list, {});
  gathers_.assign(std::size_t{shape.post_list} * shape.gathers, {});
  underway_.assign(shape.queue_pairs, 0);
  arrivals_.assign(shape.queue_pairs, {});
  forget();
  return own_;
}

Status End::connect(std::span<const verbs::Endpoint> theirs, const Place& there) {
  there_ = there;
  for (std::size_t i = 0; i < pairs_.size(); ++i)
    if (Status status = pairs_[i]->connect(own_[i], theirs[i]); !status) return status;
  return {};
}

void End::forget() {
  sent_ = arrived_ = 0;
  for (auto& each : arrivals_) each.clear();
}

Status End::failed(const char* what) const {
  return {ErrorCode::link_failed,
          fmt::format("{}: {} {}: {}", port_->device().name, name_of(shape_.type), name_of(shape_.action), what)};
}

Status End::post(std::uint32_t pair, std::uint32_t first, std::uint32_t count, std::uint64_t seed) {
  for (std::uint32_t i = 0; i < count; ++i) {
    abi::SendRequest& request = requests_[i];
    const std::uint32_t slot = first + i;
    const std::span<abi::Gather> pieces(&gathers_[std::size_t{i} * shape_.gathers], shape_.gathers);
    const bool comes = shape_.action == Action::read || shape_.atomic();
    cut(pieces, comes ? in(slot) : out(slot), shape_.size, region_->lkey);
    request.id = count;
    request.next = i + 1 < count ? &requests_[i + 1] : nullptr;
    request.gather = pieces.data();
    request.gather_count = static_cast<int>(pieces.size());
    request.opcode = opcode_of(shape_.action);
    request.flags = (inline_ ? abi::kInline : 0U) | (i + 1 == count ? abi::kSignaled : 0U);
    request.immediate = slot;  // of one host: no order of bytes between them
    const std::uint64_t offset = slot * shape_.stride();
    if (shape_.type == Type::ud)
      pairs_[pair]->aim(request);
    else if (shape_.atomic())
      request.remote.atomic = {there_.in + offset, pattern(seed, 2 * std::uint64_t{slot}),
                               pattern(seed, 2 * std::uint64_t{slot} + 1), there_.key};
    else
      request.remote.rdma = {(shape_.action == Action::read ? there_.out : there_.in) + offset, there_.key};
  }
  ++counts_.doorbells;
  counts_.requests += count;
  underway_[pair] += count;
  return pairs_[pair]->post(requests_.front()) ? Status() : failed("ibv_post_send refuses work requests");
}

Status End::post_receives(std::uint32_t slots, bool by_lists) {
  constexpr std::size_t kChain = 64;
  std::array<abi::ReceiveRequest, kChain> chain{};
  std::array<abi::Gather, 2 * kChain> pieces{};
  const bool datagram = shape_.type == Type::ud;
  const std::uint32_t list = by_lists ? shape_.post_list : 1;
  for (std::uint32_t pair = 0; pair < pairs_.size(); ++pair) {
    std::size_t used = 0;
    const auto ring = [&] {
      if (used == 0) return true;
      chain[used - 1].next = nullptr;
      ++counts_.receive_doorbells;
      counts_.receives += std::exchange(used, 0);
      return pairs_[pair]->post(chain.front());
    };
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      if (slot / list % pairs_.size() != pair) continue;
      abi::Gather* const at = &pieces[2 * used];
      std::uint32_t count = 0;
      if (datagram) at[count++] = {reinterpret_cast<std::uintptr_t>(memory_) + 2 * area_, kHeader, region_->lkey};
      at[count++] = {reinterpret_cast<std::uintptr_t>(in(slot)), static_cast<std::uint32_t>(shape_.size),
                     region_->lkey};
      const bool bytes = shape_.action == Action::send;  // else they are written to their place
      chain[used] = {kReceived | slot, &chain[std::min(used + 1, kChain - 1)], bytes ? at : nullptr,
                     bytes ? static_cast<int>(count) : 0};
      if (++used == kChain && !ring()) return failed("ibv_post_recv refuses work requests");
    }
    if (!ring()) return failed("ibv_post_recv refuses work requests");
  }
  return {};
}

Result<int> End::poll() {
  std::array<abi::WorkCompletion, 32> done;
  int all = 0;
  for (std::uint32_t pair = 0; pair < pairs_.size(); ++pair) {
    const int count = pairs_[pair]->poll(done);
    if (count < 0) return failed("the completion queue broke");
    for (const abi::WorkCompletion& each : std::span(done).first(static_cast<std::size_t>(count))) {
      if (each.status != abi::kSuccess) return failed(port_->library().status_text(each.status));
      if ((each.id & kReceived) == 0) {
        sent_ += each.id;
        underway_[pair] -= static_cast<std::uint32_t>(each.id);
        continue;
      }
      const std::uint64_t header = shape_.type == Type::ud ? kHeader : 0;
      ++arrived_;
      arrivals_[pair].push_back(
          {static_cast<std::uint32_t>(each.id), each.immediate, static_cast<std::uint32_t>(each.length - header)});
    }
    all += count;
  }
  counts_.completions += static_cast<std::uint64_t>(all);
  return all;
}

Result<int> End::sleep(std::chrono::milliseconds most) {
  port_->drain_channel();
  for (const auto& pair : pairs_)
    if (!pair->arm()) return failed("the completion queue cannot be armed");
  auto got = poll();  // what came before
  if (!got || *got > 0) return got;
  ++counts_.sleeps;
  pollfd channel{port_->channel()->fd, POLLIN, 0};
  if (::poll(&channel, 1, static_cast<int>(most.count())) < 0 && errno != EINTR) return failed(std::strerror(errno));
  return poll();
}

}  // namespace fairway::tool::bench::raw
