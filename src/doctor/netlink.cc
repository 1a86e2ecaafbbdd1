#include "doctor/netlink.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>

#include <fmt/format.h>
#include <linux/dcbnl.h>
#include <linux/devlink.h>
#include <linux/ethtool.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace fairway::doctor {
namespace {

Status refused(std::string_view what, int error) {
  return {error == EPERM || error == EACCES ? ErrorCode::access_denied : ErrorCode::unsupported,
          fmt::format("{}: {}", what, std::strerror(error))};
}

class Socket {
 public:
  Socket(int family, int type, int protocol) : fd_(::socket(family, type | SOCK_CLOEXEC, protocol)) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

template <class T>
T at(std::string_view bytes, std::size_t offset = 0) {
  T out{};
  if (offset + sizeof out <= bytes.size()) std::memcpy(&out, bytes.data() + offset, sizeof out);
  return out;
}

// Each attribute of a run of them: its type without flags, and its bytes.
using Take = std::function<void(std::uint16_t, std::string_view)>;
void each_attribute(std::string_view bytes, const Take& take) {
  while (bytes.size() >= sizeof(nlattr)) {
    const auto head = at<nlattr>(bytes);
    if (head.nla_len < sizeof(nlattr) || head.nla_len > bytes.size()) return;
    take(head.nla_type & NLA_TYPE_MASK, bytes.substr(sizeof(nlattr), head.nla_len - sizeof(nlattr)));
    const std::size_t step = NLA_ALIGN(head.nla_len);
    if (step >= bytes.size()) return;
    bytes.remove_prefix(step);
  }
}

std::string text_of(std::string_view bytes) {
  return std::string(bytes.substr(0, bytes.find('\0')));
}

void put(std::string& out, const void* bytes, std::size_t size) {
  out.append(static_cast<const char*>(bytes), size);
  out.resize(NLMSG_ALIGN(out.size()));
}

void put_attribute(std::string& out, std::uint16_t type, std::string_view text) {
  const nlattr head{static_cast<std::uint16_t>(sizeof(nlattr) + text.size() + 1), type};
  put(out, &head, sizeof head);
  put(out, std::string(text).c_str(), text.size() + 1);
}

// Sends one request and hands on what follows each answer's netlink header, until the last.
Status ask(int protocol, std::uint16_t type, bool dump, const std::string& body,
           const std::function<void(std::string_view)>& take) {
  const Socket socket(AF_NETLINK, SOCK_RAW, protocol);
  if (socket.get() < 0) return refused("netlink", errno);
  const timeval second{1, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
  std::string request;
  nlmsghdr head{};
  head.nlmsg_len = static_cast<std::uint32_t>(NLMSG_HDRLEN + body.size());
  head.nlmsg_type = type;
  head.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | (dump ? NLM_F_DUMP : 0));
  head.nlmsg_seq = 1;
  put(request, &head, sizeof head);
  request += body;
  if (::send(socket.get(), request.data(), request.size(), 0) < 0) return refused("netlink", errno);
  std::string buffer(std::size_t{1} << 17, '\0');
  for (;;) {
    const auto got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return refused("netlink", got == 0 ? EPIPE : errno);
    std::string_view rest(buffer.data(), static_cast<std::size_t>(got));
    while (rest.size() >= sizeof(nlmsghdr)) {
      const auto answer = at<nlmsghdr>(rest);
      if (answer.nlmsg_len < sizeof(nlmsghdr) || answer.nlmsg_len > rest.size()) break;
      const auto payload = rest.substr(NLMSG_HDRLEN, answer.nlmsg_len - NLMSG_HDRLEN);
      if (answer.nlmsg_type == NLMSG_DONE) return Status::ok();
      if (answer.nlmsg_type == NLMSG_ERROR) {
        const int error = -at<int>(payload);
        return error == 0 ? Status::ok() : refused("the kernel", error);
      }
      take(payload);
      if ((answer.nlmsg_flags & NLM_F_MULTI) == 0) return Status::ok();
      const std::size_t step = NLMSG_ALIGN(answer.nlmsg_len);
      if (step >= rest.size()) break;
      rest.remove_prefix(step);
    }
  }
}

std::string value_text(std::uint8_t type, std::string_view data, bool there) {
  constexpr std::uint8_t kU8 = 1;  // NLA_U8 and its kin, as the kernel's drivers name a parameter's type
  constexpr std::uint8_t kU16 = 2;
  constexpr std::uint8_t kU32 = 3;
  constexpr std::uint8_t kString = 5;
  constexpr std::uint8_t kFlag = 6;
  if (type == kFlag) return there ? "true" : "false";
  if (type == kU8 && !data.empty()) return std::to_string(at<std::uint8_t>(data));
  if (type == kU16 && data.size() >= 2) return std::to_string(at<std::uint16_t>(data));
  if (type == kU32 && data.size() >= 4) return std::to_string(at<std::uint32_t>(data));
  return type == kString ? text_of(data) : std::string();
}

}  // namespace

Result<std::map<std::string, std::uint64_t>> ethtool_statistics(const std::string& interface) {
  const Socket socket(AF_INET, SOCK_DGRAM, 0);
  if (socket.get() < 0) return refused("ethtool", errno);
  if (interface.size() >= IFNAMSIZ) return Status(ErrorCode::invalid_argument, interface + ": no interface's name");
  const auto call = [&](void* command) {
    ifreq request{};
    std::memcpy(request.ifr_name, interface.c_str(), interface.size());
    request.ifr_data = static_cast<char*>(command);
    return ::ioctl(socket.get(), SIOCETHTOOL, &request) == 0;
  };
  ethtool_drvinfo info{};
  info.cmd = ETHTOOL_GDRVINFO;
  if (!call(&info)) return refused("ethtool", errno);
  const std::size_t count = info.n_stats;
  constexpr std::size_t kMost = 65536;
  if (count == 0 || count > kMost) return Status(ErrorCode::unsupported, "ethtool: its driver has no statistics");
  // Words of 64 bits, so that both structures are aligned.
  std::vector<std::uint64_t> names((sizeof(ethtool_gstrings) + count * ETH_GSTRING_LEN) / 8 + 1);
  auto* strings = reinterpret_cast<ethtool_gstrings*>(names.data());
  strings->cmd = ETHTOOL_GSTRINGS;
  strings->string_set = ETH_SS_STATS;
  strings->len = info.n_stats;
  if (!call(strings)) return refused("ethtool", errno);
  std::vector<std::uint64_t> values(sizeof(ethtool_stats) / 8 + count + 1);
  auto* stats = reinterpret_cast<ethtool_stats*>(values.data());
  stats->cmd = ETHTOOL_GSTATS;
  stats->n_stats = info.n_stats;
  if (!call(stats)) return refused("ethtool", errno);
  const auto* name = reinterpret_cast<const char*>(names.data()) + sizeof(ethtool_gstrings);
  const auto* value = reinterpret_cast<const char*>(values.data()) + sizeof(ethtool_stats);
  std::map<std::string, std::uint64_t> out;
  for (std::size_t i = 0; i < std::min<std::size_t>(count, stats->n_stats); ++i) {
    std::uint64_t number = 0;
    std::memcpy(&number, value + i * 8, 8);
    out[text_of({name + i * ETH_GSTRING_LEN, ETH_GSTRING_LEN})] = number;
  }
  return out;
}

namespace {

// The bits of enum ethtool_link_mode_bit_indices that are a rate, from the first to the last of a run, and Mb/s. By
// number: the headers of a build know fewer than its kernel.
struct ModeBits {
  unsigned first, last;
  double mbps;
};
constexpr ModeBits kModeBits[] = {
    {0, 1, 10},         {2, 3, 100},        {4, 5, 1000},     {12, 12, 10000}, {15, 15, 2500},   {17, 17, 1000},
    {18, 20, 10000},    {21, 22, 20000},    {23, 26, 40000},  {27, 30, 56000}, {31, 33, 25000},  {34, 35, 50000},
    {36, 39, 100000},   {40, 40, 50000},    {41, 41, 1000},   {42, 46, 10000}, {47, 47, 2500},   {48, 48, 5000},
    {52, 56, 50000},    {57, 61, 100000},   {62, 66, 200000}, {67, 67, 100},   {68, 68, 1000},   {69, 73, 400000},
    {75, 79, 100000},   {80, 84, 200000},   {85, 89, 400000}, {90, 91, 100},   {93, 98, 800000}, {103, 108, 200000},
    {109, 114, 400000}, {115, 120, 800000},
};

double fastest_of(std::string_view words) {
  double mbps = 0;
  for (const auto& one : kModeBits) {
    for (auto bit = one.first; bit <= one.last; ++bit) {
      if ((at<std::uint32_t>(words, bit / 32 * 4) >> (bit % 32) & 1U) != 0) mbps = std::max(mbps, one.mbps);
    }
  }
  return mbps / 1000;
}

}  // namespace

LinkModes parse_link_modes(std::string_view settings) {
  LinkModes out;
  const auto head = at<ethtool_link_settings>(settings);
  if (settings.size() < sizeof head || head.link_mode_masks_nwords <= 0) return out;
  const auto bytes = static_cast<std::size_t>(head.link_mode_masks_nwords) * 4;
  if (settings.size() < sizeof head + 3 * bytes) return out;
  // Supported, advertised, and what the other end advertises.
  out.supported_gbps = fastest_of(settings.substr(sizeof head, bytes));
  out.partner_gbps = fastest_of(settings.substr(sizeof head + 2 * bytes, bytes));
  out.half_duplex = head.duplex == DUPLEX_HALF;
  out.negotiates = head.autoneg == AUTONEG_ENABLE;
  return out;
}

Result<LinkModes> link_modes(const std::string& interface) {
  const Socket socket(AF_INET, SOCK_DGRAM, 0);
  if (socket.get() < 0) return refused("ethtool", errno);
  if (interface.size() >= IFNAMSIZ) return Status(ErrorCode::invalid_argument, interface + ": no interface's name");
  // Three sets of at most 127 words, by the field's type.
  std::vector<std::uint64_t> words((sizeof(ethtool_link_settings) + 3 * 127 * 4) / 8 + 1);
  auto* settings = reinterpret_cast<ethtool_link_settings*>(words.data());
  // Asked with 0 words the kernel says how many it has, as a negative number.
  for (int round = 0; round < 2; ++round) {
    settings->cmd = ETHTOOL_GLINKSETTINGS;
    ifreq request{};
    std::memcpy(request.ifr_name, interface.c_str(), interface.size());
    request.ifr_data = reinterpret_cast<char*>(settings);
    if (::ioctl(socket.get(), SIOCETHTOOL, &request) != 0) return refused("ethtool", errno);
    if (settings->link_mode_masks_nwords >= 0) break;
    settings->link_mode_masks_nwords = static_cast<std::int8_t>(-settings->link_mode_masks_nwords);
  }
  return parse_link_modes({reinterpret_cast<const char*>(words.data()), words.size() * 8});
}

Result<std::array<bool, 8>> parse_lossless_priorities(std::string_view message) {
  Result<std::array<bool, 8>> out = Status(ErrorCode::unsupported, "the driver says nothing of PFC");
  if (message.size() < sizeof(dcbmsg)) return out;
  each_attribute(message.substr(NLMSG_ALIGN(sizeof(dcbmsg))), [&](std::uint16_t type, std::string_view bytes) {
    if (type != DCB_ATTR_IEEE) return;
    each_attribute(bytes, [&](std::uint16_t inner, std::string_view pfc) {
      if (inner != DCB_ATTR_IEEE_PFC || pfc.size() < 2) return;
      std::array<bool, 8> on{};
      const auto enabled = at<std::uint8_t>(pfc, offsetof(ieee_pfc, pfc_en));
      for (std::size_t i = 0; i < on.size(); ++i) on[i] = (enabled >> i & 1U) != 0;
      out = on;
    });
  });
  return out;
}

Result<std::array<bool, 8>> lossless_priorities(const std::string& interface) {
  std::string body;
  const dcbmsg head{AF_UNSPEC, DCB_CMD_IEEE_GET, 0};
  put(body, &head, sizeof head);
  put_attribute(body, DCB_ATTR_IFNAME, interface);
  Result<std::array<bool, 8>> out = Status(ErrorCode::unsupported, "the driver says nothing of PFC");
  const auto status = ask(NETLINK_ROUTE, RTM_GETDCB, false, body,
                          [&](std::string_view message) { out = parse_lossless_priorities(message); });
  if (!status) return status;
  return out;
}

std::vector<DeviceParameter> parse_device_parameters(std::string_view message) {
  std::vector<DeviceParameter> out;
  if (message.size() < GENL_HDRLEN) return out;
  std::string bus;
  std::string name;
  each_attribute(message.substr(GENL_HDRLEN), [&](std::uint16_t type, std::string_view bytes) {
    if (type == DEVLINK_ATTR_BUS_NAME) bus = text_of(bytes);
    if (type == DEVLINK_ATTR_DEV_NAME) name = text_of(bytes);
    if (type != DEVLINK_ATTR_PARAM) return;
    DeviceParameter parameter;
    std::uint8_t kind = 0;
    each_attribute(bytes, [&](std::uint16_t inner, std::string_view part) {
      if (inner == DEVLINK_ATTR_PARAM_NAME) parameter.name = text_of(part);
      if (inner == DEVLINK_ATTR_PARAM_TYPE) kind = at<std::uint8_t>(part);
      if (inner != DEVLINK_ATTR_PARAM_VALUES_LIST) return;
      // One for each time at which it can be set; the first is what holds.
      each_attribute(part, [&](std::uint16_t, std::string_view one) {
        if (!parameter.value.empty()) return;
        std::string_view data;
        bool there = false;
        each_attribute(one, [&](std::uint16_t field, std::string_view content) {
          if (field != DEVLINK_ATTR_PARAM_VALUE_DATA) return;
          data = content;
          there = true;
        });
        parameter.value = value_text(kind, data, there);
      });
    });
    parameter.device = bus + "/" + name;
    if (!parameter.name.empty()) out.push_back(std::move(parameter));
  });
  return out;
}

Result<std::vector<DeviceParameter>> device_parameters() {
  std::string body;
  genlmsghdr head{CTRL_CMD_GETFAMILY, 1, 0};
  put(body, &head, sizeof head);
  put_attribute(body, CTRL_ATTR_FAMILY_NAME, DEVLINK_GENL_NAME);
  std::uint16_t family = 0;
  auto status = ask(NETLINK_GENERIC, GENL_ID_CTRL, false, body, [&](std::string_view message) {
    if (message.size() < GENL_HDRLEN) return;
    each_attribute(message.substr(GENL_HDRLEN), [&](std::uint16_t type, std::string_view bytes) {
      if (type == CTRL_ATTR_FAMILY_ID) family = at<std::uint16_t>(bytes);
    });
  });
  if (!status || family == 0) return Status(ErrorCode::unsupported, "this kernel has no devlink");
  std::string dump;
  head = {DEVLINK_CMD_PARAM_GET, DEVLINK_GENL_VERSION, 0};
  put(dump, &head, sizeof head);
  std::vector<DeviceParameter> out;
  status = ask(NETLINK_GENERIC, family, true, dump, [&](std::string_view message) {
    for (auto& one : parse_device_parameters(message)) out.push_back(std::move(one));
  });
  if (!status) return status.with_context("devlink");
  return out;
}

}  // namespace fairway::doctor
