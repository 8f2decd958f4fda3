// The worker of a page: timers and probes run here, so that drawing never delays a measurement.
