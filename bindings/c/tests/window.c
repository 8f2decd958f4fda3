/* What C sees of the classifier; scripts/test-c compiles it as C and as C++, and runs both. */
#include "barograph_loss.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(bool holds, const char *what, int line) {
  if (!holds) {
    fprintf(stderr, "window.c:%d: does not hold: %s\n", line, what);
    exit(1);
  }
}
#define CHECK(holds) check((holds), #holds, __LINE__)

/* The classifiers that a window can have. The models are those of the repository, from its root. */
static void check_classifiers(void) {
  static char model[1 << 16];
  char error[64];
  barograph_diagnosis answer;
  FILE *file = fopen("crates/loss/models/default.toml", "rb");
  CHECK(file != NULL);
  size_t bytes = fread(model, 1, sizeof model, file);
  fclose(file);
  barograph_evidence counted = BAROGRAPH_NOTHING_KNOWN;
  counted.host_drops = 0;

  barograph_loss *fitted = barograph_loss_new_with_model(model, bytes, NULL, 0);
  CHECK(fitted != NULL && barograph_loss_push(fitted, 9000, 40) && barograph_loss_push(fitted, 10960, 0));
  CHECK(barograph_loss_diagnose(fitted, &counted, &answer) && answer.verdict == BAROGRAPH_NETWORK);
  barograph_loss_free(fitted);

  CHECK(barograph_loss_new_with_model(model, bytes / 2, error, sizeof error) == NULL);
  CHECK(strncmp(error, "not a valid model: ", 19) == 0 && strlen(error) < sizeof error);
  CHECK(barograph_loss_new_with_model(NULL, 0, error, 4) == NULL);
  CHECK(strcmp(error, "not") == 0);

  /* The paper's classifier does not use the kernel's count. */
  barograph_loss *paper = barograph_loss_new_paper();
  CHECK(paper != NULL && barograph_loss_push(paper, 9000, 40) && barograph_loss_push(paper, 10960, 0));
  CHECK(barograph_loss_diagnose(paper, &counted, &answer));
  CHECK(answer.flags == BAROGRAPH_BY_PATTERN && answer.lost == 40);
  barograph_loss_free(paper);
}

int main(void) {
  check_classifiers();
  barograph_loss *window = barograph_loss_new();
  barograph_diagnosis answer;
  CHECK(window != NULL);

  /* Runs of 40 and of 1. */
  CHECK(barograph_loss_push(window, 9000, 40));
  CHECK(barograph_loss_push(window, 5000, 1));
  CHECK(barograph_loss_push(window, 5959, 0));
  CHECK(barograph_loss_diagnose(window, NULL, &answer));
  CHECK(answer.packets == 20000 && answer.lost == 41);
  CHECK(answer.lost_host + answer.lost_network + answer.lost_unknown == 41);
  CHECK(answer.p_cpu >= 0 && answer.p_cpu <= 1);
  CHECK(answer.verdict <= BAROGRAPH_HYBRID && answer.shape <= BAROGRAPH_POLICER);
  CHECK(answer.flags == BAROGRAPH_BY_PATTERN);

  /* What is said to be unknown is as nothing said. */
  barograph_evidence evidence = BAROGRAPH_NOTHING_KNOWN;
  barograph_diagnosis again;
  evidence.delay_s = NAN;
  CHECK(barograph_loss_diagnose(window, &evidence, &again));
  CHECK(again.p_cpu == answer.p_cpu && again.verdict == answer.verdict);

  /* What the answer rests on is told. */
  evidence.burst = 1;
  evidence.delay_s = 0.003;
  evidence.marks = 1;
  CHECK(barograph_loss_diagnose(window, &evidence, &again));
  CHECK(again.flags == (BAROGRAPH_BY_PATTERN | BAROGRAPH_BY_BURST | BAROGRAPH_BY_DELAY | BAROGRAPH_BY_MARKS));
  evidence.marks = INT64_MAX;
  CHECK(barograph_loss_diagnose(window, &evidence, &again));
  CHECK(again.flags & BAROGRAPH_DISBELIEVED);
  evidence.burst = evidence.marks = -1;
  evidence.delay_s = -1;

  /* The kernel's count decides the cause, and fields are where the header says. */
  evidence.host_drops = 41;
  CHECK(barograph_loss_diagnose(window, &evidence, &again));
  CHECK(again.verdict == BAROGRAPH_CPU && again.p_cpu >= 0.95);
  CHECK(again.lost_host == 41 && again.lost_network == 0 && again.lost_unknown == 0);
  CHECK(again.flags == BAROGRAPH_BY_HOST_DROPS);
  evidence.host_drops = 0;
  CHECK(barograph_loss_diagnose(window, &evidence, &again));
  CHECK(again.verdict == BAROGRAPH_NETWORK && again.lost_network == 41);

  /* A window that is full takes no more, and says so. */
  CHECK(!barograph_loss_push(window, BAROGRAPH_PACKETS_MAX, 0));
  CHECK(!barograph_loss_push(window, UINT32_MAX, UINT32_MAX));
  barograph_loss_clear(window);
  CHECK(barograph_loss_push(window, BAROGRAPH_PACKETS_MAX - 1, 1));
  CHECK(!barograph_loss_push(window, 0, 1));
  CHECK(barograph_loss_diagnose(window, NULL, &answer));
  CHECK(answer.packets == BAROGRAPH_PACKETS_MAX && answer.lost == 1);
  CHECK(answer.flags == (BAROGRAPH_BY_PATTERN | BAROGRAPH_EXTRAPOLATED));

  /* What a path that carries nothing for a while looks like, and a policer. */
  barograph_loss_clear(window);
  CHECK(barograph_loss_push(window, 9000, 700) && barograph_loss_push(window, 10300, 0));
  CHECK(barograph_loss_diagnose(window, NULL, &answer));
  CHECK(answer.flags == (BAROGRAPH_BY_PATTERN | BAROGRAPH_LIKE_OUTAGE) && answer.shape == BAROGRAPH_OUTAGE);
  barograph_loss_clear(window);
  for (int run = 0; run < 150; run++) CHECK(barograph_loss_push(window, 106, 1));
  evidence.host_drops = -1;
  evidence.delay_s = 0.000004;
  CHECK(barograph_loss_diagnose(window, &evidence, &answer));
  CHECK(answer.flags == (BAROGRAPH_BY_PATTERN | BAROGRAPH_BY_DELAY | BAROGRAPH_LIKE_POLICER));

  /* An empty window is no error, and nothing can be told of it. */
  barograph_loss_clear(window);
  CHECK(barograph_loss_diagnose(window, &evidence, &answer));
  CHECK(answer.packets == 0 && answer.lost == 0 && answer.verdict == BAROGRAPH_INCONCLUSIVE);

  CHECK(!barograph_loss_push(NULL, 1, 1));
  CHECK(!barograph_loss_diagnose(NULL, NULL, &answer));
  CHECK(!barograph_loss_diagnose(window, NULL, NULL));
  barograph_loss_clear(NULL);
  barograph_loss_free(NULL);
  barograph_loss_free(window);
  return 0;
}
