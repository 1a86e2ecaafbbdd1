#include "transport/fabric/endpoint.h"

#include <array>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace fairway::transport::fabric {
namespace {

// ofi_rxm sizes its internal queues for FI_UNIVERSE_SIZE peers, which may exceed a device's limits. Fairway does not
// set the variable, since it affects all users of libfabric in this process.
std::string_view remedy(const Domain& domain) {
  const bool sized = std::string_view(domain.info().fabric_attr->prov_name) == "verbs;ofi_rxm";
  return sized ? ": its queues are sized for FI_UNIVERSE_SIZE peers, by default 1024: set it lower, for example to 64"
               : "";
}

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::make(const Domain& domain, std::uint64_t name) {
  const Sizes asked = sizes_of(domain.info());
  for (Sizes sizes = asked;;) {
    std::unique_ptr<Endpoint> made(new Endpoint(domain, sizes));
    const Refusal refusal = made->open(name);
    if (refusal.result == 0) return made;
    made.reset();
    const auto less = smaller(sizes);
    if (may_be_size(refusal.result) && less) {
      sizes = *less;
      continue;
    }
    return Status(
        ErrorCode::resource_exhausted,
        fmt::format("fabric: {}: {}: {} (requested: {}{}; the provider offers {} endpoints){}", domain.device().name,
                    refusal.call, domain.text(refusal.result), text(asked),
                    sizes == asked ? "" : ", last " + text(sizes), domain.info().domain_attr->ep_cnt, remedy(domain)));
  }
}

Endpoint::Refusal Endpoint::open(std::uint64_t name) {
  if (const Refusal refusal = open_queue(name); refusal.result != 0) return refusal;
  // A count of one, whatever FI_UNIVERSE_SIZE says, since providers size tables by it.
  fi_av_attr table{};
  table.type = domain_.info().domain_attr->av_type;
  table.count = 1;
  fid_av* addresses = nullptr;
  if (const int result = ::fi_av_open(domain_.get(), &table, &addresses, nullptr); result != 0)
    return {"fi_av_open", result};
  addresses_.reset(addresses);
  if (const Refusal refusal = open_end(name); refusal.result != 0) return refusal;
  fid_ep* const end = end_.get();
  if (const int result = ::fi_ep_bind(end, &addresses->fid, 0); result != 0) return {"fi_ep_bind", result};
  if (const int result = ::fi_ep_bind(end, &queue_->fid, FI_TRANSMIT | FI_RECV); result != 0)
    return {"fi_ep_bind", result};
  if (const int result = ::fi_enable(end); result != 0) return {"fi_enable", result};
  address_.resize(kMaxAddressBytes);
  std::size_t size = address_.size();
  if (const int result = ::fi_getname(&end->fid, address_.data(), &size); result != 0) return {"fi_getname", result};
  if (size > address_.size()) return {"fi_getname", -FI_ETOOSMALL};
  address_.resize(size);
  return {};
}

// Opens the completion queue, with a descriptor to sleep on if the provider has one.
Endpoint::Refusal Endpoint::open_queue(std::uint64_t name) {
  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_DATA;
  for (const fi_wait_obj wait : {FI_WAIT_FD, FI_WAIT_NONE}) {
    attributes.size = sizes_.completions();
    attributes.wait_obj = wait;
    fid_cq* queue = nullptr;
    if (const int result =
            domain_.calls().open_queue(domain_.get(), &attributes, &queue, reinterpret_cast<void*>(name));
        result != 0) {
      if (wait == FI_WAIT_FD) continue;
      return {"fi_cq_open", result};
    }
    queue_.reset(queue);
    if (wait == FI_WAIT_NONE || ::fi_control(&queue->fid, FI_GETWAIT, &fd_) == 0) return {};
    fd_ = -1;  // it accepted FI_WAIT_FD but has no descriptor
    queue_.reset();
  }
  return {};
}

Endpoint::Refusal Endpoint::open_end(std::uint64_t name) {
  fi_info* info = &domain_.info();
  Info less(nullptr, InfoCloser{domain_.calls().library});
  if (sizes_ != sizes_of(*info)) {
    less.reset(domain_.calls().library->dupinfo(info));
    if (!less) return {"fi_dupinfo", -FI_ENOMEM};
    info = less.get();
    info->tx_attr->size = sizes_.operations;
    info->rx_attr->size = sizes_.receives;
  }
  fid_ep* end = nullptr;
  const int result = domain_.calls().open_end(domain_.get(), info, &end, reinterpret_cast<void*>(name));
  if (result == 0) end_.reset(end);
  return {"fi_endpoint", result};
}

// Providers read a fixed number of bytes for their address format; for text (shm), up to the terminating zero.
Status Endpoint::connect(std::span<const std::byte> theirs) {
  if (domain_.info().addr_format != FI_ADDR_STR && theirs.size() != address_.size())
    return {ErrorCode::protocol_error, "malformed fabric handshake: the address has the wrong size"};
  const std::string ended(reinterpret_cast<const char*>(theirs.data()), theirs.size());
  if (const int result = ::fi_av_insert(addresses_.get(), ended.c_str(), 1, &peer_, 0, nullptr); result != 1)
    return {ErrorCode::unreachable, fmt::format("fabric: {}: fi_av_insert: {}", domain_.device().name,
                                                result < 0 ? domain_.text(result) : "invalid address")};
  return {};
}

Endpoint::Error Endpoint::take_error() const {
  fi_cq_err_entry entry{};
  const ssize_t result = ::fi_cq_readerr(queue_.get(), &entry, 0);
  if (result <= 0) return {false, nullptr, "fi_cq_readerr: " + domain_.text(result == 0 ? -FI_EAGAIN : result)};
  std::array<char, 128> words{};
  const char* detail = ::fi_cq_strerror(queue_.get(), entry.prov_errno, entry.err_data, words.data(), words.size());
  std::string text = domain_.calls().library->strerror(entry.err);
  if (detail != nullptr && *detail != '\0') text += fmt::format(" ({})", detail);
  return {true, entry.op_context, std::move(text)};
}

bool Endpoint::may_sleep() const {
  if (fd_ < 0) return true;  // a timer polls it
  return domain_.calls().may_sleep(domain_.fabric(), queue_.get()) == 0;
}

}  // namespace fairway::transport::fabric
