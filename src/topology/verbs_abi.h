#pragma once

#include <cstddef>
#include <cstdint>

// The part of libibverbs' stable ABI (symbol version IBVERBS_1.1, rdma-core's libibverbs/verbs.h) that a query of
// devices needs. The library is opened at run time, so that one program serves machines with and without it, and its
// headers are not needed to build; a test compares these with the headers where they are installed.
namespace fairway::topology::verbs {

struct Device;

struct DeviceAttributes {  // ibv_device_attr
  char fw_ver[64];
  std::uint64_t node_guid;
  std::uint64_t sys_image_guid;
  std::uint64_t max_mr_size;
  std::uint64_t page_size_cap;
  std::uint32_t vendor_id;
  std::uint32_t vendor_part_id;
  std::uint32_t hw_ver;
  int max_qp;
  int max_qp_wr;
  unsigned device_cap_flags;
  int max_sge;
  int max_sge_rd;
  int max_cq;
  int max_cqe;
  int max_mr;
  int max_pd;
  int max_qp_rd_atom;
  int max_ee_rd_atom;
  int max_res_rd_atom;
  int max_qp_init_rd_atom;
  int max_ee_init_rd_atom;
  int atomic_cap;
  int max_ee;
  int max_rdd;
  int max_mw;
  int max_raw_ipv6_qp;
  int max_raw_ethy_qp;
  int max_mcast_grp;
  int max_mcast_qp_attach;
  int max_total_mcast_qp_attach;
  int max_ah;
  int max_fmr;
  int max_map_per_fmr;
  int max_srq;
  int max_srq_wr;
  int max_srq_sge;
  std::uint16_t max_pkeys;
  std::uint8_t local_ca_ack_delay;
  std::uint8_t phys_port_cnt;
};

struct PortAttributes {  // ibv_port_attr
  int state;
  int max_mtu;
  int active_mtu;
  int gid_tbl_len;
  std::uint32_t port_cap_flags;
  std::uint32_t max_msg_sz;
  std::uint32_t bad_pkey_cntr;
  std::uint32_t qkey_viol_cntr;
  std::uint16_t pkey_tbl_len;
  std::uint16_t lid;
  std::uint16_t sm_lid;
  std::uint8_t lmc;
  std::uint8_t max_vl_num;
  std::uint8_t sm_sl;
  std::uint8_t subnet_timeout;
  std::uint8_t init_type_reply;
  std::uint8_t active_width;
  std::uint8_t active_speed;
  std::uint8_t phys_state;
  std::uint8_t link_layer;
  std::uint8_t flags;
  std::uint16_t port_cap_flags2;
  std::uint8_t room[64];  // for what later versions append
};

struct Context {  // ibv_context, as far as it is read
  Device* device;
  void (*operations[32])();
  int command_descriptor;
  int event_descriptor;
  int num_comp_vectors;
};

}  // namespace fairway::topology::verbs
