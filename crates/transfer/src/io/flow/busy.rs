//! Time for which a thread computed, or waited for a processor.

use std::fs;
use std::time::Duration;

/// The kernel's number of the calling thread; 0 on systems other than Linux.
pub(super) fn this_thread() -> i32 {
    #[cfg(target_os = "linux")]
    return nix::unistd::gettid().as_raw();
    #[cfg(not(target_os = "linux"))]
    0
}

/// Time for which a thread of this process computed, or waited for a processor that others used;
/// `None` if the kernel does not count these times.
///
/// If there are more runnable threads than processors, the CPU time alone does not show that
/// threads wait for a processor.
pub(super) fn busy(thread: i32) -> Option<Duration> {
    // The file does not exist for thread 0, because Linux has no thread 0.
    parse(&fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?)
}

/// Sum of the first two numbers of the text: the time on a processor and the time of waiting for a
/// processor, in nanoseconds (Linux, Documentation/scheduler/sched-stats.rst).
fn parse(text: &str) -> Option<Duration> {
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    let (on, waiting) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(Duration::from_nanos(on.saturating_add(waiting)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_includes_computing_and_waiting_for_a_processor() {
        assert_eq!(parse("458303 278846 3\n"), Some(Duration::from_nanos(737_149)));
        assert_eq!(parse("18446744073709551615 1 3"), Some(Duration::from_nanos(u64::MAX)));
        assert_eq!(parse("458303"), None);
        assert_eq!(parse("none 1 3"), None);
    }

    #[test]
    fn the_busy_time_of_a_thread_grows_while_the_thread_computes() {
        let thread = this_thread();
        let Some(before) = busy(thread) else {
            barograph_sim::report_skipped(
                "this kernel does not count what threads wait for processors (CONFIG_SCHEDSTATS)",
            );
            return;
        };
        let mut hash = blake3::Hasher::new();
        let block = vec![7; 1 << 20];
        let is_more = (0..1000).any(|_| {
            hash.update(&block);
            busy(thread).is_some_and(|after| before + Duration::from_millis(1) < after)
        });
        assert!(is_more);
    }
}
