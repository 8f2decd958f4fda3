//! Memory that a new process could use without swapping, from `/proc/meminfo`.

/// Error: a text is not in the format of `/proc/meminfo`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The line `MemAvailable` is missing. Kernels before 3.14 do not write this line.
    #[error("/proc/meminfo has no line `MemAvailable`")]
    Missing,
    /// The line exists but is not a number of kB.
    #[error("/proc/meminfo: `{0}` is not a size in kB")]
    NotASize(String),
}

/// The kernel's own estimate of "how much memory is available for starting new applications,
/// without swapping" (proc_meminfo(5), `MemAvailable`), in bytes.
///
/// # Errors
/// [`MemoryError`] when the line is missing or is not a size.
pub fn available_bytes(text: &str) -> Result<f64, MemoryError> {
    let rest =
        text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).ok_or(MemoryError::Missing)?;
    let refuse = || MemoryError::NotASize(rest.trim().chars().take(40).collect());
    let size = rest.trim().strip_suffix("kB").ok_or_else(refuse)?;
    // f64 holds every whole number of bytes up to 8 PiB exactly.
    let kibibytes: u64 = size.trim().parse().map_err(|_| refuse())?;
    Ok(kibibytes as f64 * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sensor_reads_the_available_memory() {
        let text = "MemTotal:       16000000 kB\nMemFree:  1 kB\nMemAvailable:    8000000 kB\n";
        assert_eq!(available_bytes(text), Ok(8_192_000_000.0));
    }

    #[test]
    fn a_missing_or_invalid_memory_size_is_refused() {
        assert_eq!(available_bytes("MemFree: 1 kB"), Err(MemoryError::Missing));
        for bad in ["MemAvailable: kB", "MemAvailable: -1 kB", "MemAvailable: 5 MB", "MemAvailable:"] {
            assert!(matches!(available_bytes(bad), Err(MemoryError::NotASize(_))), "{bad}");
        }
    }
}
