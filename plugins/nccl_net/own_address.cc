#include "nccl_net/own_address.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace fairway::nccl {
namespace {

// What launchers set for each rank: the number of all ranks, and of the ranks on its host.
struct Counts {
  const char* all;
  const char* here;
};
constexpr Counts kCounts[] = {{"WORLD_SIZE", "LOCAL_WORLD_SIZE"},                      // torchrun
                              {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},  // Open MPI
                              {"PMI_SIZE", "MPI_LOCALNRANKS"}};                        // MPICH

std::string_view text(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// "[fd00::1]:4000", "10.0.0.1:4000" and "10.0.0.1" without their port and brackets.
std::string host_of(std::string_view address) {
  if (address.starts_with('[')) return std::string(address.substr(1, address.find(']') - 1));
  const std::size_t colon = address.find(':');
  const bool has_port = colon != std::string_view::npos && address.find(':', colon + 1) == std::string_view::npos;
  return std::string(has_port ? address.substr(0, colon) : address);
}

struct Root {
  std::string variable, host;
};

// The hosts that the launcher names to every rank, those that matter most first.
std::vector<Root> roots(const Environment& environment) {
  std::vector<Root> all;
  for (const char* name : {"NCCL_COMM_ID", "MASTER_ADDR", "SLURM_LAUNCH_NODE_IPADDR"})
    if (const auto value = text(environment, name); !value.empty()) all.push_back({name, host_of(value)});
  // Open MPI's: "3527802880.0;tcp://10.0.0.1,192.168.0.1:44445".
  std::string_view mpirun = text(environment, "OMPI_MCA_orte_hnp_uri");
  constexpr std::string_view kTcp = ";tcp://";
  if (const std::size_t at = mpirun.find(kTcp); at != std::string_view::npos) {
    mpirun = mpirun.substr(at + kTcp.size());
    mpirun = mpirun.substr(0, mpirun.find(':'));
    for (std::size_t end = 0; end != std::string_view::npos && !mpirun.empty();) {
      end = mpirun.find(',');
      all.push_back({"mpirun at", std::string(mpirun.substr(0, end))});
      if (end != std::string_view::npos) mpirun.remove_prefix(end + 1);
    }
  }
  return all;
}

// Why all ranks are on this host; empty: they are not, or nothing says so.
std::string why_one_host(const Environment& environment) {
  for (const Counts& each : kCounts) {
    const auto all = text(environment, each.all), here = text(environment, each.here);
    if (all.empty() || here.empty()) continue;
    return all == here ? std::string(each.here) + " is " + each.all + ", so all ranks are on this host" : std::string();
  }
  const auto tasks = text(environment, "SLURM_STEP_NUM_TASKS");
  if (!tasks.empty() && tasks != "1")
    return text(environment, "SLURM_STEP_NUM_NODES") == "1" ? "SLURM_STEP_NUM_NODES is 1" : "";
  for (const char* name : {"NCCL_COMM_ID", "MASTER_ADDR"})
    if (const std::string root = host_of(text(environment, name));
        root == "localhost" || root == "::1" || root.starts_with("127."))
      return std::string(name) + " is " + root + ", so all ranks are on this host";
  return {};
}

// NCCL's notation: "eth" any that begin so, "=eth0" that one, "^docker" and "^=docker0" all others; a list by commas.
bool fits(std::string_view interface, std::string_view list) {
  const bool excluded = list.starts_with('^');
  if (excluded) list.remove_prefix(1);
  const bool exact = list.starts_with('=');
  if (exact) list.remove_prefix(1);
  for (std::size_t end = 0; end != std::string_view::npos;) {
    end = list.find(',');
    std::string_view name = list.substr(0, end);
    name = name.substr(0, name.find(':'));
    if (exact ? interface == name : !name.empty() && interface.starts_with(name)) return !excluded;
    if (end != std::string_view::npos) list.remove_prefix(end + 1);
  }
  return excluded;
}

// Those that the user allows. `named`: the variable that says so.
std::vector<InterfaceAddress> allowed(const Environment& environment, const HostNetwork& host, std::string& named) {
  std::string list;
  if (const auto own = text(environment, "FAIRWAY_INTERFACES"); !own.empty()) {
    named = "FAIRWAY_INTERFACES";
    list = "=" + std::string(own);
  } else if (const auto nccl = text(environment, "NCCL_SOCKET_IFNAME"); !nccl.empty()) {
    named = "NCCL_SOCKET_IFNAME";
    list = nccl;
  }
  const auto family = text(environment, "NCCL_SOCKET_FAMILY");
  std::vector<InterfaceAddress> all;
  for (const InterfaceAddress& each : host.addresses) {
    if (named.empty() ? each.loopback : !fits(each.interface, list)) continue;
    if (family != (each.ipv6 ? "AF_INET" : "AF_INET6")) all.push_back(each);
  }
  return all;
}

// As NCCL orders them: InfiniBand's first, those that join containers and virtual machines of this host last.
int rank_of(const InterfaceAddress& address) {
  if (!address.running) return 3;
  if (address.interface.starts_with("ib")) return 0;
  const bool inside = address.interface.starts_with("docker") || address.interface.starts_with("virbr");
  return inside ? 2 : 1;
}

}  // namespace

Result<OwnAddress> own_address(const Environment& environment, const HostNetwork& host) {
  if (const std::string why = why_one_host(environment); !why.empty()) return OwnAddress{"127.0.0.1", false, why};
  std::string named;
  std::vector<InterfaceAddress> all = allowed(environment, host, named);
  if (all.empty() && !named.empty())
    return Status(ErrorCode::invalid_argument, named + " is \"" + std::string(text(environment, named.c_str())) +
                                                   "\": no interface of that name is up and has an address");
  if (all.empty()) return OwnAddress{"127.0.0.1", false, "no interface but loopback is up and has an address"};
  const auto by = [&](const InterfaceAddress& each, const std::string& why) {
    return OwnAddress{each.address, each.ipv6, each.interface + ", " + why};
  };
  for (const Root& root : roots(environment))
    for (const std::string& source : host.sources(root.host))
      for (const InterfaceAddress& each : all)
        if (each.address == source) return by(each, "the way to " + root.variable + " " + root.host);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::pair(rank_of(a), a.ipv6) < std::pair(rank_of(b), b.ipv6);
  });
  return by(all.front(), named.empty() ? "the interface that NCCL would take first" : "by " + named);
}

}  // namespace fairway::nccl
