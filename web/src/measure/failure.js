// Failures of an experiment: the failure words of docs/spec/api.md that a page can distinguish.

/** Failure words of a page. Their positions in this list are the codes of the history. */
export const FAILURES = Object.freeze(['refused', 'unreachable', 'reset', 'timed_out', 'garbage', 'declined', 'local']);

/** An experiment that failed. `failure` is one of `FAILURES`; the message is a sentence. */
export class ProbeError extends Error {
  name = 'ProbeError';

  constructor(failure, message) {
    super(message);
    this.failure = failure;
  }
}
