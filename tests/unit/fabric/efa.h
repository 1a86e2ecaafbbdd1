#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "transport/fabric/calls.h"

namespace fairway::transport::fabric::testing {

// An fi_info with its parts, empty.
struct Info {
  fi_info info{};
  fi_tx_attr tx{};
  fi_rx_attr rx{};
  fi_ep_attr end{};
  fi_domain_attr domain{};
  fi_fabric_attr fabric{};
  Info() {
    info.tx_attr = &tx;
    info.rx_attr = &rx;
    info.ep_attr = &end;
    info.domain_attr = &domain;
    info.fabric_attr = &fabric;
  }
  Info(const Info&) = delete;
  Info& operator=(const Info&) = delete;
};

// What fi_getinfo says on a machine with 32 EFA devices (AWS p5.48xlarge), as far as it is documented: fi_efa(7) of
// libfabric 1.17 (reliable datagrams over SRD, sends in the order of sends and nothing else, no wait objects, no
// FI_RMA_EVENT, FI_MR_LOCAL as one likes, FI_THREAD_SAFE, automatic progress that it claims and does not have, peer to
// peer only with FI_HMEM) and AWS's pages on instances (32 x 100 Gb/s, four devices at each of eight PCIe switches).
// Where the documents name no number (sizes of queues and messages, bus numbers) a small plausible one stands: none was
// read off such a machine. Owns its infos.
class EfaMachine {
 public:
  // `direct`: as libfabric 2.1 and later have it, with the fabric `efa-direct` before the other (efa_prov.c).
  explicit EfaMachine(bool direct = false) {
    for (const bool each : {true, false})
      for (const int bus : {79, 96, 113, 130, 147, 164, 181, 198})
        for (int i = 0; i < 4 && (direct || !each); ++i)
          add("rdmap" + std::to_string(bus + i) + "s0-rdm", bus + i, each);
    for (std::size_t i = 0; i + 1 < nodes_.size(); ++i) nodes_[i]->info.next = &nodes_[i + 1]->info;
  }
  const fi_info* infos() const { return &nodes_.front()->info; }
  static constexpr std::size_t kDevices = 32;

 private:
  struct Node : Info {
    fid_nic nic{};
    fi_link_attr link{};
    std::string name;
    std::vector<char> address = std::vector<char>(32);  // GID, queue pair number, connection id
  };
  void add(const std::string& name, int bus, bool direct) {
    auto& node = *nodes_.emplace_back(std::make_unique<Node>());
    node.name = name;
    node.address[0] = static_cast<char>(0xfe);
    node.address[1] = static_cast<char>(0x80);
    node.address[15] = static_cast<char>(bus);
    node.tx.msg_order = node.rx.msg_order = FI_ORDER_SAS;
    node.tx.inject_size = 3928;
    node.tx.size = 256;
    node.tx.iov_limit = 4;
    node.tx.rma_iov_limit = 1;
    node.rx.size = 8192;
    node.rx.iov_limit = 4;
    node.end.type = FI_EP_RDM;
    node.end.max_msg_size = ~std::size_t{0};
    node.domain.name = node.name.data();
    node.domain.threading = FI_THREAD_SAFE;
    node.domain.control_progress = node.domain.data_progress = FI_PROGRESS_AUTO;
    node.domain.resource_mgmt = FI_RM_ENABLED;
    node.domain.av_type = FI_AV_TABLE;
    node.domain.mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_HMEM;
    node.domain.mr_key_size = 4;
    node.domain.cq_data_size = 4;
    node.domain.cq_cnt = 512;
    node.domain.ep_cnt = 256;
    node.fabric.name = efa_.data();
    node.fabric.prov_name = efa_.data();
    node.fabric.prov_version = FI_VERSION(117, 0);
    node.link.speed = 100'000'000'000;
    node.nic.link_attr = &node.link;
    node.info.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_HMEM | FI_READ | FI_WRITE | FI_SEND | FI_RECV |
                     FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV | FI_SOURCE | FI_DIRECTED_RECV | FI_LOCAL_COMM |
                     FI_REMOTE_COMM;
    node.info.addr_format = FI_ADDR_EFA;
    node.info.src_addr = node.address.data();
    node.info.src_addrlen = node.address.size();
    node.info.nic = &node.nic;
    if (!direct) return;
    node.fabric.name = direct_.data();
    node.info.mode = FI_CONTEXT2;
    node.info.caps &= ~(FI_TAGGED | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV);
    node.tx.msg_order = node.rx.msg_order = 0;
    node.tx.inject_size = 32;
    node.tx.iov_limit = node.rx.iov_limit = 2;
    node.end.max_msg_size = std::size_t{1} << 30;
  }
  std::string efa_ = "efa", direct_ = "efa-direct";
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace fairway::transport::fabric::testing
