#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include <dlfcn.h>
#include <fmt/format.h>

#include "command.h"
#include "help.h"
#include "nccl_net/tables.h"

// `fairway nccl env`: the settings that make NCCL take its network traffic through the plugin of this build, after
// having loaded it as NCCL does.
namespace fairway::tool {
namespace {

namespace abi = nccl::abi;

constexpr const char* kLibrary = "libnccl-net-fairway.so";

struct NcclOptions {
  std::string plugin;
  bool everything = false;
  bool gpu_memory = false;
};

// The plugin beside the program, installed or built; empty if there is none.
std::string find_plugin() {
  std::error_code none;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  for (const char* folder : {"../" FAIRWAY_LIBRARY_FOLDER, "../plugins/nccl_net"}) {
    const auto path = std::filesystem::weakly_canonical(program / folder / kLibrary, none);
    if (std::filesystem::exists(path, none)) return path.string();
  }
  return {};
}

std::string& words() {  // the logger is a plain function
  static std::string text;
  return text;
}

void take_down(abi::LogLevel, unsigned long, const char*, int, const char* format, ...) {
  char line[2048];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  words() += std::string(line) + "\n";
}

// A shell comment of any text.
std::string comment(std::string_view text) {
  std::string out;
  for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    out += fmt::format("# {}\n", text.substr(at, end - at));
  }
  return out;
}

std::string describe(const abi::PropertiesV12& device, int number) {
  const bool gpu = (device.pointers & abi::kPointerCuda) != 0;
  return fmt::format("device {}: {}{}{}, {} memory, expected to reach {:.1f} GB/s\n", number, device.name,
                     device.pci_path != nullptr ? " at " : "", device.pci_path != nullptr ? device.pci_path : "",
                     gpu ? "GPU and host" : "host", device.speed / 8000.0);
}

// The plugin's report on this machine, in lines.
Result<std::string> try_out(const std::string& path, bool& gpu_memory) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return Status(ErrorCode::system_error, fmt::format("the plugin cannot be loaded: {}", ::dlerror()));
  for (const int version : {8, 9, 10, 11, 12})
    if (const auto name = fmt::format("ncclNetPlugin_v{}", version); ::dlsym(library, name.c_str()) == nullptr)
      return Status(ErrorCode::not_found, fmt::format("{} has no {}: is it Fairway's, of this version?", path, name));
  const auto& table = *static_cast<const abi::TableV12*>(::dlsym(library, "ncclNetPlugin_v12"));
  void* context = nullptr;
  abi::Config config{abi::kUndefined};
  if (table.init(&context, 0, &config, take_down, nullptr) != abi::kSuccess)
    return Status(ErrorCode::unsupported, "the plugin does not start:\n" + words());
  std::string text = words();
  int count = 0;
  (void)table.devices(&count);
  for (int number = 0; number < count; ++number) {
    abi::PropertiesV12 device{};
    if (table.properties(number, &device) != abi::kSuccess)
      return Status(ErrorCode::unsupported, fmt::format("device {} does not start:\n{}", number, words()));
    gpu_memory |= (device.pointers & abi::kPointerCuda) != 0;
    text += describe(device, number);
  }
  (void)table.finalize(context);
  return text;
}

// Quotes any text for a shell.
std::string quoted(std::string_view value) {
  std::string text = "'";
  for (const char letter : value) {
    if (letter == '\'') text += "'\\'";
    text += letter;
  }
  return text + "'";
}

Exit env(Tool& tool, const NcclOptions& options) {
  const std::string path = options.plugin.empty() ? find_plugin() : options.plugin;
  if (path.empty())
    return tool.fail(
        fmt::format("no {} beside this program: name it by --plugin, or build it (FAIRWAY_BUILD_NCCL_NET)", kLibrary));
  if (options.gpu_memory) ::setenv("FAIRWAY_GPU_MEMORY", "on", 1);
  bool gpu_memory = false;
  const auto said = try_out(path, gpu_memory);
  if (!said) return tool.fail(said.status());
  std::string text = comment(*said);
  const auto set = [&](const char* name, std::string_view value) {
    text += fmt::format("export {}={}\n", name, quoted(value));
  };
  set("NCCL_NET_PLUGIN", path);
  set("NCCL_NET", "Fairway");
  if (options.gpu_memory && !gpu_memory) return tool.fail("the plugin cannot move GPU memory here:\n" + *said);
  if (gpu_memory) {
    text += "# GPU memory directly, on any GPU: only for programs that make no CUDA calls meanwhile\n";
    set("FAIRWAY_GPU_MEMORY", "on");
    set("NCCL_NET_GDR_LEVEL", "SYS");
    text +=
        "# chunks and channels that fill NVLink, as measured (docs/nccl.md); 32 MiB of GPU memory for each "
        "channel\n";
    set("NCCL_P2P_NET_CHUNKSIZE", "4194304");
    set("NCCL_BUFFSIZE", "33554432");
    set("NCCL_MIN_NCHANNELS", "16");
    set("NCCL_MIN_P2P_NCHANNELS", "16");
    set("NCCL_NCHANNELS_PER_NET_PEER", "16");
    // Only one engine can have a fixed port. The user's choice stays.
    if (std::getenv("FAIRWAY_ENGINES") == nullptr && std::getenv("FAIRWAY_LISTEN") == nullptr) {
      text += "# two engines, so that two of NCCL's threads move bytes at once\n";
      set("FAIRWAY_ENGINES", "2");
    }
    text += "# kernels loaded while others run can wait for each other\n";
    set("CUDA_MODULE_LOADING", "EAGER");
  }
  if (!gpu_memory && std::getenv("NCCL_PROTO") == nullptr) {  // one without LL128, or it would not have started
    text += "# LL128 needs 128-byte stores that stay whole; a copy by a CPU or the kernel does not give that\n";
    set("NCCL_PROTO", "^LL128");
  }
  if (options.everything) {
    text += "# traffic that NCCL would move itself within this host goes through the plugin too\n";
    set("NCCL_P2P_DISABLE", "1");
    set("NCCL_SHM_DISABLE", "1");
    set("NCCL_NVLS_ENABLE", "0");
  }
  return tool.print(text);
}

}  // namespace

void add_nccl(Tool& tool) {
  CLI::App& command = tool.add(Group::insight, "nccl", "Run NCCL, and PyTorch on it, over Fairway");
  CLI::App& settings = tool.add_below(command, "env", "Try the plugin and print the settings that make NCCL use it");
  settings.footer("Example:\n  eval \"$(fairway nccl env)\"");
  const auto options = std::make_shared<NcclOptions>();
  settings.add_option("--plugin", options->plugin, "Path of the plugin (default: the one installed with this program)")
      ->check(no_empty_name());
  settings.add_flag(
      "--gpu-memory", options->gpu_memory,
      "Move GPU memory directly, at NVLink's rate. Only for programs that make no CUDA calls while collectives "
      "run (nccl-tests; not PyTorch)");
  settings.add_flag("--everything", options->everything, "Also traffic that NCCL would move itself within this host");
  tool.on_run(settings, [&tool, options] { return env(tool, *options); });
}

}  // namespace fairway::tool
