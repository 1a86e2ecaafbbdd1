#include "transport/verbs/library.h"

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <type_traits>

#include <dlfcn.h>

namespace fairway::transport::verbs {
namespace {

// ibv_query_device_ex, which is inline in the header: the library stores the call before the context that it returns.
int ask_for_paging(abi::Context* context, abi::PagingLimits* out) {
  constexpr auto kExtended = ~std::uintptr_t{0};  // of Context::abi_compat
  *out = {};
  if (reinterpret_cast<std::uintptr_t>(context->abi_compat) != kExtended) return EOPNOTSUPP;
  const auto* extended = reinterpret_cast<const abi::Extended*>(reinterpret_cast<const std::byte*>(context) -
                                                                offsetof(abi::Extended, context));
  if (extended->size < sizeof(abi::Extended) || extended->query_device == nullptr) return EOPNOTSUPP;
  abi::ExtendedLimits limits{};
  const int error = extended->query_device(context, nullptr, &limits, sizeof limits);
  if (error == 0) *out = limits.paging;
  return error;
}

}  // namespace

std::string system_text(int error) {
  return std::generic_category().message(error);
}

Result<Library> Library::open() {
  Library library;
  void* const handle = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return Status(
        ErrorCode::unsupported,
        "verbs: libibverbs.so.1 cannot be opened: install libibverbs1 and ibverbs-providers (Debian's names)");
  library.handle = std::shared_ptr<void>(handle, [](void* each) { ::dlclose(each); });
  bool all = true;
  const auto find = [&](auto*& function, const char* symbol, const char* version = "IBVERBS_1.1") {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlvsym(handle, symbol, version));
    return function != nullptr;
  };
  all &= find(library.list, "ibv_get_device_list");
  all &= find(library.free_list, "ibv_free_device_list");
  all &= find(library.open_device, "ibv_open_device");
  all &= find(library.close_device, "ibv_close_device");
  all &= find(library.query_device, "ibv_query_device");
  all &= find(library.query_port, "ibv_query_port");
  all &= find(library.query_gids, "_ibv_query_gid_table", "IBVERBS_1.11");
  all &= find(library.query_partition, "ibv_query_pkey");
  all &= find(library.alloc_domain, "ibv_alloc_pd");
  all &= find(library.free_domain, "ibv_dealloc_pd");
  all &= find(library.register_region, "ibv_reg_mr");
  all &= find(library.deregister, "ibv_dereg_mr");
  all &= find(library.create_channel, "ibv_create_comp_channel", "IBVERBS_1.0");
  all &= find(library.destroy_channel, "ibv_destroy_comp_channel", "IBVERBS_1.0");
  all &= find(library.create_queue, "ibv_create_cq");
  all &= find(library.destroy_queue, "ibv_destroy_cq");
  all &= find(library.get_event, "ibv_get_cq_event");
  all &= find(library.acknowledge, "ibv_ack_cq_events");
  all &= find(library.get_async_event, "ibv_get_async_event");
  all &= find(library.acknowledge_async, "ibv_ack_async_event");
  all &= find(library.create_pair, "ibv_create_qp");
  all &= find(library.modify_pair, "ibv_modify_qp");
  all &= find(library.destroy_pair, "ibv_destroy_qp");
  all &= find(library.create_address_handle, "ibv_create_ah");
  all &= find(library.destroy_address_handle, "ibv_destroy_ah");
  all &= find(library.status_text, "ibv_wc_status_str");
  if (!all) return Status(ErrorCode::unsupported, "verbs: libibverbs.so.1 is older than rdma-core 32: update it");
  static_cast<void>(find(library.register_optional, "ibv_reg_mr_iova2", "IBVERBS_1.8"));
  static_cast<void>(find(library.register_dmabuf, "ibv_reg_dmabuf_mr", "IBVERBS_1.12"));
  library.query_paging = &ask_for_paging;
  return library;
}

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
