#include "transport/verbs/abi.h"

#include <gtest/gtest.h>

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>
#define HAVE_VERBS_HEADERS 1
#endif
#if __has_include(<rdma/rdma_cma.h>)
#include <rdma/rdma_cma.h>
#define HAVE_CM_HEADERS 1
#endif

#include "transport/verbs/library.h"

namespace fairway::transport::verbs {
namespace {

TEST(VerbsAbi, WhatIsDeclaredIsTheHeaders) {
#ifdef HAVE_VERBS_HEADERS
#define SAME_SIZE(ours, theirs) static_assert(sizeof(abi::ours) == sizeof(struct theirs))
#define SAME_PLACE(ours, field, theirs, name) static_assert(offsetof(abi::ours, field) == offsetof(struct theirs, name))
  SAME_PLACE(Device, transport_type, ibv_device, transport_type);
  SAME_PLACE(Device, name, ibv_device, name);
  SAME_PLACE(Device, ibdev_path, ibv_device, ibdev_path);
  SAME_SIZE(ProtectionDomain, ibv_pd);
  SAME_SIZE(MemoryRegion, ibv_mr);
  SAME_PLACE(MemoryRegion, rkey, ibv_mr, rkey);
  SAME_SIZE(CompletionChannel, ibv_comp_channel);
  SAME_PLACE(CompletionChannel, fd, ibv_comp_channel, fd);
  SAME_SIZE(CompletionQueue, ibv_cq);
  SAME_SIZE(QueuePair, ibv_qp);
  SAME_PLACE(QueuePair, number, ibv_qp, qp_num);
  SAME_SIZE(Gather, ibv_sge);
  SAME_SIZE(SendRequest, ibv_send_wr);
  SAME_PLACE(SendRequest, gather_count, ibv_send_wr, num_sge);
  SAME_PLACE(SendRequest, immediate, ibv_send_wr, imm_data);
  SAME_PLACE(SendRequest, remote, ibv_send_wr, wr);
  SAME_PLACE(SendRequest, remote.rdma.rkey, ibv_send_wr, wr.rdma.rkey);
  SAME_PLACE(SendRequest, remote.atomic.swap, ibv_send_wr, wr.atomic.swap);
  SAME_PLACE(SendRequest, remote.atomic.rkey, ibv_send_wr, wr.atomic.rkey);
  SAME_PLACE(SendRequest, remote.datagram.ah, ibv_send_wr, wr.ud.ah);
  SAME_PLACE(SendRequest, remote.datagram.number, ibv_send_wr, wr.ud.remote_qpn);
  SAME_PLACE(SendRequest, remote.datagram.key, ibv_send_wr, wr.ud.remote_qkey);
  SAME_SIZE(ReceiveRequest, ibv_recv_wr);
  SAME_PLACE(ReceiveRequest, gather_count, ibv_recv_wr, num_sge);
  SAME_SIZE(WorkCompletion, ibv_wc);
  SAME_PLACE(WorkCompletion, length, ibv_wc, byte_len);
  SAME_PLACE(WorkCompletion, immediate, ibv_wc, imm_data);
  SAME_PLACE(WorkCompletion, flags, ibv_wc, wc_flags);
  SAME_SIZE(Context, ibv_context);
  SAME_PLACE(Context, poll, ibv_context, ops.poll_cq);
  SAME_PLACE(Context, request_notification, ibv_context, ops.req_notify_cq);
  SAME_PLACE(Context, post_send, ibv_context, ops.post_send);
  SAME_PLACE(Context, post_receive, ibv_context, ops.post_recv);
  SAME_PLACE(Context, async_fd, ibv_context, async_fd);
  SAME_SIZE(QueuePairOptions, ibv_qp_init_attr);
  SAME_PLACE(QueuePairOptions, limits.inline_bytes, ibv_qp_init_attr, cap.max_inline_data);
  SAME_PLACE(QueuePairOptions, type, ibv_qp_init_attr, qp_type);
  SAME_SIZE(Address, ibv_ah_attr);
  SAME_PLACE(Address, route.gid_index, ibv_ah_attr, grh.sgid_index);
  SAME_PLACE(Address, is_global, ibv_ah_attr, is_global);
  SAME_SIZE(QueuePairState, ibv_qp_attr);
  SAME_PLACE(QueuePairState, access, ibv_qp_attr, qp_access_flags);
  SAME_PLACE(QueuePairState, address, ibv_qp_attr, ah_attr);
  SAME_PLACE(QueuePairState, reads_out, ibv_qp_attr, max_rd_atomic);
  SAME_PLACE(QueuePairState, rnr_retries, ibv_qp_attr, rnr_retry);
  SAME_PLACE(PortState, max_message, ibv_port_attr, max_msg_sz);
  SAME_PLACE(PortState, lid, ibv_port_attr, lid);
  SAME_PLACE(PortState, width, ibv_port_attr, active_width);
  SAME_PLACE(PortState, link_layer, ibv_port_attr, link_layer);
  SAME_PLACE(PortState, path_flags, ibv_port_attr, flags);
  static_assert(sizeof(abi::PortState) > sizeof(ibv_port_attr));
  SAME_SIZE(Limits, ibv_device_attr);
  SAME_PLACE(Limits, gathers, ibv_device_attr, max_sge);
  SAME_PLACE(Limits, reads_in, ibv_device_attr, max_qp_rd_atom);
  SAME_PLACE(Limits, reads_out, ibv_device_attr, max_qp_init_rd_atom);
  SAME_PLACE(Limits, atomics, ibv_device_attr, atomic_cap);
  SAME_PLACE(Limits, ports, ibv_device_attr, phys_port_cnt);
  SAME_SIZE(PagingLimits, ibv_odp_caps);
  SAME_PLACE(PagingLimits, reliable, ibv_odp_caps, per_transport_caps.rc_odp_caps);
  SAME_SIZE(ExtendedLimits, ibv_device_attr_ex);
  SAME_PLACE(ExtendedLimits, paging, ibv_device_attr_ex, odp_caps);
  static_assert(sizeof(abi::Extended) == sizeof(verbs_context) - offsetof(verbs_context, query_device_ex));
  static_assert(offsetof(abi::Extended, context) - offsetof(abi::Extended, size) ==
                offsetof(verbs_context, context) - offsetof(verbs_context, sz));
  SAME_SIZE(Gid, ibv_gid_entry);
  SAME_PLACE(Gid, type, ibv_gid_entry, gid_type);
  SAME_SIZE(AsyncEvent, ibv_async_event);
#undef SAME_SIZE
#undef SAME_PLACE
  EXPECT_EQ(int{abi::kReadyToSend}, int{IBV_QPS_RTS});
  EXPECT_EQ(int{abi::kError}, int{IBV_QPS_ERR});
  EXPECT_EQ(int{abi::kReliable}, int{IBV_QPT_RC});
  EXPECT_EQ(int{abi::kUnreliable}, int{IBV_QPT_UC});
  EXPECT_EQ(int{abi::kDatagram}, int{IBV_QPT_UD});
  EXPECT_EQ(int{abi::kMaskQkey}, int{IBV_QP_QKEY});
  EXPECT_EQ(int{abi::kSend}, int{IBV_WR_SEND});
  EXPECT_EQ(int{abi::kAtomicsNone}, int{IBV_ATOMIC_NONE});
  EXPECT_EQ(int{abi::kMaskPeer}, int{IBV_QP_DEST_QPN});
  EXPECT_EQ(int{abi::kMaskReadsIn}, int{IBV_QP_MAX_DEST_RD_ATOMIC});
  EXPECT_EQ(int{abi::kMaskReadsOut}, int{IBV_QP_MAX_QP_RD_ATOMIC});
  EXPECT_EQ(int{abi::kMaskMinRnrTimer}, int{IBV_QP_MIN_RNR_TIMER});
  EXPECT_EQ(int{abi::kSendImmediate}, int{IBV_WR_SEND_WITH_IMM});
  EXPECT_EQ(int{abi::kCompareSwap}, int{IBV_WR_ATOMIC_CMP_AND_SWP});
  EXPECT_EQ(unsigned{abi::kSignaled}, unsigned{IBV_SEND_SIGNALED});
  EXPECT_EQ(unsigned{abi::kInline}, unsigned{IBV_SEND_INLINE});
  EXPECT_EQ(int{abi::kRemoteAccess}, int{IBV_WC_REM_ACCESS_ERR});
  EXPECT_EQ(int{abi::kRetriesExceeded}, int{IBV_WC_RETRY_EXC_ERR});
  EXPECT_EQ(int{abi::kReceivedImmediate}, int{IBV_WC_RECV_RDMA_WITH_IMM});
  EXPECT_EQ(unsigned{abi::kWithImmediate}, unsigned{IBV_WC_WITH_IMM});
  EXPECT_EQ(int{abi::kRelaxedOrdering}, int{IBV_ACCESS_RELAXED_ORDERING});
  EXPECT_EQ(int{abi::kOnDemand}, int{IBV_ACCESS_ON_DEMAND});
  EXPECT_EQ(unsigned{abi::kPages}, unsigned{IBV_ODP_SUPPORT});
  EXPECT_EQ(unsigned{abi::kPagesWrites}, unsigned{IBV_ODP_SUPPORT_WRITE});
  EXPECT_EQ(unsigned{abi::kPagesReads}, unsigned{IBV_ODP_SUPPORT_READ});
  EXPECT_EQ(unsigned{abi::kPagesAtomics}, unsigned{IBV_ODP_SUPPORT_ATOMIC});
  EXPECT_EQ(int{abi::kEventPortError}, int{IBV_EVENT_PORT_ERR});
  EXPECT_EQ(int{abi::kEventDeviceFatal}, int{IBV_EVENT_DEVICE_FATAL});
  EXPECT_EQ(int{abi::kEventPartitionChange}, int{IBV_EVENT_PKEY_CHANGE});
  EXPECT_EQ(unsigned{abi::kHeaderRequired}, unsigned{IBV_QPF_GRH_REQUIRED});
  EXPECT_EQ(int{abi::kAtomicsGlobal}, int{IBV_ATOMIC_GLOB});
  EXPECT_EQ(int{abi::kPortActive}, int{IBV_PORT_ACTIVE});
#else
  GTEST_SKIP() << "no infiniband/verbs.h (Debian: libibverbs-dev)";
#endif
}

TEST(VerbsAbi, WhatIsDeclaredOfRdmaCmIsTheHeaders) {
#ifdef HAVE_CM_HEADERS
#define SAME_PLACE(ours, field, theirs, name) static_assert(offsetof(abi::ours, field) == offsetof(struct theirs, name))
  static_assert(sizeof(abi::CmChannel) == sizeof(rdma_event_channel));
  static_assert(sizeof(abi::CmParameters) == sizeof(rdma_conn_param));
  SAME_PLACE(CmId, context, rdma_cm_id, verbs);
  SAME_PLACE(CmId, channel, rdma_cm_id, channel);
  SAME_PLACE(CmId, user, rdma_cm_id, context);
  SAME_PLACE(CmId, pair, rdma_cm_id, qp);
  SAME_PLACE(CmId, space, rdma_cm_id, ps);
  SAME_PLACE(CmId, port, rdma_cm_id, port_num);
  SAME_PLACE(CmParameters, reads_in, rdma_conn_param, responder_resources);
  SAME_PLACE(CmParameters, reads_out, rdma_conn_param, initiator_depth);
  SAME_PLACE(CmParameters, retries, rdma_conn_param, retry_count);
  SAME_PLACE(CmParameters, number, rdma_conn_param, qp_num);
  SAME_PLACE(CmEvent, listener, rdma_cm_event, listen_id);
  SAME_PLACE(CmEvent, type, rdma_cm_event, event);
  SAME_PLACE(CmEvent, status, rdma_cm_event, status);
  SAME_PLACE(CmEvent, from, rdma_cm_event, param.conn);
#undef SAME_PLACE
  EXPECT_EQ(int{abi::kSpaceTcp}, int{RDMA_PS_TCP});
  EXPECT_EQ(int{abi::kAddressResolved}, int{RDMA_CM_EVENT_ADDR_RESOLVED});
  EXPECT_EQ(int{abi::kRouteResolved}, int{RDMA_CM_EVENT_ROUTE_RESOLVED});
  EXPECT_EQ(int{abi::kConnectRequest}, int{RDMA_CM_EVENT_CONNECT_REQUEST});
  EXPECT_EQ(int{abi::kConnectResponse}, int{RDMA_CM_EVENT_CONNECT_RESPONSE});
  EXPECT_EQ(int{abi::kEstablished}, int{RDMA_CM_EVENT_ESTABLISHED});
  EXPECT_EQ(int{abi::kAddressChange}, int{RDMA_CM_EVENT_ADDR_CHANGE});
  EXPECT_EQ(int{abi::kTimeWaitExit}, int{RDMA_CM_EVENT_TIMEWAIT_EXIT});
  EXPECT_EQ(int{abi::kIwarp}, int{IBV_TRANSPORT_IWARP});
#else
  GTEST_SKIP() << "no rdma/rdma_cma.h (Debian: librdmacm-dev)";
#endif
}

}  // namespace
}  // namespace fairway::transport::verbs
