#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "transport/verbs/cm_connector.h"
#include "transport/verbs/port.h"

// Opens the devices that libibverbs lists, or says why none can be used: no library, no device, no permission.
namespace fairway::transport::verbs {
namespace {

using DeviceList = std::unique_ptr<abi::Device*, void (*)(abi::Device**)>;

// The addresses of iWARP ports, from rdma_cm; asked for once, at the first iWARP device.
struct Iwarp {
  Network* network = nullptr;
  std::shared_ptr<const CmLibrary> library;
  bool asked = false;
  Status why_not;
  std::vector<CmPlace> places;

  void ask() {
    if (std::exchange(asked, true)) return;
    why_not = {ErrorCode::unsupported,
               "its queue pairs can be connected only by rdma_cm (iWARP), which is not used here"};
    if (network == nullptr) return;
    if (!library) {
      auto opened = CmLibrary::open();
      if (!(why_not = opened.status())) return;
      library = std::make_shared<const CmLibrary>(std::move(*opened));
    }
    const auto addresses = network->addresses();
    why_not = addresses.status();
    if (addresses) places = find_places(*library, *addresses);
  }
  std::vector<GidEntry> of(const std::string& device, std::uint8_t port) const {
    std::vector<GidEntry> found;
    for (const CmPlace& each : places)
      if (each.device == device && each.port == port)
        found.push_back({each.address.gid, static_cast<std::uint32_t>(found.size()), kIwarpGid});
    return found;
  }
};

// Whether `name` is the port's ("mlx5_0/1") or its device's ("mlx5_0").
bool is_of(const std::string& port, const std::string& name) {
  return port == name || port.substr(0, port.find('/')) == name;
}

bool wanted(const std::vector<std::string>& names, const std::string& port) {
  return names.empty() || std::any_of(names.begin(), names.end(), [&](const auto& each) { return is_of(port, each); });
}

Status may_be_used(const abi::Device& device, Iwarp& iwarp) {
  if (device.transport_type == abi::kInfinibandOrRoce) return {};
  const auto no = [&](const std::string& why) {
    return Status(ErrorCode::unsupported, std::string("verbs: ") + device.name + ": " + why);
  };
  if (device.transport_type != abi::kIwarp) return no("its queue pairs cannot be connected (EFA, usNIC)");
  iwarp.ask();
  return iwarp.why_not ? Status() : no(iwarp.why_not.message());
}

}  // namespace

Result<std::vector<std::unique_ptr<Port>>> open_ports(const VerbsOptions& options, Network* network) {
  auto library = options.library;
  if (!library) {
    std::error_code ignored;
    if (std::filesystem::is_empty("/sys/class/infiniband", ignored) || ignored)  // before providers are loaded
      return Status(ErrorCode::unsupported,
                    "verbs: this machine has no RDMA device, or its driver is not loaded (/sys/class/infiniband)");
    auto opened = Library::open();
    if (!opened) return opened.status();
    library = std::make_shared<const Library>(std::move(*opened));
  }
  int count = 0;
  errno = 0;
  const DeviceList list(library->list(&count), library->free_list);
  if (!list) return Status(ErrorCode::unsupported, "verbs: ibv_get_device_list: " + system_text(errno));
  Status why(ErrorCode::unsupported, "verbs: libibverbs lists no device: load ib_uverbs and install ibverbs-providers");
  bool told = false;
  Iwarp iwarp{network, options.cm_library, false, {}, {}};
  std::vector<std::string> names;  // of all ports of this host
  std::vector<std::unique_ptr<Port>> ports;
  for (int i = 0; i < count && ports.size() < kMaxPorts; ++i) {
    const std::string device = list.get()[i]->name;
    for (int number = 1, last = 1; number <= last && ports.size() < kMaxPorts; ++number) {
      names.push_back(device + "/" + std::to_string(number));
      const bool named = wanted(options.rdma.devices, names.back());
      errno = 0;
      abi::Context* context = library->open_device(list.get()[i]);
      if (context == nullptr) {
        const std::string file = std::string("/dev/infiniband/") + list.get()[i]->dev_name;
        const int error = ::access(file.c_str(), R_OK | W_OK) != 0 ? errno : EIO;  // the library hides it
        if (named && !std::exchange(told, true))
          why = Status(ErrorCode::unsupported, "verbs: " + device + " cannot be opened (" + file + ": " +
                                                   system_text(error) + "): this user needs to read and write it");
        break;
      }
      auto port =
          std::make_unique<Port>(library, context, static_cast<std::uint8_t>(number), ports.size(), options.rdma);
      abi::Limits limits{};
      if (library->query_device(context, &limits) == 0) last = limits.ports;
      if (!named) continue;
      Status opened = may_be_used(*list.get()[i], iwarp);
      if (opened) opened = port->open(options, iwarp.of(device, static_cast<std::uint8_t>(number)));
      if (opened)
        ports.push_back(std::move(port));
      else if (!std::exchange(told, true))
        why = std::move(opened);
    }
  }
  std::sort(names.begin(), names.end());  // the kernel lists them in order of appearance
  for (const std::string& each : options.rdma.devices)
    if (std::none_of(names.begin(), names.end(), [&](const auto& name) { return is_of(name, each); }))
      return Status(ErrorCode::not_found,
                    fmt::format("verbs: EngineOptions::rdma.devices names {}, and this host has {}", each,
                                names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  if (ports.empty()) return why;
  return ports;
}

Result<std::unique_ptr<Port>> open_again(const Port& gone, const VerbsOptions& options) {
  const std::string& name = gone.device().name;
  const auto no = [&](const std::string& why) { return Status(ErrorCode::unsupported, "verbs: " + name + ": " + why); };
  auto library = gone.shared_library();
  int count = 0;
  const DeviceList list(library->list(&count), library->free_list);
  const std::span<abi::Device*> all(list.get(), list ? static_cast<std::size_t>(count) : 0);
  const auto device =
      std::find_if(all.begin(), all.end(), [&](const abi::Device* each) { return is_of(name, each->name); });
  if (device == all.end()) return no("the device is missing");
  errno = 0;
  abi::Context* const context = library->open_device(*device);
  if (context == nullptr) return no("it cannot be opened: " + system_text(errno == 0 ? EIO : errno));
  auto port = std::make_unique<Port>(std::move(library), context, gone.number(), gone.index(), gone.options());
  if (Status status = port->open(options, {}); !status) return status;
  return port;
}

}  // namespace fairway::transport::verbs
