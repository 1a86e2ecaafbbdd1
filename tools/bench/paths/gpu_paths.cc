#include "gpu_paths.h"

#include <fmt/format.h>

#include "bench/gpu.h"
#include "bench/gpu_machine.h"
#include "predict/open.h"

namespace fairway::tool::bench {
namespace {

struct MemoryEnd {  // of a path
  bool gpu = false;
  int device = 0;
  Gpu::Kind kind = Gpu::Kind::pinned;

  // No CPU reaches it.
  bool is_device() const {
    return gpu && (kind == Gpu::Kind::device || kind == Gpu::Kind::mapped || kind == Gpu::Kind::locked);
  }
  bool is(Gpu::Kind wanted) const { return gpu && kind == wanted; }
  bool is_lent() const { return is(Gpu::Kind::device) || is(Gpu::Kind::mapped); }
};

MemoryEnd end_of(const std::string& memory) {
  MemoryEnd end;
  end.gpu = parse_gpu(memory, end.device, end.kind) && end.kind != Gpu::Kind::pinned;
  return end;
}

// "gpu:N" with the kind of --memory.
std::string made_of(const std::string& kind, const std::string& memory) {
  if (!end_of(memory).is(Gpu::Kind::device) || kind.empty() || kind == "device") return memory;
  if (kind == "managed") return memory + ":managed";
  return kind == "pageable" ? "host" : kind;  // pinned, shared
}

bool is_staged(const std::string& via) {
  return via == "staged" || via.starts_with("staged:");
}

Status contradicts(const std::string& words) {
  return {ErrorCode::invalid_argument, words};
}

// Ok, or why there is no such path between these memories.
Status fits(const Case& one) {
  const MemoryEnd from = end_of(one.from), to = end_of(one.to);
  const std::string named = fmt::format("{} to {}", one.from, one.to);
  if (one.via == "nvlink" || one.via == "pcie") {
    if (!from.is_lent() || !to.is_lent())
      return contradicts(
          fmt::format("--via {} is between the memories of two GPUs, and {} is not: take --local gpu:0 "
                      "--remote gpu:1, as --memory device makes them",
                      one.via, named));
    if (from.device == to.device)
      return contradicts(
          fmt::format("--via {} is between two GPUs, and {} is one: name another at one end", one.via, named));
  }
  if (one.via == "ipc" && !to.is(Gpu::Kind::device))
    return contradicts(
        fmt::format("--via ipc opens what the other process has of cudaMalloc, and its {} is none: take "
                    "--remote gpu:N and --memory device, or --via {}",
                    one.to, to.is(Gpu::Kind::mapped) ? "fd" : "shm"));
  if (one.via == "fd" && !to.is(Gpu::Kind::mapped))
    return contradicts(
        fmt::format("--via fd maps the other process's descriptor of GPU memory, and its {} has none: "
                    "take --remote gpu:N or gpu:N:mapped and --memory device, or --via {}",
                    one.to, to.is_device() ? "staged" : "shm"));
  if (is_staged(one.via) && !from.is_device() && !to.is_device())
    return contradicts(
        fmt::format("--via {} is for GPU memory that no CPU reaches, and neither end of {} is: take "
                    "--local or --remote gpu:N and --memory device, or --via {}",
                    one.via, named, one.via == "staged" ? "shm" : one.via.substr(7)));
  return {};
}

// Ok, or what links the two GPUs instead of NVLink or PCIe.
Status joined(const Case& one, const std::string& file) {
  const auto model = predict::open_model(file);
  if (!model) return model.status();
  const auto& machine = model->machine();
  predict::Endpoint ends[2];
  std::string unknown;
  const int devices[] = {end_of(one.from).device, end_of(one.to).device};
  for (std::size_t side = 0; side < 2; ++side) {
    const auto id = bus_id_of(devices[side]);
    if (!id) return id.status();
    const auto found = gpu_of(machine, devices[side]);
    if (!found) unknown = fmt::format(": gpu:{} at {} is not in it", devices[side], *id);
    if (found) ends[side] = *found;
  }
  topology::PathClass path;
  if (unknown.empty()) path = model->planner().path_class(predict::node_of(ends[0]), predict::node_of(ends[1]));
  if (path.kind == topology::PathKind::unknown)
    return {ErrorCode::unsupported,
            fmt::format("--via {}: what this machine is (`fairway topo`, --from FILE) does not say what joins gpu:{} "
                        "and gpu:{}{}; --via cuda goes over whatever does",
                        one.via, devices[0], devices[1], unknown)};
  const bool nvlink = path.kind == topology::PathKind::nvlink;
  if (nvlink == (one.via == "nvlink")) return {};
  if (nvlink)
    return {
        ErrorCode::unsupported,
        fmt::format("--via pcie: NVLink joins gpu:{} and gpu:{} ({}), and the driver sends all their traffic over it, "
                    "not over PCIe: take --via nvlink, or --via staged, which goes through host memory over PCIe",
                    devices[0], devices[1], path.to_string())};
  return {ErrorCode::unsupported,
          fmt::format("--via nvlink: gpu:{} and gpu:{} are joined by PCIe ({}) and not by NVLink: take --via pcie",
                      devices[0], devices[1], path.to_string())};
}

Case case_of(const std::string& via, const std::string& kind, const Wanted& wanted) {
  const std::string from = memory_of(via, made_of(kind, wanted.from)), to = memory_of(via, made_of(kind, wanted.to));
  Case one = make_case(via, from, to);
  one.transport = transport_of(via, from, to);
  one.memory = kind;
  return one;
}

}  // namespace

bool is_cuda_path(const std::string& via) {
  return via == "nvlink" || via == "pcie" || via == "ipc" || via == "fd";
}

std::string transport_of(const std::string& via, const std::string& from, const std::string& to) {
  if (is_cuda_path(via)) return "cuda";
  return via == "tcp" && (end_of(from).is_device() || end_of(to).is_device()) ? "staged:tcp" : via;
}

std::string memory_of(const std::string& via, const std::string& memory) {
  return via == "fd" && end_of(memory).is(Gpu::Kind::device) ? memory + ":mapped" : memory;
}

Result<std::vector<Case>> cases_of(const Wanted& wanted, const std::function<void(const std::string&)>& left_out) {
  const std::vector<std::string> none{""};
  const std::vector<std::string>& paths = wanted.via.empty() ? none : wanted.via;
  const std::vector<std::string>& kinds = wanted.memory.empty() ? none : wanted.memory;
  if (!wanted.memory.empty() && !end_of(wanted.from).is(Gpu::Kind::device) && !end_of(wanted.to).is(Gpu::Kind::device))
    return contradicts(
        fmt::format("--memory chooses the kind of memory of gpu:N, and neither {} nor {} is gpu:N: take --local or "
                    "--remote gpu:N",
                    wanted.from, wanted.to));
  std::vector<Case> cases;
  std::vector<Status> refused;
  for (const std::string& kind : kinds)
    for (const std::string& via : paths) {
      Case one = case_of(via, kind, wanted);
      Status status = fits(one);
      if (status && (via == "nvlink" || via == "pcie")) status = joined(one, wanted.machine);
      if (status)
        cases.push_back(std::move(one));
      else
        refused.push_back(std::move(status));
    }
  if (cases.empty()) return refused.front();
  for (const Status& each : refused) left_out("left out: " + each.message());
  return cases;
}

Status check_path(const Case& one, const Row& row) {
  const auto says = [&](const char* words) { return row.path_description.find(words) != std::string::npos; };
  bool right = true;
  if (one.via == "ipc") right = says("CUDA IPC");
  if (one.via == "fd") right = says("mapped descriptor");
  if (one.via == "nvlink" || one.via == "pcie") right = says("CUDA IPC") || says("mapped descriptor");
  if (is_staged(one.transport)) {
    const std::string under = one.transport == "staged" ? "shm" : one.transport.substr(7);
    right = row.path_description == "staged over " + under.substr(0, under.find(':'));
  }
  if (right) return {};
  return {
      ErrorCode::unsupported,
      fmt::format("--via {} was asked for, and {} of {} took another path (\"{}\"), so its figures are not reported: "
                  "`fairway explain` says why, and --remote names the other process's memory",
                  one.via, name_of(row.operation), size_text(row.size), row.path_description)};
}

}  // namespace fairway::tool::bench
