/* The waiting losses of the UDT example, without UDT; scripts/test-c compiles and runs this. */
#include "../examples/pending_losses.h"

#include <cstdio>
#include <cstdlib>

static void check(bool holds, const char *what, int line) {
  if (!holds) {
    std::fprintf(stderr, "pending_losses.cpp:%d: does not hold: %s\n", line, what);
    std::exit(1);
  }
}
#define CHECK(holds) check((holds), #holds, __LINE__)

static const int64_t ROUND_TRIP_US = 30000;
static const int64_t LAST_US = ROUND_TRIP_US * PendingLosses::ROUND_TRIPS;

/* Stalls of a receiver: long runs. */
static void lose_in_stalls(PendingLosses &losses, int64_t now_us) {
  const int64_t runs[][2] = {{5000, 5120}, {9000, 9090}, {13000, 13160}, {17000, 17110}};
  for (const auto &run : runs) losses.lose(run[0], run[1], now_us);
}

/* A queue beside other flows: single packets at irregular distances. */
static void lose_at_random(PendingLosses &losses, int64_t now_us) {
  uint32_t state = 1;
  for (int64_t at = 3000; at < 19000; at += 20 + (state >> 16) % 200) {
    state = state * 1103515245 + 12345;
    losses.lose(at, at + 1, now_us);
  }
}

static void losses_wait_for_a_round_trip() {
  PendingLosses losses;
  CHECK(losses.poll(19000, 0, ROUND_TRIP_US) == PendingLosses::NOTHING);
  lose_in_stalls(losses, 0);
  CHECK(losses.is_pending() && losses.pending() == 480);
  CHECK(losses.poll(19000, ROUND_TRIP_US - 1, ROUND_TRIP_US) == PendingLosses::PENDING);
  CHECK(losses.diagnosis().packets == 0);
}

static void stalls_are_the_hosts_and_end_the_wait() {
  PendingLosses losses;
  lose_in_stalls(losses, 0);
  CHECK(losses.poll(19000, ROUND_TRIP_US, ROUND_TRIP_US) == PendingLosses::HOST);
  CHECK(losses.lost(PendingLosses::HOST) == 480 && losses.windows(BAROGRAPH_CPU) == 1);
  CHECK(losses.diagnosis().packets == 19000 && losses.diagnosis().lost == 480);
  CHECK(!losses.is_pending());
  CHECK(losses.poll(19000, LAST_US, ROUND_TRIP_US) == PendingLosses::NOTHING);
}

static void single_losses_at_random_are_the_networks() {
  PendingLosses losses;
  lose_at_random(losses, 0);
  int64_t pending = losses.pending();
  CHECK(losses.poll(19000, ROUND_TRIP_US, ROUND_TRIP_US) == PendingLosses::NETWORK);
  CHECK(losses.lost(PendingLosses::NETWORK) == pending && losses.lost(PendingLosses::HOST) == 0);
}

static void losses_of_both_causes_are_the_networks_too() {
  PendingLosses losses;
  lose_in_stalls(losses, 0);
  lose_at_random(losses, 0);
  CHECK(losses.poll(19000, LAST_US, ROUND_TRIP_US) != PendingLosses::HOST);
}

static void a_short_window_decides_nothing_and_its_losses_expire() {
  PendingLosses losses;
  losses.lose(500, 600, 0);
  CHECK(losses.poll(1500, ROUND_TRIP_US, ROUND_TRIP_US) == PendingLosses::PENDING);
  CHECK(losses.poll(1600, LAST_US - 1, ROUND_TRIP_US) == PendingLosses::PENDING);
  CHECK(losses.poll(1700, LAST_US, ROUND_TRIP_US) == PendingLosses::EXPIRED);
  CHECK(losses.lost(PendingLosses::EXPIRED) == 100);
}

static void a_loss_does_not_wait_longer_than_a_window() {
  PendingLosses losses;
  losses.lose(10000, 10001, 0);
  CHECK(losses.poll(10000 + PendingLosses::WINDOW - 1, 1, ROUND_TRIP_US) == PendingLosses::PENDING);
  PendingLosses::Answer answer = losses.poll(10000 + PendingLosses::WINDOW, 2, ROUND_TRIP_US);
  CHECK(answer == PendingLosses::NETWORK || answer == PendingLosses::EXPIRED);
}

static void the_deadline_counts_from_the_first_pending_loss() {
  PendingLosses losses;
  losses.lose(500, 600, 0);
  losses.lose(700, 710, LAST_US - 1);
  CHECK(losses.poll(1700, LAST_US, ROUND_TRIP_US) == PendingLosses::EXPIRED);
  losses.lose(1800, 1810, LAST_US);
  CHECK(losses.poll(1900, 2 * LAST_US - 1, ROUND_TRIP_US) == PendingLosses::PENDING);
}

static void losses_before_the_window_are_forgotten() {
  PendingLosses losses;
  lose_at_random(losses, 0);
  CHECK(losses.poll(19000, ROUND_TRIP_US, ROUND_TRIP_US) == PendingLosses::NETWORK);
  losses.lose(50000, 50120, LAST_US);
  losses.lose(55000, 55090, LAST_US);
  losses.lose(59000, 59160, LAST_US);
  CHECK(losses.poll(60000, 2 * LAST_US, ROUND_TRIP_US) == PendingLosses::HOST);
  CHECK(losses.diagnosis().packets == PendingLosses::WINDOW && losses.diagnosis().lost == 370);
  losses.lose(30000, 30001, 2 * LAST_US);
  CHECK(!losses.is_pending());
}

static void a_window_does_not_begin_within_a_run() {
  PendingLosses losses;
  losses.lose(9900, 10100, 0);
  losses.lose(15000, 15100, 0);
  losses.poll(30000, ROUND_TRIP_US, ROUND_TRIP_US);
  CHECK(losses.diagnosis().packets == 30000 - 10100 && losses.diagnosis().lost == 100);
}

static void what_is_reported_twice_counts_once() {
  PendingLosses losses;
  losses.lose(500, 600, 0);
  losses.lose(500, 600, 0);
  losses.lose(700, 700, 0);
  CHECK(losses.pending() == 100);
}

int main() {
  losses_wait_for_a_round_trip();
  stalls_are_the_hosts_and_end_the_wait();
  single_losses_at_random_are_the_networks();
  losses_of_both_causes_are_the_networks_too();
  a_short_window_decides_nothing_and_its_losses_expire();
  a_loss_does_not_wait_longer_than_a_window();
  the_deadline_counts_from_the_first_pending_loss();
  losses_before_the_window_are_forgotten();
  a_window_does_not_begin_within_a_run();
  what_is_reported_twice_counts_once();
  return 0;
}
