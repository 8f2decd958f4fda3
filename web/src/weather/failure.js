// How an experiment can fail: the failure words of docs/spec/api.md, as far as a page can tell them apart.

/** The words that a page gives; codes of the history are their places in this list. */
export const FAILURES = Object.freeze(['refused', 'unreachable', 'reset', 'timed_out', 'garbage', 'declined', 'local']);

/** An experiment that failed: `failure` is one of `FAILURES`, the message a sentence. */
export class ProbeError extends Error {
  name = 'ProbeError';

  constructor(failure, message) {
    super(message);
    this.failure = failure;
  }
}
