#include "transport/fabric/endpoint.h"

#include <array>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace fairway::transport::fabric {
namespace {

constexpr std::size_t kQueueEntries = kOperations + 2 * kIn + kReceives;

// ofi_rxm opens queues below ours, for each of so many peers as the environment says when libfabric is first used, and
// no device has any number. Not set by us: it holds for whoever else uses libfabric in this process.
std::string_view remedy(const Domain& domain) {
  const bool sized = std::string_view(domain.info().fabric_attr->prov_name) == "verbs;ofi_rxm";
  return sized ? ": its queues are made for FI_UNIVERSE_SIZE peers, 1024 if that is not set: set it, to 64 say" : "";
}

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::make(const Domain& domain, std::uint64_t name) {
  std::unique_ptr<Endpoint> made(new Endpoint(domain));
  if (Status status = made->open(name); !status)
    return Status(ErrorCode::resource_exhausted,
                  fmt::format("fabric: {}: {} (the provider says that it has {} endpoints){}", domain.device().name,
                              status.message(), domain.info().domain_attr->ep_cnt, remedy(domain)));
  return made;
}

Status Endpoint::open(std::uint64_t name) {
  const auto no = [this](const char* call, long result) {
    return Status(ErrorCode::system_error, fmt::format("{}: {}", call, domain_.text(result)));
  };
  if (Status status = open_queue(name); !status) return status;
  // The count is one, whatever FI_UNIVERSE_SIZE says: providers size tables by it.
  fi_av_attr table{};
  table.type = domain_.info().domain_attr->av_type;
  table.count = 1;
  fid_av* addresses = nullptr;
  if (const int result = ::fi_av_open(domain_.get(), &table, &addresses, nullptr); result != 0)
    return no("fi_av_open", result);
  addresses_.reset(addresses);
  fid_ep* end = nullptr;
  if (const int result = ::fi_endpoint(domain_.get(), &domain_.info(), &end, reinterpret_cast<void*>(name));
      result != 0)
    return no("fi_endpoint", result);
  end_.reset(end);
  if (const int result = ::fi_ep_bind(end, &addresses->fid, 0); result != 0) return no("fi_ep_bind", result);
  if (const int result = ::fi_ep_bind(end, &queue_->fid, FI_TRANSMIT | FI_RECV); result != 0)
    return no("fi_ep_bind", result);
  if (const int result = ::fi_enable(end); result != 0) return no("fi_enable", result);
  address_.resize(kMaxAddressBytes);
  std::size_t size = address_.size();
  if (const int result = ::fi_getname(&end->fid, address_.data(), &size); result != 0 || size > address_.size())
    return no("fi_getname", result);
  address_.resize(size);
  return {};
}

// With a descriptor to sleep on, where the provider has one.
Status Endpoint::open_queue(std::uint64_t name) {
  fi_cq_attr attributes{};
  attributes.size = kQueueEntries;
  attributes.format = FI_CQ_FORMAT_DATA;
  for (const fi_wait_obj wait : {FI_WAIT_FD, FI_WAIT_NONE}) {
    attributes.wait_obj = wait;
    fid_cq* queue = nullptr;
    if (const int result = ::fi_cq_open(domain_.get(), &attributes, &queue, reinterpret_cast<void*>(name));
        result != 0) {
      if (wait == FI_WAIT_FD) continue;
      return {ErrorCode::system_error, "fi_cq_open: " + domain_.text(result)};
    }
    queue_.reset(queue);
    if (wait == FI_WAIT_NONE || ::fi_control(&queue->fid, FI_GETWAIT, &fd_) == 0) return {};
    fd_ = -1;  // it took the wish and does not fulfil it
    queue_.reset();
  }
  return {};
}

// The provider reads as many bytes as its format has; of text (shm's, with a process's number in it) up to its end.
Status Endpoint::connect(std::span<const std::byte> theirs) {
  if (domain_.info().addr_format != FI_ADDR_STR && theirs.size() != address_.size())
    return {ErrorCode::protocol_error, "fabric: an address of another size than this side's"};
  const std::string ended(reinterpret_cast<const char*>(theirs.data()), theirs.size());
  if (const int result = ::fi_av_insert(addresses_.get(), ended.c_str(), 1, &peer_, 0, nullptr); result != 1)
    return {ErrorCode::unreachable, fmt::format("fabric: {}: fi_av_insert: {}", domain_.device().name,
                                                result < 0 ? domain_.text(result) : "the address is none")};
  return {};
}

Endpoint::Error Endpoint::take_error() const {
  fi_cq_err_entry entry{};
  const ssize_t result = ::fi_cq_readerr(queue_.get(), &entry, 0);
  if (result < 0) return {nullptr, "fi_cq_readerr: " + domain_.text(result)};
  std::array<char, 128> words{};
  const char* detail = ::fi_cq_strerror(queue_.get(), entry.prov_errno, entry.err_data, words.data(), words.size());
  std::string text = domain_.calls().library->strerror(entry.err);
  if (detail != nullptr && *detail != '\0') text += fmt::format(" ({})", detail);
  return {entry.op_context, std::move(text)};
}

bool Endpoint::may_sleep() const {
  if (fd_ < 0) return true;  // a timer looks again
  return domain_.calls().may_sleep(domain_.fabric(), queue_.get()) == 0;
}

}  // namespace fairway::transport::fabric
