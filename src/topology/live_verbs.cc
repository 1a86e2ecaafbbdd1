#include <cerrno>
#include <map>
#include <memory>
#include <string>
#include <system_error>

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include "topology/discover.h"
#include "topology/file.h"
#include "topology/text.h"
#include "topology/verbs_abi.h"

namespace fairway::topology {
namespace {

constexpr auto kVerbs = Source::verbs;

struct CloseLibrary {
  void operator()(void* library) const { ::dlclose(library); }
};

struct Verbs {
  std::unique_ptr<void, CloseLibrary> library;
  verbs::Device** (*list)(int*) = nullptr;
  void (*free_list)(verbs::Device**) = nullptr;
  const char* (*name)(verbs::Device*) = nullptr;
  verbs::Context* (*open_device)(verbs::Device*) = nullptr;
  int (*close_device)(verbs::Context*) = nullptr;
  int (*query_device)(verbs::Context*, verbs::DeviceAttributes*) = nullptr;
  int (*query_port)(verbs::Context*, std::uint8_t, verbs::PortAttributes*) = nullptr;

  Status open() {
    library.reset(::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL));
    if (!library) {
      return {ErrorCode::not_found,
              "libibverbs.so.1 cannot be opened (Debian has it in libibverbs1): limits of RDMA devices stay unknown"};
    }
    const bool all = find("ibv_get_device_list", list) && find("ibv_free_device_list", free_list) &&
                     find("ibv_get_device_name", name) && find("ibv_open_device", open_device) &&
                     find("ibv_close_device", close_device) && find("ibv_query_device", query_device) &&
                     find("ibv_query_port", query_port);
    return all ? Status::ok()
               : Status(ErrorCode::unsupported, "libibverbs.so.1 lacks what version 1.1 has: it is too old");
  }

 private:
  template <class F>
  bool find(const char* symbol, F*& function) {
    function = reinterpret_cast<F*>(::dlvsym(library.get(), symbol, "IBVERBS_1.1"));
    return function != nullptr;
  }
};

template <class T>
void add(std::vector<Attribute>& list, const char* name, T value) {
  list.push_back({name, {fmt::format("{}", value), kVerbs}});
}
void add_hex(std::vector<Attribute>& list, const char* name, std::uint64_t value, int digits) {
  list.push_back({name, {fmt::format("0x{:0{}x}", value, digits), kVerbs}});
}

std::string atomics_text(int capability) {
  switch (capability) {
    case 0: return "ATOMIC_NONE (0)";
    case 1: return "ATOMIC_HCA (1)";
    case 2: return "ATOMIC_GLOB (2)";
    default: return fmt::format("unknown ({})", capability);
  }
}

// In the order and the words of `ibv_devinfo -v`.
std::vector<Attribute> device_attributes(const verbs::DeviceAttributes& a, int completion_vectors) {
  std::vector<Attribute> out;
  add_hex(out, "vendor_id", a.vendor_id, 4);
  add(out, "vendor_part_id", a.vendor_part_id);
  add_hex(out, "hw_ver", a.hw_ver, 1);
  add(out, "phys_port_cnt", a.phys_port_cnt);
  add_hex(out, "max_mr_size", a.max_mr_size, 1);
  add_hex(out, "page_size_cap", a.page_size_cap, 1);
  add(out, "max_qp", a.max_qp);
  add(out, "max_qp_wr", a.max_qp_wr);
  add_hex(out, "device_cap_flags", a.device_cap_flags, 8);
  add(out, "max_sge", a.max_sge);
  add(out, "max_sge_rd", a.max_sge_rd);
  add(out, "max_cq", a.max_cq);
  add(out, "max_cqe", a.max_cqe);
  add(out, "max_mr", a.max_mr);
  add(out, "max_pd", a.max_pd);
  add(out, "max_qp_rd_atom", a.max_qp_rd_atom);
  add(out, "max_res_rd_atom", a.max_res_rd_atom);
  add(out, "max_qp_init_rd_atom", a.max_qp_init_rd_atom);
  add(out, "atomic_cap", atomics_text(a.atomic_cap));
  add(out, "max_mw", a.max_mw);
  add(out, "max_mcast_grp", a.max_mcast_grp);
  add(out, "max_mcast_qp_attach", a.max_mcast_qp_attach);
  add(out, "max_total_mcast_qp_attach", a.max_total_mcast_qp_attach);
  add(out, "max_ah", a.max_ah);
  add(out, "max_srq", a.max_srq);
  add(out, "max_srq_wr", a.max_srq_wr);
  add(out, "max_srq_sge", a.max_srq_sge);
  add(out, "max_pkeys", a.max_pkeys);
  add(out, "local_ca_ack_delay", a.local_ca_ack_delay);
  add(out, "num_comp_vectors", completion_vectors);
  return out;
}

// enum ibv_mtu: 1 to 5 are 256 to 4096 bytes.
std::optional<std::uint32_t> mtu_bytes(int code) {
  if (code < 1 || code > 5) return {};
  return 128U << code;
}

void read_port(const verbs::PortAttributes& a, RdmaPort& port) {
  if (const auto mtu = mtu_bytes(a.max_mtu)) port.max_mtu.set(*mtu, kVerbs);
  // The port's own value replaces the one derived from the interface's MTU.
  if (const auto mtu = mtu_bytes(a.active_mtu)) port.active_mtu.set(*mtu, kVerbs);
  port.lid.learn(a.lid, kVerbs);
  port.sm_lid.learn(a.sm_lid, kVerbs);
  port.lmc.learn(a.lmc, kVerbs);
  auto& out = port.attributes;
  out.clear();
  add_hex(out, "max_msg_sz", a.max_msg_sz, 1);
  add_hex(out, "port_cap_flags", a.port_cap_flags, 8);
  add_hex(out, "bad_pkey_cntr", a.bad_pkey_cntr, 1);
  add_hex(out, "qkey_viol_cntr", a.qkey_viol_cntr, 1);
  add(out, "pkey_tbl_len", a.pkey_tbl_len);
  add(out, "gid_tbl_len", a.gid_tbl_len);
  add(out, "subnet_timeout", a.subnet_timeout);
}

// Why a device cannot be opened. libibverbs returns the errno of its last attempt, not that of the device file.
int reason_of_refusal(const std::string& device, int last) {
  const auto names = list_directory("/sys/class/infiniband_verbs", 4096);
  if (!names) return last;
  for (const auto& name : *names) {
    const auto content = read_file("/sys/class/infiniband_verbs/" + name + "/ibdev", 256);
    if (!content || text::trim(*content) != device) continue;
    if (::access(("/dev/infiniband/" + name).c_str(), R_OK | W_OK) != 0) return errno;
  }
  return last;
}

class VerbsReader {
 public:
  VerbsReader(const Verbs& verbs, Machine& machine) : verbs_(verbs), machine_(machine) {}

  Status read() {
    int count = 0;
    errno = 0;
    const std::unique_ptr<verbs::Device*, void (*)(verbs::Device**)> list(verbs_.list(&count), verbs_.free_list);
    if (!list) {
      return {ErrorCode::system_error, fmt::format("ibv_get_device_list: {}: limits of RDMA devices stay unknown",
                                                   std::generic_category().message(errno))};
    }
    std::map<std::string, verbs::Device*> by_name;
    for (int i = 0; i < count; ++i) by_name[text::quote(verbs_.name(list.get()[i]))] = list.get()[i];
    for (auto& device : machine_.rdma) {
      const auto found = by_name.find(device.name);
      if (found == by_name.end()) {
        say(device,
            "sysfs has it and libibverbs does not list it: is ib_uverbs loaded, and is its provider installed?");
        continue;
      }
      read_device(found->second, device);
    }
    return {};
  }

 private:
  void say(const RdmaDevice& device, const std::string& why) {
    add_note(machine_, NoteKind::unreadable, device.name, why + "; its limits stay unknown");
  }

  void read_device(verbs::Device* handle, RdmaDevice& device) {
    errno = 0;
    const std::unique_ptr<verbs::Context, int (*)(verbs::Context*)> context(verbs_.open_device(handle),
                                                                            verbs_.close_device);
    if (!context) {
      const int error = reason_of_refusal(device.name, errno);
      return say(device, fmt::format("ibv_open_device: {}", std::generic_category().message(error)));
    }
    verbs::DeviceAttributes attributes{};
    if (const int error = verbs_.query_device(context.get(), &attributes); error != 0) {
      return say(device, fmt::format("ibv_query_device: {}", std::generic_category().message(error)));
    }
    attributes.fw_ver[sizeof attributes.fw_ver - 1] = '\0';
    if (attributes.fw_ver[0] != '\0') device.firmware.learn(text::quote(attributes.fw_ver), kVerbs);
    device.attributes = device_attributes(attributes, context->num_comp_vectors);
    for (auto& port : device.ports) {
      verbs::PortAttributes of_port{};
      if (verbs_.query_port(context.get(), static_cast<std::uint8_t>(port.number), &of_port) == 0) {
        read_port(of_port, port);
      }
    }
  }

  const Verbs& verbs_;
  Machine& machine_;
};

}  // namespace

Status read_verbs(Machine& machine) {
  Verbs verbs;
  if (auto status = verbs.open(); !status) return status;
  return VerbsReader(verbs, machine).read();
}

}  // namespace fairway::topology
