//! Sensors of the host: pure parsers of kernel files, and [`Sensors`], which reads the files.

mod cpu;
mod memory;

pub use cpu::{CpuError, CpuSensor, CpuTimes};
pub use memory::{MemoryError, available_bytes};

use barograph_forecast::{Failure, Outcome};

/// Reads `/proc` and returns outcomes. On a system without `/proc` every reading is a typed
/// failure.
#[derive(Debug, Default)]
pub struct Sensors {
    cpu: CpuSensor,
}

impl Sensors {
    /// Share of one processor that a new process would get (0 to 1) since the previous call;
    /// `None` at the first call, which only begins the interval.
    pub fn cpu_available(&mut self) -> Option<Outcome> {
        let outcome = kernel_text("/proc/stat").map(|text| self.cpu.observe(&text));
        match outcome {
            Ok(Ok(share)) => share.map(Outcome::Value),
            Ok(Err(_)) => Some(failed(Failure::InvalidResponse)),
            Err(failure) => Some(failed(failure)),
        }
    }

    /// Memory that a new process could use without swapping, in bytes.
    pub fn memory_free(&self) -> Outcome {
        match kernel_text("/proc/meminfo").map(|text| available_bytes(&text)) {
            Ok(Ok(bytes)) => Outcome::Value(bytes),
            Ok(Err(_)) => failed(Failure::InvalidResponse),
            Err(failure) => failed(failure),
        }
    }
}

#[cfg(target_os = "linux")]
fn kernel_text(path: &str) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|_| Failure::Local)
}

/// Systems without `/proc`: every reading fails with [`Failure::Local`].
#[cfg(not(target_os = "linux"))]
fn kernel_text(_path: &str) -> Result<String, Failure> {
    Err(Failure::Local)
}

fn failed(failure: Failure) -> Outcome {
    Outcome::Failed { failure, after_s: 0.0 }
}
