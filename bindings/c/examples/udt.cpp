// Tells of each window of a UDT4 transfer who lost its packets, beside UDT's own congestion control.
//
//     udt receive PORT                            reads all that comes
//     udt send HOST PORT MEGABYTES [MB/S]         sends that many, and a line for each window
//
// UDT calls a `CCC` for each loss report and acknowledgement, on one thread. What that tells, and what it cannot
// (docs/other-protocols.md): the pattern of losses, whose every gap is reported once; a round trip that the receiver
// measured, which grows with a queue as with a receiver that was stopped, so that it is shown and not fed as delay; no drops
// of the receiver's socket, no marks. UDT spaces its packets, but for a pair in sixteen: the burst is 1.

#include <netdb.h>
#include <udt/ccc.h>
#include <udt/udt.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "barograph_loss.h"

// As many as the model shipped was fitted for.
static const int64_t WINDOW = 20000;
static const int64_t SEQUENCE_MAX = 0x7fffffff;

class Watched : public CUDTCC {
 public:
  Watched() : window(barograph_loss_new()) {}
  ~Watched() { barograph_loss_free(window); }

  void init() {
    CUDTCC::init();
    first = m_iSndCurrSeqNo + INT64_C(1);
  }

  // One number is a packet; two, the first with its highest bit set, are a range. UDT has not yet looked at what came.
  void onLoss(const int32_t *list, int size) {
    CUDTCC::onLoss(list, size);
    for (int i = 0; i < size; i++) {
      int64_t from = place(list[i] & SEQUENCE_MAX), to = from;
      if (list[i] < 0) {
        if (++i == size) return;
        to = place(list[i]);
      }
      if (from < 0 || to < from || place(m_iSndCurrSeqNo) < to) return;  // before the window, or never sent
      lost[from] = std::max(lost[from], to + 1);
    }
  }

  // Packets before `next` have arrived, some of them sent again: what was lost of them has been reported.
  void onACK(int32_t next) {
    CUDTCC::onACK(next);
    if (round_trip_min == 0 || m_iRTT < round_trip_min) round_trip_min = m_iRTT;
    round_trip_max = std::max(round_trip_max, m_iRTT);
    while (place(next) >= WINDOW) tell();
  }

 private:
  // How many packets after the window's first, with numbers that begin again after 2^31.
  int64_t place(int64_t sequence) const {
    int64_t ahead = (sequence - first) & SEQUENCE_MAX;
    return ahead > SEQUENCE_MAX / 2 ? ahead - SEQUENCE_MAX - 1 : ahead;
  }

  void tell() {
    int64_t at = 0;
    std::map<int64_t, int64_t> later;
    for (const auto &gap : lost) {
      int64_t from = std::max(gap.first, at), to = std::min(gap.second, WINDOW);
      if (from < to) {
        barograph_loss_push(window, uint32_t(from - at), uint32_t(to - from));
        at = to;
      }
      if (gap.second > WINDOW) later[std::max(gap.first - WINDOW, INT64_C(0))] = gap.second - WINDOW;
    }
    barograph_loss_push(window, uint32_t(WINDOW - at), 0);

    barograph_evidence evidence = BAROGRAPH_NOTHING_KNOWN;
    evidence.burst = 1;
    barograph_diagnosis answer;
    barograph_loss_diagnose(window, &evidence, &answer);
    static const char *const VERDICTS[] = {"inconclusive", "cpu", "network", "hybrid"};
    std::printf("window %d: %u of %u lost, by the host %u, by the network %u, unknown %u: %s (p_cpu %.3f); round trip up to +%.1f ms\n",
                ++windows, answer.lost, answer.packets, answer.lost_host, answer.lost_network, answer.lost_unknown,
                VERDICTS[answer.verdict], answer.p_cpu, (round_trip_max - round_trip_min) / 1000.0);
    std::fflush(stdout);

    barograph_loss_clear(window);
    lost = later;
    first += WINDOW;
    round_trip_max = m_iRTT;
  }

  barograph_loss *window;
  std::map<int64_t, int64_t> lost;  // gaps, from their first packet to the one after their last
  int64_t first = 0;
  int windows = 0;
  int round_trip_min = 0, round_trip_max = 0;  // microseconds
};

static UDTSOCKET connection(const char *host, const char *port, int64_t bytes_per_second) {
  addrinfo hints = {}, *found;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = host ? 0 : AI_PASSIVE;
  if (getaddrinfo(host, port, &hints, &found) != 0) return UDT::INVALID_SOCK;
  UDTSOCKET socket = UDT::socket(found->ai_family, found->ai_socktype, found->ai_protocol);
  CCCFactory<Watched> watched;
  bool is_open;
  if (host) {
    UDT::setsockopt(socket, 0, UDT_CC, &watched, sizeof watched);
    if (bytes_per_second > 0) UDT::setsockopt(socket, 0, UDT_MAXBW, &bytes_per_second, sizeof bytes_per_second);
    is_open = UDT::connect(socket, found->ai_addr, found->ai_addrlen) != UDT::ERROR;
  } else {
    is_open = UDT::bind(socket, found->ai_addr, found->ai_addrlen) != UDT::ERROR && UDT::listen(socket, 1) != UDT::ERROR;
    if (is_open) socket = UDT::accept(socket, nullptr, nullptr);
  }
  freeaddrinfo(found);
  return is_open ? socket : UDT::INVALID_SOCK;
}

int main(int argc, char **argv) {
  bool is_sender = argc >= 5 && argv[1][0] == 's';
  if (!is_sender && argc != 3) return std::fprintf(stderr, "usage: udt receive PORT | udt send HOST PORT MEGABYTES [MB/S]\n"), 2;
  UDT::startup();
  UDTSOCKET socket = is_sender ? connection(argv[2], argv[3], argc > 5 ? std::atoll(argv[5]) * 1000000 : 0)
                               : connection(nullptr, argv[2], 0);
  if (socket == UDT::INVALID_SOCK) return std::fprintf(stderr, "%s\n", UDT::getlasterror().getErrorMessage()), 1;
  std::vector<char> block(1000000);
  for (int64_t left = is_sender ? std::atoll(argv[4]) : -1; left != 0; left -= is_sender) {
    int size = int(block.size()), done = 0;
    if (!is_sender && UDT::recv(socket, block.data(), size, 0) == UDT::ERROR) break;  // the sender closed it
    for (int sent; is_sender && done < size; done += sent) {
      if ((sent = UDT::send(socket, block.data() + done, size - done, 0)) == UDT::ERROR)
        return std::fprintf(stderr, "%s\n", UDT::getlasterror().getErrorMessage()), 1;
    }
  }
  UDT::close(socket);  // waits until all has arrived
  UDT::cleanup();
  return 0;
}
