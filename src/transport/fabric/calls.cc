#include "transport/fabric/calls.h"

namespace fairway::transport::fabric {

Calls Calls::of(std::shared_ptr<const sys::Libfabric> library) {
  Calls calls;
  calls.library = std::move(library);
  calls.getinfo = [](const sys::Libfabric& fabric, const fi_info* hints, fi_info** info) {
    return fabric.getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), nullptr, nullptr, 0, hints, info);
  };
  calls.read_queue = [](fid_cq* queue, fi_cq_data_entry* into, std::size_t count) {
    return ::fi_cq_read(queue, into, count);
  };
  calls.write = [](fid_ep* end, const fi_msg_rma* message, std::uint64_t flags) {
    return ::fi_writemsg(end, message, flags);
  };
  calls.read = [](fid_ep* end, const fi_msg_rma* message, std::uint64_t flags) {
    return ::fi_readmsg(end, message, flags);
  };
  calls.send = [](fid_ep* end, const fi_msg* message, std::uint64_t flags) {
    return ::fi_sendmsg(end, message, flags);
  };
  calls.inject = [](fid_ep* end, const void* bytes, std::size_t size, fi_addr_t peer) {
    return ::fi_inject(end, bytes, size, peer);
  };
  calls.receive = [](fid_ep* end, void* into, std::size_t size, void* descriptor, void* context) {
    return ::fi_recv(end, into, size, descriptor, FI_ADDR_UNSPEC, context);
  };
  calls.open_queue = [](fid_domain* domain, fi_cq_attr* attributes, fid_cq** queue, void* context) {
    return ::fi_cq_open(domain, attributes, queue, context);
  };
  calls.open_end = [](fid_domain* domain, fi_info* info, fid_ep** end, void* context) {
    return ::fi_endpoint(domain, info, end, context);
  };
  calls.register_memory = [](fid_domain* domain, const fi_mr_attr* attributes, fid_mr** region) {
    return ::fi_mr_regattr(domain, attributes, 0, region);
  };
  calls.bind = [](fid_mr* region, fid_ep* end) {
    const int result = ::fi_mr_bind(region, &end->fid, 0);
    return result != 0 ? result : ::fi_mr_enable(region);
  };
  calls.may_sleep = [](fid_fabric* fabric, fid_cq* queue) {
    fid* one = &queue->fid;
    return ::fi_trywait(fabric, &one, 1);
  };
  return calls;
}

}  // namespace fairway::transport::fabric
