//! The classifier of `barograph-loss` for C: `barograph_loss.h` beside this crate says what each function does.
//!
//! # Safety
//! One rule holds for all functions: a pointer is null, which each of them answers harmlessly, or it points to what its type says –
//! a window to one that [`barograph_loss_new`] made, that was not freed, and that no other thread uses meanwhile.
// Exported names, and pointers that only the caller can answer for.
#![allow(unsafe_code)]

use barograph_loss::{Classifier, Meter, Shape, Signature, Verdict};

/// A window of packets, and what it takes to judge it.
#[derive(Debug)]
pub struct Window {
    signature: Signature,
    meter: Meter,
    classifier: Classifier,
}

/// What is known of a window beside its pattern; less than 0, or NaN, = not known.
#[repr(C)]
#[derive(Debug)]
pub struct Evidence {
    burst: i64,
    host_drops: i64,
    marks: i64,
    delay_s: f64,
}

/// Who lost the packets of a window.
#[repr(C)]
#[derive(Debug)]
pub struct Diagnosis {
    p_cpu: f64,
    packets: u32,
    lost: u32,
    lost_host: u32,
    lost_network: u32,
    lost_unknown: u32,
    verdict: u32,
    shape: u32,
    flags: u32,
}

/// A window without packets, with the model that comes with the library.
#[unsafe(no_mangle)]
pub extern "C" fn barograph_loss_new() -> *mut Window {
    let window =
        Window { signature: Signature::new(), meter: Meter::new(), classifier: Classifier::shipped() };
    Box::into_raw(Box::new(window))
}

/// Frees a window.
///
/// # Safety
/// As the crate says; it is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn barograph_loss_free(window: *mut Window) {
    if !window.is_null() {
        // SAFETY: it came from `Box::into_raw` in `barograph_loss_new`, and the caller frees it once.
        drop(unsafe { Box::from_raw(window) });
    }
}

/// Forgets the packets, and keeps the memory.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn barograph_loss_clear(window: *mut Window) {
    // SAFETY: null, or a window of the caller's that nobody else uses.
    if let Some(window) = unsafe { window.as_mut() } {
        window.signature.clear();
    }
}

/// So many packets more that were received, and then so many that were lost. False = they do not fit, and nothing is added.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn barograph_loss_push(window: *mut Window, received: u32, lost: u32) -> bool {
    // SAFETY: null, or a window of the caller's that nobody else uses.
    let Some(window) = (unsafe { window.as_mut() }) else { return false };
    let room = Signature::PACKETS_MAX - window.signature.packets();
    let is_room = received.checked_add(lost).is_some_and(|more| more <= room);
    is_room && window.signature.push_received(received).is_ok() && window.signature.push_lost(lost).is_ok()
}

/// Says who lost the packets. False = there is no window, or no place for the answer.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn barograph_loss_diagnose(
    window: *mut Window,
    evidence: *const Evidence,
    diagnosis: *mut Diagnosis,
) -> bool {
    // SAFETY: each is null, or the caller's and of its type. What `diagnosis` points to is only written.
    let (window, evidence) = unsafe { (window.as_mut(), evidence.as_ref()) };
    let Some(window) = window.filter(|_| !diagnosis.is_null()) else { return false };
    let answer = window.diagnose(evidence);
    // SAFETY: it is not null, and the caller's.
    unsafe { diagnosis.write(answer) };
    true
}

impl Window {
    fn diagnose(&mut self, evidence: Option<&Evidence>) -> Diagnosis {
        let metrics = self.meter.measure(&self.signature);
        let evidence = evidence.map(Evidence::known).unwrap_or_default();
        let found = self.classifier.diagnose(&self.signature, &metrics, &evidence);
        Diagnosis {
            p_cpu: found.p_cpu,
            packets: metrics.packets,
            lost: metrics.lost,
            lost_host: found.lost_host,
            lost_network: found.lost_network,
            lost_unknown: found.lost_unknown,
            verdict: match found.verdict {
                Verdict::Inconclusive => 0,
                Verdict::Cpu => 1,
                Verdict::Network => 2,
                Verdict::Hybrid => 3,
            },
            shape: match found.shape {
                None => 0,
                Some(Shape::Outage) => 1,
                Some(Shape::Policer) => 2,
            },
            flags: flags(&found),
        }
    }
}

/// What the answer rests on, and what is to be said of it: a bit each, in the order of the header.
fn flags(diagnosis: &barograph_loss::Diagnosis) -> u32 {
    let found = diagnosis.found;
    [
        found.pattern,
        found.burst,
        found.delay,
        found.host_drops,
        found.marks,
        found.disbelieved,
        found.extrapolated,
        diagnosis.shape == Some(Shape::Outage),
        diagnosis.shape == Some(Shape::Policer),
    ]
    .into_iter()
    .enumerate()
    .fold(0, |flags, (bit, is_so)| flags | u32::from(is_so) << bit)
}

impl Evidence {
    fn known(&self) -> barograph_loss::Evidence {
        // Counts above those of the longest window say no more than its length does.
        let count = |value: i64| u32::try_from(value.min(i64::from(u32::MAX))).ok();
        barograph_loss::Evidence {
            burst: count(self.burst).filter(|burst| *burst > 0),
            delay_s: Some(self.delay_s).filter(|delay| (0.0..f64::INFINITY).contains(delay)),
            host_drops: count(self.host_drops),
            marks: count(self.marks),
        }
    }
}
