#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/types.h>

#include "sys/libfabric.h"

namespace fairway::transport::fabric {

// The libfabric calls that tests may replace: fi_getinfo and the data path. Plain pointers to what libfabric's headers
// call through its objects. Immutable.
struct Calls {
  std::shared_ptr<const sys::Libfabric> library;
  int (*getinfo)(const sys::Libfabric&, const fi_info* hints, fi_info** info) = nullptr;
  ssize_t (*read_queue)(fid_cq*, fi_cq_data_entry*, std::size_t count) = nullptr;
  ssize_t (*write)(fid_ep*, const fi_msg_rma*, std::uint64_t flags) = nullptr;
  ssize_t (*read)(fid_ep*, const fi_msg_rma*, std::uint64_t flags) = nullptr;
  ssize_t (*send)(fid_ep*, const fi_msg*, std::uint64_t flags) = nullptr;
  ssize_t (*inject)(fid_ep*, const void*, std::size_t, fi_addr_t) = nullptr;
  ssize_t (*receive)(fid_ep*, void*, std::size_t, void* descriptor, void* context) = nullptr;

  int (*open_queue)(fid_domain*, fi_cq_attr*, fid_cq**, void* context) = nullptr;
  int (*open_end)(fid_domain*, fi_info*, fid_ep**, void* context) = nullptr;
  int (*register_memory)(fid_domain*, const fi_mr_attr*, fid_mr**) = nullptr;
  int (*bind)(fid_mr*, fid_ep*) = nullptr;           // and enables it
  int (*may_sleep)(fid_fabric*, fid_cq*) = nullptr;  // fi_trywait on the queue's descriptor; -FI_EAGAIN: poll first

  static Calls of(std::shared_ptr<const sys::Libfabric> library);
};

// Closes one of libfabric's objects, which begin with their `fid`.
template <class T>
struct Closer {
  void operator()(T* object) const { static_cast<void>(::fi_close(&object->fid)); }
};
template <class T>
using Owned = std::unique_ptr<T, Closer<T>>;
// Closes it. Not 0: the provider's error; it is still open and owned.
template <class T>
int close(Owned<T>& object) {
  const int result = object ? ::fi_close(&object->fid) : 0;
  if (result == 0) static_cast<void>(object.release());
  return result;
}

struct InfoCloser {
  std::shared_ptr<const sys::Libfabric> library;
  void operator()(fi_info* info) const { library->freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoCloser>;

}  // namespace fairway::transport::fabric
