// Sources: the manual pages ibv_query_device(3), ibv_query_device_ex(3) and ibv_query_port(3) of rdma-core, and the
// InfiniBand Architecture Specification, volume 1.
#include "render/hca_words.h"

#include <algorithm>
#include <array>

namespace fairway::render {
namespace {

constexpr auto kWords = std::to_array<AttributeWords>({
    {"max_qp", "queue pairs that may exist at once, of all programs together",
     "peers x queue pairs per peer and rail, over all processes of the host"},
    {"max_qp_wr", "work requests that one send or receive queue holds", "slices in flight on one queue pair"},
    {"max_sge", "pieces of memory that one work request can gather or scatter", "pieces joined into one message"},
    {"max_sge_rd", "pieces of local memory that one RDMA read can scatter to", "pieces that one read may fill"},
    {"max_send_sge", "pieces of memory that one send request can gather", "pieces joined into one message"},
    {"max_recv_sge", "pieces of memory that one receive can scatter to", "pieces that one receive may fill"},
    {"max_cq", "completion queues that may exist at once", "workers x devices: one queue each is enough"},
    {"max_cqe", "completions that one completion queue holds",
     "slices in flight of all queue pairs that share the queue"},
    {"max_mr", "memory regions that may be registered at once: a number, not a size",
     "regions registered on this device"},
    {"max_mr_size", "bytes that one memory region may have: a size, not a number",
     "the largest region; larger ones are cut"},
    {"max_pd", "protection domains that may exist at once", ""},
    {"page_size_cap", "page sizes that the device can map, one bit each", ""},
    {"max_qp_rd_atom", "reads and atomics of others that one queue pair serves at once",
     "reads in flight per queue pair, at the target"},
    {"max_qp_init_rd_atom", "reads and atomics of its own that one queue pair has in flight",
     "reads in flight per queue pair, at the initiator"},
    {"max_res_rd_atom", "reads and atomics of others that the whole device serves at once",
     "reads in flight of all peers"},
    {"max_ee_rd_atom", "the same for reliable datagrams, which no device offers", ""},
    {"max_ee_init_rd_atom", "the same for reliable datagrams, which no device offers", ""},
    {"max_ee", "end-to-end contexts of reliable datagrams, which no device offers", ""},
    {"max_rdd", "domains of reliable datagrams, which no device offers", ""},
    {"atomic_cap", "whether atomics exclude only this device's others (HCA) or also the CPU's (GLOB)",
     "with HCA, do not mix remote atomics and the CPU's own on one word"},
    {"pci_atomic_cap", "atomics that the device may issue on PCIe itself", "atomics on GPU memory without the CPU"},
    {"max_mw", "memory windows that may exist at once", ""},
    {"max_raw_ipv6_qp", "raw IPv6 queue pairs", ""},
    {"max_raw_ethy_qp", "raw Ethertype queue pairs", ""},
    {"max_mcast_grp", "multicast groups", ""},
    {"max_mcast_qp_attach", "queue pairs in one multicast group", ""},
    {"max_total_mcast_qp_attach", "queue pairs in all multicast groups", ""},
    {"max_ah", "address handles, for datagrams", ""},
    {"max_fmr", "fast memory regions of the old kind", ""},
    {"max_srq", "shared receive queues that may exist at once", "one per worker is enough"},
    {"max_srq_wr", "receives that one shared receive queue holds", "messages that may arrive before any is taken"},
    {"max_srq_sge", "pieces of memory of one receive in a shared queue", ""},
    {"max_pkeys", "partition keys in the table of a port", ""},
    {"local_ca_ack_delay", "how long the device may take to answer, as 4.096 us x 2 to this power",
     "the shortest sensible timeout of a queue pair"},
    {"general_odp_caps", "whether memory may be paged in on demand at all", "regions without pinning"},
    {"rc_odp_caps", "what a reliable connection can do on memory that is paged in on demand",
     "unpinned regions; SUPPORT_SRQ is paging on shared receives"},
    {"uc_odp_caps", "what an unreliable connection can do on memory that is paged in on demand", ""},
    {"ud_odp_caps", "what datagrams can do on memory that is paged in on demand", ""},
    {"xrc_odp_caps", "what XRC can do on memory that is paged in on demand", ""},
    {"completion timestamp_mask", "bits of the clock that stamps completions; 0 for none", ""},
    {"hca_core_clock", "kHz of the clock that stamps completions", ""},
    {"device_cap_flags", "a set of abilities, one bit each", ""},
    {"device_cap_flags_ex", "further abilities, one bit each", ""},
    {"max_tso", "bytes of a packet that the device cuts itself, for raw Ethernet", ""},
    {"rss caps", "receive-side scaling, for raw Ethernet", ""},
    {"max_wq_type_rq", "receive work queues, for raw Ethernet", ""},
    {"packet pacing caps", "how finely the sending rate of a queue pair can be set", ""},
    {"qp_rate_limit_min", "the lowest sending rate that a queue pair can be held to, kb/s", ""},
    {"qp_rate_limit_max", "the highest sending rate that a queue pair can be held to, kb/s", ""},
    {"tag matching caps", "matching of two-sided messages by the device", ""},
    {"cq moderation caps", "how far interrupts of completion queues can be thinned: the two lines below", ""},
    {"max_cq_count", "completions that one event may stand for",
     "how far interrupts can be thinned when workers sleep"},
    {"max_cq_period", "microseconds for which an event may be held back", "the delay that thinned interrupts may add"},
    {"maximum available device memory", "bytes of memory on the device that programs may use", ""},
    {"num_comp_vectors", "interrupts that completion queues can be spread over",
     "workers that can sleep apart from each other"},
    {"phys_port_cnt", "ports of this device", "rails of this device"},
    {"vendor_id", "the vendor's number", ""},
    {"vendor_part_id", "the vendor's number of the model", ""},
    {"hw_ver", "revision of the hardware", ""},
    // Of a port.
    {"max_msg_sz", "bytes that one message may have", "the largest slice; longer transfers are cut"},
    {"port_cap_flags", "what the port and its subnet agent can do, one bit each", ""},
    {"port_cap_flags2", "further abilities, one bit each", ""},
    {"max_vl_num", "virtual lanes of InfiniBand; RoCE has none, which prints as invalid", ""},
    {"bad_pkey_cntr", "packets refused for their partition key", "above 0: a peer is in another partition"},
    {"qkey_viol_cntr", "datagrams refused for their key", ""},
    {"sm_sl", "service level towards the subnet manager", ""},
    {"pkey_tbl_len", "partition keys of the port", ""},
    {"gid_tbl_len", "GIDs that the port can have; each address has one per RoCE version", ""},
    {"subnet_timeout", "how long an answer of the subnet manager may take, as 4.096 us x 2 to this power", ""},
    {"init_type_reply", "what the subnet manager did when the port came up", ""},
    {"flags", "further properties of the port, one bit each", ""},
});

}  // namespace

const AttributeWords* find_attribute_words(std::string_view name) {
  const auto* found =
      std::find_if(kWords.begin(), kWords.end(), [&](const AttributeWords& words) { return words.name == name; });
  return found == kWords.end() ? nullptr : found;
}

}  // namespace fairway::render
