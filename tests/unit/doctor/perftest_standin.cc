// Plays perftest and taskset for confirm_test.cc: by the name it is started as. Its rates are those of a server whose
// GPUs and memory are slow across sockets.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

std::string after(int count, char** words, const char* flag) {
  for (int i = 1; i + 1 < count; ++i) {
    if (std::strcmp(words[i], flag) == 0) return words[i + 1];
  }
  return {};
}

sockaddr_in address_of(const std::string& port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  out.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port.c_str())));
  return out;
}

int serve(const std::string& port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  const auto address = address_of(port);
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || ::listen(socket, 1) != 0)
    return 1;
  return ::accept(socket, nullptr, nullptr) >= 0 ? 0 : 1;
}

// Devices mlx5_0 to 3 and GPUs 0 to 3 are of the first socket.
double gbps(const std::string& device, int gpu) {
  const bool first = device < "mlx5_4";
  if (gpu >= 0) return first == (gpu < 4) ? 380 : 124;
  const char* cpus = std::getenv("STANDIN_CPUS");
  const char* near = std::getenv(first ? "STANDIN_FIRST" : "STANDIN_SECOND");
  return cpus != nullptr && near != nullptr && std::strcmp(cpus, near) != 0 ? 250 : 390;
}

}  // namespace

int main(int count, char** words) {
  const std::string path = words[0];
  const auto name = path.substr(path.rfind('/') + 1);
  if (name == "taskset") {
    if (count < 4 || std::strcmp(words[1], "--cpu-list") != 0) return 2;
    ::setenv("STANDIN_CPUS", words[2], 1);
    ::execvp(words[3], words + 3);
    return 127;
  }
  int gpu = -1;
  for (int i = 1; i < count; ++i) {
    if (std::strncmp(words[i], "--use_cuda=", 11) == 0) gpu = std::atoi(words[i] + 11);
  }
  if (gpu >= 0 && std::getenv("STANDIN_NO_CUDA") != nullptr) {
    std::fprintf(stderr, "%s: unrecognized option '--use_cuda=%d'\n", name.c_str(), gpu);
    return 1;
  }
  const auto port = after(count, words, "-p");
  const auto device = after(count, words, "-d");
  if (std::strcmp(words[count - 1], "127.0.0.1") != 0) return serve(port);
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  const auto address = address_of(port);
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return 1;
  if (name == "ib_write_lat") {
    std::printf(
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n 64 200 1 9 2.0 2.1\n");
    return 0;
  }
  std::printf("                    RDMA_Write BW Test\n Dual-port       : OFF\t\tDevice         : %s\n",
              device.c_str());
  std::printf(" Number of qps   : 1\t\tTransport type : IB\n PCIe relax order: ON\n Mtu             : 4096[B]\n");
  std::printf(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n");
  std::printf(" 65536      5000             %.2f            %.2f            0.19\n", gbps(device, gpu),
              gbps(device, gpu));
  return 0;
}
