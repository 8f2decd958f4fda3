//! The loss classifier of `barograph-loss` for C. The header `barograph_loss.h` beside this crate
//! documents each function.
//!
//! A window of packets goes in, a diagnosis comes out. The crate reads no socket and no kernel
//! counter: the caller passes everything in.
//!
//! Three types matter: [`LossWindow`], [`Evidence`] and [`Diagnosis`]. C sees the first as an
//! opaque pointer and the others as structs of the header.
//!
//! # Safety
//! One rule holds for all functions: a pointer is null, which every function handles without harm,
//! or it points to what its type says. A window must come from one of the functions
//! `barograph_loss_new…`, must not be freed yet, and must not be in use by another thread.
// Exported names, and pointers that only the caller can guarantee.
#![allow(unsafe_code)]

use std::ffi::c_char;
use std::{ptr, slice};

use barograph_loss::{Classifier, LossPattern, Meter, Metrics, PaperClassifier, Signature, Verdict};

/// A window of packets, with the meter and classifier for its diagnosis.
#[derive(Debug)]
pub struct LossWindow {
    signature: Signature,
    meter: Meter,
    classifier: AnyClassifier,
}

/// The classifier of a window.
#[derive(Debug)]
enum AnyClassifier {
    Default(Box<Classifier>),
    Paper(PaperClassifier),
}

/// What is known about a window beside its pattern; a value below 0, or NaN, = not known.
#[repr(C)]
#[derive(Debug)]
pub struct Evidence {
    burst: i64,
    host_drops: i64,
    marks: i64,
    delay_s: f64,
}

/// The cause of a window's losses, with the numbers of the header.
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

/// Creates a window without packets, with the model that comes with the library.
#[unsafe(no_mangle)]
pub extern "C" fn barograph_loss_new() -> *mut LossWindow {
    LossWindow::leaked(AnyClassifier::Default(Box::new(Classifier::shipped())))
}

/// Creates a window without packets, with the classifier of the paper.
#[unsafe(no_mangle)]
pub extern "C" fn barograph_loss_new_paper() -> *mut LossWindow {
    LossWindow::leaked(AnyClassifier::Paper(PaperClassifier::shipped()))
}

/// Creates a window without packets, with a fitted model: the `bytes` bytes of its file. Returns
/// null if they are no valid model. Then the reason is written to `error`, cut to `error_bytes`
/// bytes with its final NUL.
///
/// # Safety
/// `model` is null or points to `bytes` bytes; `error` is null or points to `error_bytes` bytes
/// that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn barograph_loss_new_with_model(
    model: *const c_char,
    bytes: usize,
    error: *mut c_char,
    error_bytes: usize,
) -> *mut LossWindow {
    let model: &[u8] = if model.is_null() {
        &[]
    } else {
        // SAFETY: not null, so it points to `bytes` bytes of the caller.
        unsafe { slice::from_raw_parts(model.cast::<u8>(), bytes) }
    };
    let text = str::from_utf8(model).map_err(|_| "not a valid model: expected UTF-8 text".to_owned());
    match text.and_then(|text| Classifier::read(text).map_err(|error| error.to_string())) {
        Ok(classifier) => LossWindow::leaked(AnyClassifier::Default(Box::new(classifier))),
        Err(reason) => {
            // SAFETY: null, or `error_bytes` bytes of the caller.
            unsafe { write_text(&reason, error, error_bytes) };
            ptr::null_mut()
        }
    }
}

/// Writes a text with a final NUL, cut between characters to `bytes` bytes.
///
/// # Safety
/// `to` is null or points to `bytes` bytes that may be written.
unsafe fn write_text(text: &str, to: *mut c_char, bytes: usize) {
    let Some(room) = bytes.checked_sub(1).filter(|_| !to.is_null()) else { return };
    let mut length = text.len().min(room);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    // SAFETY: `length` bytes and the NUL fit `bytes` bytes, and the text is not the caller's
    // memory.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), length);
        to.add(length).write(0);
    }
}

/// Frees a window.
///
/// # Safety
/// See the crate; the window must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn barograph_loss_free(window: *mut LossWindow) {
    if !window.is_null() {
        // SAFETY: `window` came from `Box::into_raw` in `LossWindow::leaked`, and the caller frees
        // it once.
        drop(unsafe { Box::from_raw(window) });
    }
}

/// Removes the packets, and keeps the memory.
///
/// # Safety
/// See the rule of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn barograph_loss_clear(window: *mut LossWindow) {
    // SAFETY: null, or a window of the caller that no other thread uses.
    if let Some(window) = unsafe { window.as_mut() } {
        window.signature.clear();
    }
}

/// Appends `received` packets that were received, then `lost` packets that were lost. Returns false
/// if they do not fit, or if there is no window; then nothing is appended.
///
/// # Safety
/// See the rule of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn barograph_loss_push(window: *mut LossWindow, received: u32, lost: u32) -> bool {
    // SAFETY: null, or a window of the caller that no other thread uses.
    let Some(window) = (unsafe { window.as_mut() }) else { return false };
    let room = Signature::PACKETS_MAX - window.signature.packets();
    let is_room = received.checked_add(lost).is_some_and(|more| more <= room);
    is_room && window.signature.push_received(received).is_ok() && window.signature.push_lost(lost).is_ok()
}

/// Writes the cause of the losses to `diagnosis`. Returns false if `window` or `diagnosis` is null.
///
/// # Safety
/// See the rule of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn barograph_loss_diagnose(
    window: *mut LossWindow,
    evidence: *const Evidence,
    diagnosis: *mut Diagnosis,
) -> bool {
    // SAFETY: each is null, or belongs to the caller and has its type. `diagnosis` is only written.
    let (window, evidence) = unsafe { (window.as_mut(), evidence.as_ref()) };
    let Some(window) = window.filter(|_| !diagnosis.is_null()) else { return false };
    let answer = window.diagnose(evidence);
    // SAFETY: `diagnosis` is not null and belongs to the caller.
    unsafe { diagnosis.write(answer) };
    true
}

impl AnyClassifier {
    fn diagnose(
        &self,
        signature: &Signature,
        metrics: &Metrics,
        evidence: &barograph_loss::Evidence,
    ) -> barograph_loss::Diagnosis {
        match self {
            Self::Default(classifier) => classifier.diagnose(signature, metrics, evidence),
            Self::Paper(classifier) => classifier.diagnose(metrics),
        }
    }
}

impl LossWindow {
    /// An empty window that the caller frees with [`barograph_loss_free`].
    fn leaked(classifier: AnyClassifier) -> *mut Self {
        Box::into_raw(Box::new(Self { signature: Signature::new(), meter: Meter::new(), classifier }))
    }

    fn diagnose(&mut self, evidence: Option<&Evidence>) -> Diagnosis {
        let metrics = self.meter.measure(&self.signature);
        let evidence = evidence.map(Evidence::known).unwrap_or_default();
        let found = self.classifier.diagnose(&self.signature, &metrics, &evidence);
        Diagnosis {
            p_cpu: found.p_host,
            packets: metrics.packets,
            lost: metrics.lost,
            lost_host: found.lost_host,
            lost_network: found.lost_network,
            lost_unknown: found.lost_unknown,
            verdict: match found.verdict {
                Verdict::Inconclusive => 0,
                Verdict::Host => 1,
                Verdict::Network => 2,
                Verdict::Hybrid => 3,
            },
            shape: match found.pattern {
                None => 0,
                Some(LossPattern::Outage) => 1,
                Some(LossPattern::Policer) => 2,
            },
            flags: flags(&found),
        }
    }
}

/// The evidence that was used and the remarks on it, one bit each, in the order of the header.
fn flags(diagnosis: &barograph_loss::Diagnosis) -> u32 {
    let found = diagnosis.evidence_used;
    [
        found.pattern,
        found.burst,
        found.delay,
        found.host_drops,
        found.marks,
        found.disbelieved,
        found.extrapolated,
        diagnosis.pattern == Some(LossPattern::Outage),
        diagnosis.pattern == Some(LossPattern::Policer),
    ]
    .into_iter()
    .enumerate()
    .fold(0, |flags, (bit, is_so)| flags | u32::from(is_so) << bit)
}

impl Evidence {
    fn known(&self) -> barograph_loss::Evidence {
        // A count above the length of the longest window means no more than that length.
        let count = |value: i64| u32::try_from(value.min(i64::from(u32::MAX))).ok();
        barograph_loss::Evidence {
            burst: count(self.burst).filter(|burst| *burst > 0),
            delay_s: Some(self.delay_s).filter(|delay| (0.0..f64::INFINITY).contains(delay)),
            host_drops: count(self.host_drops),
            marks: count(self.marks),
        }
    }
}
