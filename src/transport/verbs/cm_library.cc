#include "transport/verbs/cm_library.h"

#include <type_traits>

#include <dlfcn.h>

namespace fairway::transport::verbs {

Result<CmLibrary> CmLibrary::open() {
  CmLibrary library;
  // Never unloaded: unloading leaves its devices open, and loading it again would open them twice.
  void* const handle = ::dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr)
    return Status(ErrorCode::unsupported, "librdmacm.so.1 cannot be opened: install librdmacm1 (Debian's name)");
  bool all = true;
  const auto find = [&](auto*& function, const char* symbol, const char* version = "RDMACM_1.0") {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlvsym(handle, symbol, version));
    all &= function != nullptr;
  };
  find(library.create_channel, "rdma_create_event_channel");
  find(library.destroy_channel, "rdma_destroy_event_channel");
  find(library.create_id, "rdma_create_id");
  find(library.destroy_id, "rdma_destroy_id");
  find(library.bind, "rdma_bind_addr");
  find(library.listen, "rdma_listen");
  find(library.source_port, "rdma_get_src_port");
  find(library.resolve_address, "rdma_resolve_addr");
  find(library.resolve_route, "rdma_resolve_route");
  find(library.connect, "rdma_connect");
  find(library.accept, "rdma_accept");
  find(library.reject, "rdma_reject");
  find(library.establish, "rdma_establish", "RDMACM_1.2");
  find(library.attributes, "rdma_init_qp_attr", "RDMACM_1.2");
  find(library.get_event, "rdma_get_cm_event");
  find(library.acknowledge, "rdma_ack_cm_event");
  find(library.event_text, "rdma_event_str");
  if (!all) return Status(ErrorCode::unsupported, "librdmacm.so.1 is older than rdma-core 22: update it");
  return library;
}

}  // namespace fairway::transport::verbs
