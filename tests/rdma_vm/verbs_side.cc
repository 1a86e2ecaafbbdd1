#include "rdma_vm/verbs_side.h"

#include <cerrno>
#include <thread>

namespace fairway::rdma_vm {
namespace {

constexpr int kPort = 1;
constexpr unsigned kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// The first GID that leads by IPv4, which both ends have whatever their link-local addresses are.
bool find_gid(ibv_context* device, ibv_gid_entry& found) {
  for (std::uint32_t index = 0; ibv_query_gid_ex(device, kPort, index, &found, 0) == 0; ++index) {
    const bool mapped = found.gid.raw[10] == 0xff && found.gid.raw[11] == 0xff;
    if (found.gid_type == IBV_GID_TYPE_ROCE_V2 && mapped) return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<Side> Side::open(int number) {
  int count = 0;
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> devices(ibv_get_device_list(&count), ibv_free_device_list);
  if (number >= count) {
    errno = ENODEV;
    return nullptr;
  }
  std::unique_ptr<Side> side(new Side);
  side->device_.reset(ibv_open_device(devices.get()[number]));
  if (!side->device_) return nullptr;
  if (const int error = ibv_query_port(side->device_.get(), kPort, &side->port_); error != 0) {
    errno = error;
    return nullptr;
  }
  if (!find_gid(side->device_.get(), side->gid_)) return nullptr;
  side->domain_.reset(ibv_alloc_pd(side->device_.get()));
  side->completions_.reset(ibv_create_cq(side->device_.get(), 64, nullptr, nullptr, 0));
  if (!side->domain_ || !side->completions_) return nullptr;
  side->region_.reset(ibv_reg_mr(side->domain_.get(), side->memory_.data(), kMemory, kAccess));
  return side->region_ ? std::move(side) : nullptr;
}

int Side::join(Side& first, Side& second, ibv_qp_type kind) {
  if (const int error = first.create(kind); error != 0) return error;
  if (const int error = second.create(kind); error != 0) return error;
  if (const int error = first.connect(second, kind); error != 0) return error;
  return second.connect(first, kind);
}

int Side::create(ibv_qp_type kind) {
  pair_.reset();
  for (ibv_wc old; ibv_poll_cq(completions_.get(), 1, &old) > 0;) {
  }
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = completions_.get();
  wanted.qp_type = kind;
  wanted.cap = {16, 16, 1, 1, 0};
  pair_.reset(ibv_create_qp(domain_.get(), &wanted));
  return pair_ ? 0 : errno;
}

ibv_ah_attr Side::way_to(const Side& peer) const {
  ibv_ah_attr way{};
  way.is_global = 1;
  way.port_num = kPort;
  way.grh.dgid = peer.gid_.gid;
  way.grh.sgid_index = static_cast<std::uint8_t>(gid_.gid_index);
  way.grh.hop_limit = 64;
  return way;
}

int Side::connect(const Side& peer, ibv_qp_type kind) {
  const bool datagrams = kind == IBV_QPT_UD;
  const bool reliable = kind == IBV_QPT_RC;
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = kPort;
  to.qkey = kKey;
  to.qp_access_flags = reliable ? kAccess : unsigned{IBV_ACCESS_REMOTE_WRITE};
  int fields = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (datagrams ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
  if (const int error = ibv_modify_qp(pair_.get(), &to, fields); error != 0) return error;

  to.qp_state = IBV_QPS_RTR;
  to.path_mtu = port_.active_mtu;
  to.dest_qp_num = peer.number();
  to.ah_attr = way_to(peer);
  to.max_dest_rd_atomic = 1;
  to.min_rnr_timer = 12;
  fields = IBV_QP_STATE;
  if (!datagrams) fields |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (reliable) fields |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  if (const int error = ibv_modify_qp(pair_.get(), &to, fields); error != 0) return error;

  to.qp_state = IBV_QPS_RTS;
  to.timeout = 18;   // 1 s: an emulated machine may have to wait that long for its processors
  to.retry_cnt = 6;  // the software device takes 7 for ever
  to.rnr_retry = 6;
  to.max_rd_atomic = 1;
  fields = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (reliable) fields |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  if (const int error = ibv_modify_qp(pair_.get(), &to, fields); error != 0) return error;
  if (!datagrams) return 0;
  way_.reset(ibv_create_ah(domain_.get(), &to.ah_attr));
  return way_ ? 0 : errno;
}

ibv_sge Side::piece(std::size_t offset, std::size_t size) const {
  return {address(offset), static_cast<std::uint32_t>(size), region_->lkey};
}

int Side::post_receive(std::size_t offset, std::size_t size) {
  ibv_sge where = piece(offset, size);
  ibv_recv_wr request{};
  request.sg_list = &where;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(pair_.get(), &request, &bad);
}

int Side::post(ibv_send_wr request) {
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(pair_.get(), &request, &bad);
}

bool Side::wait(ibv_wc& completion, std::chrono::milliseconds bound) {
  const auto end = std::chrono::steady_clock::now() + bound;
  do {
    if (ibv_poll_cq(completions_.get(), 1, &completion) > 0) return true;
    std::this_thread::yield();  // the device is played by these processors
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace fairway::rdma_vm
