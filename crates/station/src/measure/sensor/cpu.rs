//! Share of one processor that a new process would get, from two readings of `/proc/stat`.
//!
//! The Network Weather Service computes this share for a single processor from vmstat's figures
//! (Wolski, Spring, Hayes: "Predicting the CPU Availability of Time-shared Unix Systems on the
//! Computational Grid", HPDC-8, 1999, equation 2):
//!
//! ```text
//! available = idle + user / (rp + 1) + (user · sys) / (rp + 1)
//! ```
//!
//! A new process gets the idle time and a fair share of what the `rp` runnable processes used; it
//! is entitled to system time only in proportion to the user share. This module counts in
//! *processors* rather than in shares of one, so the formula holds for any number of processors.
//! The result is limited to one processor, the most that a single thread can use. Time stolen by a
//! hypervisor is not available to any process. Quotas of control groups are not considered.

/// Processor time by use, in kernel ticks since boot, and the number of runnable processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTimes {
    /// User time and low-priority user time; both contain the time of virtual guests.
    pub user: u64,
    /// Kernel time, including the time of interrupts.
    pub system: u64,
    /// Idle time, including waits for devices: a processor that waits can run another process.
    pub idle: u64,
    /// Time taken by the hypervisor, in ticks.
    pub stolen: u64,
    /// Number of processors that are online.
    pub processors: u64,
    /// Number of runnable processes at the time of the reading, the reader included.
    pub runnable: u64,
}

/// Keeps the last reading and a smoothed count of runnable processes.
#[derive(Clone, Debug, Default)]
pub struct CpuSensor {
    last: Option<CpuTimes>,
    runnable_smoothed: Option<f64>,
}

/// Error: a text is not in the format of `/proc/stat`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuError {
    /// A required line is missing.
    #[error("/proc/stat has no line `{0}`")]
    Missing(&'static str),
    /// A field is not a number.
    #[error("/proc/stat: `{0}` is not a count")]
    NotACount(String),
}

impl CpuTimes {
    /// Reads the text of `/proc/stat` (proc_stat(5)).
    ///
    /// # Errors
    /// [`CpuError`] when a line is missing, or has a field that is not a number.
    pub fn parse(text: &str) -> Result<Self, CpuError> {
        let mut total = None;
        let mut processors = 0;
        let mut runnable = None;
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("cpu") => total = Some(words.map(count).collect::<Result<Vec<u64>, _>>()?),
                Some(word) if word.starts_with("cpu") => processors += 1,
                Some("procs_running") => runnable = words.next().map(count).transpose()?,
                _ => {}
            }
        }
        let total = total.ok_or(CpuError::Missing("cpu"))?;
        // Old kernels have fewer columns; a missing column counts as 0.
        let column = |index: usize| total.get(index).copied().unwrap_or(0);
        Ok(Self {
            user: column(0).saturating_add(column(1)),
            system: column(2).saturating_add(column(5)).saturating_add(column(6)),
            idle: column(3).saturating_add(column(4)),
            stolen: column(7),
            processors: u64::max(1, processors),
            runnable: runnable.ok_or(CpuError::Missing("procs_running"))?,
        })
    }
}

impl CpuSensor {
    /// Parses `text` and returns the share (0 to 1) over the time since the previous reading.
    ///
    /// `None` at the first reading, and when no tick passed between two readings.
    ///
    /// # Errors
    /// [`CpuError`] when the text cannot be read; the sensor is then unchanged.
    pub fn observe(&mut self, text: &str) -> Result<Option<f64>, CpuError> {
        let now = CpuTimes::parse(text)?;
        // Do not count the reader: it runs only while it reads, and does not compete with a new
        // process.
        let others = now.runnable.saturating_sub(1) as f64;
        let smoothed = match self.runnable_smoothed {
            Some(old) => old + RUNNABLE_GAIN * (others - old),
            None => others,
        };
        self.runnable_smoothed = Some(smoothed);
        let last = self.last.replace(now);
        Ok(last.and_then(|last| share(&last, &now, smoothed)))
    }
}

/// Computes the formula at the top of this file. A counter that decreased (a processor went
/// offline) counts as 0.
fn share(before: &CpuTimes, after: &CpuTimes, runnable: f64) -> Option<f64> {
    let user = after.user.saturating_sub(before.user) as f64;
    let system = after.system.saturating_sub(before.system) as f64;
    let idle = after.idle.saturating_sub(before.idle) as f64;
    let stolen = after.stolen.saturating_sub(before.stolen) as f64;
    let total = user + system + idle + stolen;
    if total <= 0.0 {
        return None;
    }
    let processors = after.processors as f64;
    let in_processors = |ticks: f64| processors * ticks / total;
    let busy = in_processors(user + system);
    // A snapshot may miss processes. The number of runnable processes was at least the number of
    // busy processors.
    let competitors = f64::max(runnable, busy);
    let user_weight = if user + system <= 0.0 { 0.0 } else { user / (user + system) };
    let fair = (in_processors(user) + user_weight * in_processors(system)) / (competitors + 1.0);
    Some((in_processors(idle) + fair).clamp(0.0, 1.0))
}

fn count(word: &str) -> Result<u64, CpuError> {
    word.parse().map_err(|_| CpuError::NotACount(word.chars().take(40).collect()))
}

/// Weight of the newest count of runnable processes. With a reading every 10 s the average forgets
/// half of a burst in about 25 s, close to the smoothing of `rp` in NWS.
const RUNNABLE_GAIN: f64 = 0.25;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn text(user: u64, system: u64, idle: u64, processors: usize, running: u64) -> String {
        let each: String = (0..processors).map(|i| format!("cpu{i} 0 0 0 0\n")).collect();
        format!("cpu  {user} 0 {system} {idle} 0 0 0 0 0 0\n{each}intr 5\nprocs_running {running}\n")
    }

    fn between(before: &str, after: &str) -> Option<f64> {
        let mut sensor = CpuSensor::default();
        assert_eq!(sensor.observe(before).unwrap(), None);
        sensor.observe(after).unwrap()
    }

    #[test]
    fn an_idle_host_gives_a_whole_processor() {
        let share = between(&text(0, 0, 0, 2, 1), &text(0, 0, 200, 2, 1)).unwrap();
        assert_eq!(share, 1.0);
    }

    #[test]
    fn one_busy_process_on_one_processor_leaves_half() {
        let share = between(&text(0, 0, 0, 1, 2), &text(100, 0, 0, 1, 2)).unwrap();
        assert!((share - 0.5).abs() < 1e-12, "{share}");
    }

    #[test]
    fn one_busy_process_on_two_processors_leaves_one() {
        assert_eq!(between(&text(0, 0, 0, 2, 2), &text(100, 0, 100, 2, 2)).unwrap(), 1.0);
    }

    #[test]
    fn two_busy_processes_on_two_processors_leave_two_thirds() {
        let share = between(&text(0, 0, 0, 2, 3), &text(200, 0, 0, 2, 3)).unwrap();
        assert!((share - 2.0 / 3.0).abs() < 1e-12, "{share}");
    }

    #[test]
    fn system_time_is_shared_by_the_user_fraction() {
        // Half user, half system, one processor, one process: 0.5/2 + 0.5·0.5/2 (HPDC-8, equation
        // 2).
        let share = between(&text(0, 0, 0, 1, 2), &text(50, 50, 0, 1, 2)).unwrap();
        assert!((share - 0.375).abs() < 1e-12, "{share}");
    }

    #[test]
    fn decreasing_or_constant_counters_do_not_break_the_sensor() {
        assert_eq!(between(&text(5, 5, 5, 1, 1), &text(5, 5, 5, 1, 1)), None);
        let share = between(&text(500, 0, 100, 1, 1), &text(0, 0, 200, 1, 1)).unwrap();
        assert_eq!(share, 1.0);
    }

    #[test]
    fn malformed_cpu_counters_return_a_named_error() {
        assert_eq!(CpuTimes::parse(""), Err(CpuError::Missing("cpu")));
        assert_eq!(CpuTimes::parse("cpu 1 2 3 4"), Err(CpuError::Missing("procs_running")));
        assert_eq!(CpuTimes::parse("cpu 1 x"), Err(CpuError::NotACount("x".into())));
        assert!(CpuTimes::parse("cpu 99999999999999999999999").is_err());
    }
}
