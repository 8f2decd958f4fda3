//! The machine and system that a study ran on.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// Name and release of the kernel.
pub(crate) fn kernel() -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("{} {}", read("ostype").trim(), read("osrelease").trim()).trim().to_owned()
}

/// Number and model of the processors.
pub(crate) fn processors() -> String {
    let table = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = table.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("unknown model", |(_, model)| model.trim());
    format!("{} × {model}", std::thread::available_parallelism().map_or(1, usize::from))
}

pub(crate) fn memory() -> String {
    let table = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = table.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let kib: Option<f64> = total.and_then(|kib| kib.trim().parse().ok());
    kib.map_or_else(|| "unknown".to_owned(), |kib| format!("{:.1} GiB", kib / f64::from(1 << 20)))
}

/// The kernel's default congestion control for TCP.
pub(crate) fn congestion() -> String {
    let name = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
    name.trim().to_owned()
}

/// Load of the machine over the last minute.
pub(crate) fn load() -> String {
    let loads = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    loads.split(' ').next().unwrap_or_default().to_owned()
}

/// Time of the wall clock (s) since 1970.
pub(crate) fn now_s() -> anyhow::Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}
