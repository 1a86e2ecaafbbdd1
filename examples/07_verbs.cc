// Bare verbs without Fairway, so that their objects are seen: a write from two places that tells its target a number,
// and one that is refused. Arguments: two RDMA devices. docs/tutorial/07-verbs.md explains it.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <infiniband/verbs.h>

void need(bool good, const char* what) {
  if (!good) std::perror(what), std::quick_exit(1);
}

struct End {
  ibv_gid address = {};
  ibv_mr* region = nullptr;
  ibv_cq* completions = nullptr;
  ibv_qp* queue_pair = nullptr;
  std::array<char, 4096> memory = {};

  explicit End(const char* name) {
    ibv_context* device = nullptr;
    for (ibv_device** each = ibv_get_device_list(nullptr); each != nullptr && *each != nullptr; ++each)
      if (std::strcmp(name, ibv_get_device_name(*each)) == 0) device = ibv_open_device(*each);
    need(device != nullptr && ibv_query_gid(device, 1, 1, &address) == 0, "no RDMA device of that name");
    ibv_pd* domain = ibv_alloc_pd(device);
    region = ibv_reg_mr(domain, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    completions = ibv_create_cq(device, 16, nullptr, nullptr, 0);
    ibv_qp_init_attr pair = {nullptr, completions, completions, nullptr, {16, 16, 2, 1, 64}, IBV_QPT_RC, 0};
    need((queue_pair = ibv_create_qp(domain, &pair)) != nullptr, "create a queue pair");
  }

  void connect(const End& peer) {
    ibv_qp_attr to = {};  // one structure for the three steps: each takes the fields that its mask names
    to.port_num = to.ah_attr.port_num = to.ah_attr.is_global = to.ah_attr.grh.sgid_index = 1;
    to.ah_attr.grh.dgid = peer.address, to.ah_attr.grh.hop_limit = 64;
    to.dest_qp_num = peer.queue_pair->qp_num, to.path_mtu = IBV_MTU_1024, to.max_rd_atomic = to.max_dest_rd_atomic = 1;
    to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE, to.timeout = 14, to.retry_cnt = to.rnr_retry = 6;
    const auto step = [&](ibv_qp_state state, int mask) {
      to.qp_state = state;
      need(ibv_modify_qp(queue_pair, &to, IBV_QP_STATE | mask) == 0, "modify a queue pair");
    };
    step(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    step(IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                          IBV_QP_MIN_RNR_TIMER);
    step(IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }

  ibv_wc wait(ibv_wc done = {}) const {
    while (ibv_poll_cq(completions, 1, &done) == 0) continue;
    return done;
  }

  ibv_wc_status write(const End& peer, std::uint64_t offset, ibv_wr_opcode opcode, unsigned flags) const {
    const std::uint64_t at = reinterpret_cast<std::uint64_t>(memory.data());
    std::array<ibv_sge, 2> pieces = {{{at, 16, region->lkey}, {at + 2048, 16, region->lkey}}};
    ibv_send_wr request = {}, *rest = nullptr;
    request.opcode = opcode, request.imm_data = 7, request.send_flags = IBV_SEND_SIGNALED | flags;
    request.sg_list = pieces.data(), request.num_sge = 2;
    request.wr.rdma = {reinterpret_cast<std::uint64_t>(peer.memory.data()) + offset, peer.region->rkey};
    need(ibv_post_send(queue_pair, &request, &rest) == 0, "post a write");
    return wait().status;
  }
};

int main(int argc, char** names) {
  if (argc != 3) return std::fprintf(stderr, "usage: %s DEVICE DEVICE\n", names[0]), 2;
  End writer(names[1]), target(names[2]);
  writer.connect(target), target.connect(writer);
  std::memcpy(&writer.memory[0], "hello from here ", 16);
  std::memcpy(&writer.memory[2048], "and from there. ", 16);
  ibv_recv_wr receive = {}, *rest = nullptr;  // no bytes land there: an immediate uses up a receive all the same
  need(ibv_post_recv(target.queue_pair, &receive, &rest) == 0, "post a receive");
  const auto say = [](ibv_wc_status status) { std::printf("writer: %s\n", ibv_wc_status_str(status)); };
  say(writer.write(target, 64, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_INLINE));
  std::printf("target: told %u: '%s'\n", target.wait().imm_data, target.memory.data() + 64);
  say(writer.write(target, 4080, IBV_WR_RDMA_WRITE, 0));  // 16 bytes beyond the region
  say(writer.write(target, 64, IBV_WR_RDMA_WRITE, 0));    // correct, and too late
}
