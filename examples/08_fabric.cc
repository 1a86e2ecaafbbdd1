// Bare libfabric without Fairway, so that its objects are seen: two endpoints, a region, a write with four bytes for
// the target. Argument: the provider (tcp, udp, shm). docs/tutorial/08-libfabric.md explains it.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

void need(long result, const char* what) {
  if (result < 0) std::printf("%s: %s\n", what, fi_strerror(static_cast<int>(-result))), std::exit(1);
}

struct End {
  fid_ep* endpoint = nullptr;
  fid_av* addresses = nullptr;
  fid_cq* completions = nullptr;
  fid_mr* region = nullptr;
  fi_addr_t peer = 0;
  std::array<char, 4096> memory = {};

  End(fid_domain* domain, fi_info* info, std::uint64_t key) {
    fi_av_attr table = {};
    fi_cq_attr queue = {};
    queue.format = FI_CQ_FORMAT_DATA;
    need(fi_av_open(domain, &table, &addresses, nullptr), "an address vector");
    need(fi_cq_open(domain, &queue, &completions, nullptr), "a completion queue");
    need(fi_endpoint(domain, info, &endpoint, nullptr), "an endpoint");
    need(fi_ep_bind(endpoint, &addresses->fid, 0), "bind the address vector");
    need(fi_ep_bind(endpoint, &completions->fid, FI_TRANSMIT | FI_RECV), "bind the completion queue");
    need(fi_enable(endpoint), "enable the endpoint");
    need(fi_mr_reg(domain, memory.data(), 4096, FI_WRITE | FI_REMOTE_WRITE, 0, key, 0, &region, nullptr), "a region");
  }

  void insert(End& other) {
    std::array<char, 256> name;
    std::size_t length = name.size();
    need(fi_getname(&other.endpoint->fid, name.data(), &length), "the other one's address");
    need(fi_av_insert(addresses, name.data(), 1, &peer, 0, nullptr) == 1 ? 0 : -FI_EINVAL, "insert its address");
  }
};

int main(int argc, char** argv) {
  if (argc > 2 || (argc == 2 && argv[1][0] == '-')) return std::fprintf(stderr, "usage: %s [PROVIDER]\n", argv[0]), 2;
  fi_info *hints = fi_allocinfo(), *info = nullptr;
  hints->fabric_attr->prov_name = strdup(argc > 1 ? argv[1] : "tcp");
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_MSG | FI_RMA;
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ALLOCATED | FI_MR_LOCAL;
  hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
  need(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", nullptr, FI_SOURCE, hints, &info), "what can do that");
  std::printf("%s on %s\n", info->fabric_attr->prov_name, info->domain_attr->name);
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;  // a NIC
  need(fi_fabric(info->fabric_attr, &fabric, nullptr), "a fabric");
  need(fi_domain(fabric, info, &domain, nullptr), "a domain");
  End writer(domain, info, 1), target(domain, info, 2);
  writer.insert(target), target.insert(writer);

  std::strcpy(writer.memory.data(), "hello, endpoint");
  const bool by_address = (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;  // else by place in the region
  const std::uint64_t there = by_address ? reinterpret_cast<std::uint64_t>(target.memory.data()) : 0;
  fi_context2 context = {};
  fi_cq_data_entry done = {}, told = {};
  long posted = -FI_EAGAIN;
  for (bool written = false, seen = false; !written || !seen;) {
    if (posted == -FI_EAGAIN)  // not now: it is still connecting, and goes on when it is polled
      posted = fi_writedata(writer.endpoint, writer.memory.data(), 64, fi_mr_desc(writer.region), 7, writer.peer, there,
                            fi_mr_key(target.region), &context);
    if (posted != -FI_EAGAIN) need(posted, "write");
    written = written || fi_cq_read(writer.completions, &done, 1) == 1;
    seen = seen || fi_cq_read(target.completions, &told, 1) == 1;
  }
  std::printf("target: told %llu: '%s'\n", static_cast<unsigned long long>(told.data), target.memory.data());
}
