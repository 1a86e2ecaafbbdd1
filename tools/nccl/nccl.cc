#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include "bench/rows.h"
#include "command.h"
#include "help.h"
#include "key.h"
#include "nccl_net/tables.h"

// `fairway nccl env`: the settings that make NCCL take its network traffic through the plugin of this build, after
// having loaded it as NCCL does.
namespace fairway::tool {
namespace {

namespace abi = nccl::abi;

constexpr const char* kLibrary = "libnccl-net-fairway.so";

struct NcclOptions {
  std::string plugin;
  std::string key_file;
  bool one_host = false;
  bool everything = false;
  bool gpu_memory = false;
  bool json = false;
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

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

// Collects what the shell is to run, and what of it the plugin must see when it is tried here.
class Script {
 public:
  void say(std::string_view text) {
    text_ += comment(text);
    add("note", "", text);
  }
  void set(const char* name, std::string_view value) {
    text_ += fmt::format("export {}={}\n", name, quoted(value));
    names_ += fmt::format(" -x {}", name);
    add("variable", name, value);
  }
  void set_here_too(const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), 1);
    set(name, value);
  }
  // What ranks need, as mpirun takes it: with what was set for the plugin or NCCL before.
  [[nodiscard]] std::string for_mpirun() const {
    std::string all = names_;
    for (char** each = environ; *each != nullptr; ++each) {
      const std::string_view variable(*each);
      const auto option = fmt::format(" -x {}", variable.substr(0, variable.find('=')));
      const bool ours = variable.starts_with("FAIRWAY_") || variable.starts_with("NCCL_");
      if (ours && (all + " ").find(option + " ") == std::string::npos) all += option;
    }
    return all;
  }
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] std::string json() const { return bench::json_of("fairway-nccl-env", "fairway nccl env", rows_); }

 private:
  void add(const char* kind, const char* name, std::string_view value) {
    rows_.push_back({{"kind", kind, true}, {"name", name, true}, {"value", std::string(value), true}});
  }
  std::string text_, names_;
  std::vector<bench::Fields> rows_;
};

// Started by a launcher, so that others like it make their own environment.
bool is_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_STEP_ID", "LOCAL_RANK"})
    if (is_set(name)) return true;
  return false;
}

// The key by which ranks of other hosts know each other. Without one ranks listen on their own host alone.
Status add_key(const NcclOptions& options, Script& script) {
  const char* given = is_set("FAIRWAY_JOB_KEY") ? "FAIRWAY_JOB_KEY" : "FAIRWAY_JOB_KEY_FILE";
  const auto is_that_file = [&] {  // as of this command before, in the same shell
    return given == std::string_view("FAIRWAY_JOB_KEY_FILE") &&
           key_file_path(std::getenv(given)) == key_file_path(options.key_file);
  };
  if (options.one_host) {
    script.set_here_too("FAIRWAY_LISTEN", "127.0.0.1");
  } else if (!options.key_file.empty()) {
    if (is_set(given) && !is_that_file())
      return {ErrorCode::invalid_argument,
              fmt::format("{0} is set, and --key-file is given: unset {0}, or leave out --key-file", given)};
    const auto file = need_key_file(options.key_file);
    if (!file) return file.status();
    script.say(file->made ? "a new job key; every host needs this file, or a copy of it at the same place"
                          : "the job key of this file; every host needs it at the same place");
    if (file->others_can_read) script.say("others can read the key: chmod 600 " + file->path);
    script.set_here_too("FAIRWAY_JOB_KEY_FILE", file->path);
  } else if (is_set(given)) {
    script.say(fmt::format("the job key is what {} says; ranks listen where the others reach them", given));
  } else if (is_rank() || options.gpu_memory) {
    script.say("ranks of this host only. For several hosts: --key-file FILE, the same FILE for every rank");
  } else {
    const auto key = make_key();
    if (!key) return key.status();
    script.say("a new job key: ranks on several hosts need the same one, so run this once, before the launcher");
    script.set_here_too("FAIRWAY_JOB_KEY", *key);
  }
  return {};
}

void say_launchers(const NcclOptions& options, Script& script) {
  if (options.one_host || !(is_set("FAIRWAY_JOB_KEY") || is_set("FAIRWAY_JOB_KEY_FILE"))) return;
  script.say("srun hands all of it on, and torchrun does on its host; ssh does not. Open MPI:\n  mpirun" +
             script.for_mpirun());
  if (is_set("FAIRWAY_JOB_KEY"))
    script.say(
        "torchrun started by hand on each host: `fairway nccl env --key-file FILE` there, with one FILE for all");
}

Exit env(Tool& tool, const NcclOptions& options) {
  const std::string path = options.plugin.empty() ? find_plugin() : options.plugin;
  if (path.empty())
    return tool.fail(
        fmt::format("no {} beside this program: name it by --plugin, or build it (FAIRWAY_BUILD_NCCL_NET)", kLibrary));
  if (options.gpu_memory) ::setenv("FAIRWAY_GPU_MEMORY", "on", 1);
  // Only one engine can have a fixed port. The user's choice stays.
  const bool engines_open = std::getenv("FAIRWAY_ENGINES") == nullptr && std::getenv("FAIRWAY_LISTEN") == nullptr;
  bool gpu_memory = false;
  Script script;
  if (const Status status = add_key(options, script); !status) return tool.fail(status);
  const auto said = try_out(path, gpu_memory);
  if (!said) return tool.fail(said.status());
  if (options.gpu_memory && !gpu_memory) return tool.fail("the plugin cannot move GPU memory here:\n" + *said);
  script.set("NCCL_NET_PLUGIN", path);
  script.set("NCCL_NET", "Fairway");
  if (gpu_memory) {
    script.say("GPU memory directly, on any GPU: only for programs that make no CUDA calls meanwhile");
    script.set("FAIRWAY_GPU_MEMORY", "on");
    script.set("NCCL_NET_GDR_LEVEL", "SYS");
    script.say(
        "chunks and channels that fill NVLink, as measured (docs/nccl.md); 32 MiB of GPU memory for each channel");
    script.set("NCCL_P2P_NET_CHUNKSIZE", "4194304");
    script.set("NCCL_BUFFSIZE", "33554432");
    script.set("NCCL_MIN_NCHANNELS", "16");
    script.set("NCCL_MIN_P2P_NCHANNELS", "16");
    script.set("NCCL_NCHANNELS_PER_NET_PEER", "16");
    if (engines_open) {
      script.say("two engines, so that two of NCCL's threads move bytes at once");
      script.set("FAIRWAY_ENGINES", "2");
    }
    script.say("kernels loaded while others run can wait for each other");
    script.set("CUDA_MODULE_LOADING", "EAGER");
  }
  if (!gpu_memory && std::getenv("NCCL_PROTO") == nullptr) {  // one without LL128, or it would not have started
    script.say("LL128 needs 128-byte stores that stay whole; a copy by a CPU or the kernel does not give that");
    script.set("NCCL_PROTO", "^LL128");
  }
  if (options.everything) {
    script.say("traffic that NCCL would move itself within this host goes through the plugin too");
    script.set("NCCL_P2P_DISABLE", "1");
    script.set("NCCL_SHM_DISABLE", "1");
    script.set("NCCL_NVLS_ENABLE", "0");
  }
  say_launchers(options, script);
  if (!options.json) return tool.print(comment(*said) + script.text());
  std::istringstream lines(*said);
  for (std::string line; std::getline(lines, line);) script.say(line);
  return tool.print(script.json());
}

}  // namespace

void add_nccl(Tool& tool) {
  CLI::App& command = tool.add(Group::insight, "nccl", "Run NCCL, and PyTorch on it, over Fairway");
  CLI::App& settings = tool.add_below(command, "env", "Try the plugin and print the settings that make NCCL use it");
  command.footer("Example:\n  eval \"$(fairway nccl env)\"");
  settings.footer(
      "Examples:\n  eval \"$(fairway nccl env)\"                       once, before mpirun, srun or torchrun\n"
      "  eval \"$(fairway nccl env --key-file ~/job.key)\"  on each host, where nothing hands the environment on");
  const auto options = std::make_shared<NcclOptions>();
  settings.add_option("--plugin", options->plugin, "Path of the plugin (default: the one installed with this program)")
      ->check(no_empty_name());
  settings.add_flag(
      "--gpu-memory", options->gpu_memory,
      "Move GPU memory directly, at NVLink's rate. Only for programs that make no CUDA calls while collectives "
      "run (nccl-tests; not PyTorch)");
  settings
      .add_option("--key-file", options->key_file,
                  "The job key is in this file, the same on every host; made if there is none")
      ->check(no_empty_name());
  settings.add_flag("--one-host", options->one_host, "No key: ranks of other hosts cannot connect")
      ->excludes("--key-file");
  settings.add_flag("--json", options->json, "Print them as JSON, for what is no shell");
  settings.add_flag("--everything", options->everything, "Also traffic that NCCL would move itself within this host");
  tool.on_run(settings, [&tool, options] { return env(tool, *options); });
}

}  // namespace fairway::tool
