#include <cstddef>

#include <gtest/gtest.h>

#include "sys/cuda.h"

// Our own declarations of the driver's binary interface against the toolkit's header, where there is one.
#ifdef FAIRWAY_CUDA_HEADER
#include <cuda.h>
#endif

namespace fairway::sys {
namespace {

#ifdef FAIRWAY_CUDA_HEADER
static_assert(sizeof(cuda::Uuid) == sizeof(CUuuid));
static_assert(sizeof(cuda::IpcHandle) == sizeof(CUipcMemHandle));
static_assert(sizeof(cuda::Location) == sizeof(CUmemLocation));
static_assert(sizeof(cuda::Address) == sizeof(CUdeviceptr));
static_assert(sizeof(cuda::Allocation) == sizeof(CUmemGenericAllocationHandle));
static_assert(sizeof(cuda::AccessDescription) == sizeof(CUmemAccessDesc));
static_assert(offsetof(cuda::AccessDescription, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(cuda::AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(cuda::AllocationProperties, handle_types) ==
              offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(cuda::AllocationProperties, location) == offsetof(CUmemAllocationProp, location));
static_assert(offsetof(cuda::AllocationProperties, rdma_capable) ==
              offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
#if CUDA_VERSION >= 12080
static_assert(sizeof(cuda::CopyAttributes) == sizeof(CUmemcpyAttributes));
static_assert(offsetof(cuda::CopyAttributes, source_order) == offsetof(CUmemcpyAttributes, srcAccessOrder));
static_assert(offsetof(cuda::CopyAttributes, source_hint) == offsetof(CUmemcpyAttributes, srcLocHint));
static_assert(offsetof(cuda::CopyAttributes, target_hint) == offsetof(CUmemcpyAttributes, dstLocHint));
static_assert(offsetof(cuda::CopyAttributes, flags) == offsetof(CUmemcpyAttributes, flags));
#endif
#endif

TEST(CudaAbi, IsTheToolkitsWhereThereIsOne) {
#ifndef FAIRWAY_CUDA_HEADER
  GTEST_SKIP() << "this machine has no cuda.h to compare with";
#else
  EXPECT_EQ(cuda::kErrorNotReady, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuda::kErrorNotSupported, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuda::kErrorPeerAccessAlreadyEnabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  EXPECT_EQ(cuda::kLocationDevice, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(cuda::kAllocationPinned, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(cuda::kHandleFile, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(cuda::kReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(cuda::kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(cuda::kHostPortable, static_cast<unsigned>(CU_MEMHOSTREGISTER_PORTABLE));
  EXPECT_EQ(cuda::kHostMapped, static_cast<unsigned>(CU_MEMHOSTREGISTER_DEVICEMAP));
  EXPECT_EQ(cuda::kIpcLazyPeerAccess, static_cast<unsigned>(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  EXPECT_EQ(cuda::kEventDisableTiming, static_cast<unsigned>(CU_EVENT_DISABLE_TIMING));
  EXPECT_EQ(cuda::kWaitAtLeast, static_cast<unsigned>(CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_EQ(cuda::kMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  EXPECT_EQ(cuda::kBufferId, CU_POINTER_ATTRIBUTE_BUFFER_ID);
  EXPECT_EQ(cuda::kIsManaged, CU_POINTER_ATTRIBUTE_IS_MANAGED);
  EXPECT_EQ(cuda::kDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
  EXPECT_EQ(cuda::kIpcCapable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
  EXPECT_EQ(cuda::kRangeStart, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
  EXPECT_EQ(cuda::kRangeSize, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
  EXPECT_EQ(cuda::kAllowedHandleTypes, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
  EXPECT_EQ(cuda::kSyncCopies, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
  EXPECT_EQ(cuda::kTypeHost, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
  EXPECT_EQ(cuda::kTypeDevice, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(cuda::kBusFlushOptions, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
  EXPECT_EQ(cuda::kBusWritesOrdering, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
  EXPECT_EQ(cuda::kFlushByHost, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST);
  EXPECT_EQ(cuda::kOrderedForOwner, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);
  EXPECT_EQ(cuda::kFlushCurrentContext, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX);
  EXPECT_EQ(cuda::kPeerAtomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED);
  EXPECT_EQ(cuda::kDmaBuf, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
  EXPECT_EQ(cuda::kCaptureActive, CU_STREAM_CAPTURE_STATUS_ACTIVE);
#if CUDA_VERSION >= 12080
  EXPECT_EQ(cuda::kInStreamOrder, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
#endif
#endif
}

}  // namespace
}  // namespace fairway::sys
