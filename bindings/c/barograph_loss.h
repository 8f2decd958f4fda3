/* Why packets were lost: by the receiving host, which did not read them in time, or by the network.
 *
 * Tell the fate of each packet of a window in the order they were sent, then ask:
 *
 *     barograph_loss *window = barograph_loss_new();
 *     barograph_loss_push(window, 9000, 40);          // 9000 received, then 40 lost
 *     barograph_loss_push(window, 10960, 0);
 *     barograph_diagnosis answer;
 *     if (barograph_loss_diagnose(window, NULL, &answer)) printf("%f\n", answer.p_cpu);
 *     barograph_loss_clear(window);                   // the next window, in the same memory
 *     barograph_loss_free(window);
 *
 * Windows of 20 000 packets and more tell best. No call blocks, and diagnosing allocates nothing; a window is used by one
 * thread at a time. NULL for a window is harmless. */
#ifndef BAROGRAPH_LOSS_H
#define BAROGRAPH_LOSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The most packets of a window. */
#define BAROGRAPH_PACKETS_MAX (UINT32_C(1) << 24)

typedef struct barograph_loss barograph_loss;

/* What is known of a window beside its pattern. Less than 0 = not known, which is no evidence either way: begin with
 * BAROGRAPH_NOTHING_KNOWN and never with zeros. */
typedef struct barograph_evidence {
  int64_t burst;      /* packets that the sender sends at once */
  int64_t host_drops; /* packets that the receiving socket dropped, by its kernel's count (Linux: SO_RXQ_OVFL). Of a socket
                         with UDP_GRO that counts buffers of up to 64 packets each: do not give it then, but the sum of the
                         lengths of those gaps over which it rose */
  int64_t marks;      /* packets that arrived marked as congested (RFC 3168) */
  double delay_s;     /* one-way delay just before the losses, above the path's minimum (s); a round trip is none */
} barograph_evidence;

#define BAROGRAPH_NOTHING_KNOWN {-1, -1, -1, -1.0}

enum { BAROGRAPH_INCONCLUSIVE, BAROGRAPH_CPU, BAROGRAPH_NETWORK, BAROGRAPH_HYBRID };
enum { BAROGRAPH_NO_SHAPE, BAROGRAPH_OUTAGE, BAROGRAPH_POLICER };

/* Flags of an answer: what it rests on, and what is to be said of it, as the command's `evidence` column does. */
enum {
  BAROGRAPH_BY_PATTERN = 1 << 0,
  BAROGRAPH_BY_BURST = 1 << 1,
  BAROGRAPH_BY_DELAY = 1 << 2,
  BAROGRAPH_BY_HOST_DROPS = 1 << 3,
  BAROGRAPH_BY_MARKS = 1 << 4,
  BAROGRAPH_DISBELIEVED = 1 << 5,  /* some of the evidence contradicts the rest, and was passed over */
  BAROGRAPH_EXTRAPOLATED = 1 << 6, /* the loss rate or window length is outside the range in which the pattern was tested */
  BAROGRAPH_LIKE_OUTAGE = 1 << 7,  /* as `shape` */
  BAROGRAPH_LIKE_POLICER = 1 << 8
};

typedef struct barograph_diagnosis {
  double p_cpu; /* the probability that a lost packet was lost by the host, 0 to 1; of the network it is the rest */
  uint32_t packets;
  uint32_t lost; /* = lost_host + lost_network + lost_unknown */
  uint32_t lost_host;
  uint32_t lost_network;
  uint32_t lost_unknown;
  uint32_t verdict; /* BAROGRAPH_CPU or BAROGRAPH_NETWORK with a probability of at least 0.95; HYBRID, INCONCLUSIVE */
  uint32_t shape;   /* what the window looks like, if like something */
  uint32_t flags;   /* a sum of the flags above; bits that have no name here may be set by a later version */
} barograph_diagnosis;

/* A window without packets, with the shipped model; never NULL. */
barograph_loss *barograph_loss_new(void);

/* The same, with the classifier of the paper, which uses the pattern of losses alone; never NULL. */
barograph_loss *barograph_loss_new_paper(void);

/* The same, with a model that `barograph classify fit --method default` wrote: the `bytes` bytes of its file. NULL = they
 * are no valid model; then the reason is written to `error`, cut to `error_bytes` with its final NUL. `error` may be NULL. */
barograph_loss *barograph_loss_new_with_model(const char *model, size_t bytes, char *error, size_t error_bytes);

void barograph_loss_free(barograph_loss *window);

/* Forgets the packets, and keeps the memory. */
void barograph_loss_clear(barograph_loss *window);

/* So many packets more that were received, and then so many that were lost. False = that would be more than
 * BAROGRAPH_PACKETS_MAX, and nothing is added. */
bool barograph_loss_push(barograph_loss *window, uint32_t received, uint32_t lost);

/* Writes the cause of the losses to `diagnosis`; `evidence` may be NULL. False = `window` or `diagnosis` is NULL. */
bool barograph_loss_diagnose(barograph_loss *window, const barograph_evidence *evidence, barograph_diagnosis *diagnosis);

#ifdef __cplusplus
}
#endif
#endif
