//! Entry points for fuzzers: plain functions, so that `cargo test` can replay their corpora.

use std::sync::LazyLock;

use crate::{
    Classifier, Diagnosis, Evidence, LabelledWindow, Meter, Metrics, PaperClassifier, Signature, TableReader,
    Verdict, parse_window_comment, read_labelled, read_line, write_labelled,
};

/// Reads each line of `data` as bits and as run lengths, and diagnoses each window with both
/// classifiers.
///
/// # Panics
/// If an assertion fails, which is a defect.
pub fn fuzz_line(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (paper, best) = &*SHIPPED;
    let (mut signature, mut meter) = (Signature::new(), Meter::new());
    for line in text.lines().take(LINES_MAX) {
        for window in [None, Some(20), Some(1000), Some(100_000)] {
            match read_line(line, window, &mut signature) {
                Ok(Some(read)) => {
                    assert!(window.is_none_or(|window| window == signature.packets()));
                    assert_written_again(&signature);
                    let metrics = meter.measure(&signature);
                    assert_sound(&paper.diagnose(&metrics), &metrics);
                    assert_sound(&best.diagnose(&signature, &metrics, &read.evidence), &metrics);
                }
                Ok(None) => {}
                Err(error) => assert!(error.to_string().len() < 600),
            }
        }
    }
}

/// Reads `data` as a model file of each classifier. An accepted model must give valid diagnoses,
/// and must be the same after it is written and read again.
///
/// # Panics
/// If an assertion fails, which is a defect.
pub fn fuzz_model(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(classifier) = PaperClassifier::read(text) {
        let written = classifier.write();
        assert_eq!(PaperClassifier::read(&written).map(|again| again.write()), Ok(written));
        windows(|_, metrics, _| assert_sound(&classifier.diagnose(metrics), metrics));
    }
    if let Ok(classifier) = Classifier::read(text) {
        let written = classifier.write();
        assert_eq!(Classifier::read(&written).map(|again| again.write()), Ok(written));
        windows(|signature, metrics, evidence| {
            assert_sound(&classifier.diagnose(signature, metrics, evidence), metrics);
        });
    }
}

/// Reads `data` as a table, and as labelled lines.
///
/// # Panics
/// If an assertion fails, which is a defect.
pub fn fuzz_table(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut meter = Meter::new();
    let mut table = None;
    for line in text.lines().take(LINES_MAX) {
        if let Ok(Some(header)) = TableReader::from_header(line) {
            table = Some(header);
        }
        let _ = parse_window_comment(line);
        for window in [20, 20_000] {
            let labelled = [
                table.as_ref().map(|table| table.read(line, window, &mut meter)),
                Some(read_labelled(line, Some(window), &mut meter)),
                Some(read_labelled(line, None, &mut meter)),
            ];
            for labelled in labelled.into_iter().flatten() {
                match labelled {
                    Ok(Some(window)) => {
                        assert_labelled(&window);
                        assert_line_read_back(&window, &mut meter);
                    }
                    Ok(None) => {}
                    Err(error) => assert!(error.to_string().len() < 600),
                }
            }
        }
    }
}

/// Checks the properties of every diagnosis.
///
/// # Panics
/// If an assertion fails, which is a defect.
pub fn assert_sound(diagnosis: &Diagnosis, metrics: &Metrics) {
    let Diagnosis { p_host, lost_host, lost_network, lost_unknown, verdict, .. } = *diagnosis;
    assert!((0.0..=1.0).contains(&p_host), "{diagnosis:?}");
    let lost = [lost_host, lost_network, lost_unknown].map(u64::from).iter().sum::<u64>();
    assert_eq!(lost, u64::from(metrics.lost), "{diagnosis:?}");
    match verdict {
        Verdict::Host => assert!(p_host >= 0.95 && metrics.lost > 0, "{diagnosis:?}"),
        Verdict::Network => assert!(1.0 - p_host >= 0.95 && metrics.lost > 0, "{diagnosis:?}"),
        Verdict::Hybrid => assert!(lost_host > 0 && lost_network > 0, "{diagnosis:?}"),
        Verdict::Inconclusive => {}
    }
    if metrics.na17 == 0 {
        assert_eq!(
            verdict,
            Verdict::Inconclusive,
            "a window of fewer than 17 packets has a verdict: {metrics:?}"
        );
    }
}

/// Checks that the gaps of a signature give the same signature.
fn assert_written_again(signature: &Signature) {
    let runs = signature.loss_runs().flat_map(|gap| [gap.received, gap.lost]);
    assert_eq!(Signature::from_runs(signature.packets(), runs).as_ref(), Ok(signature));
    assert_eq!(signature.loss_runs().map(|gap| gap.lost).sum::<u32>(), signature.lost());
}

/// Asserts that the line of a labelled window is read back.
fn assert_line_read_back(window: &LabelledWindow, meter: &mut Meter) {
    let line = write_labelled(window);
    let again = read_labelled(&line, Some(window.signature.packets()), meter).ok().flatten();
    let again = again.unwrap_or_else(|| panic!("not read back: {line:?}"));
    assert_eq!((&again.signature, again.cause), (&window.signature, window.cause));
    assert_eq!(again.evidence.host_drops, window.evidence.host_drops);
    assert_eq!(again.evidence.delay_s.is_some(), window.evidence.delay_s.is_some());
}

fn assert_labelled(window: &LabelledWindow) {
    assert_eq!(
        (window.metrics.packets, window.metrics.lost),
        (window.signature.packets(), window.signature.lost())
    );
    assert!(window.evidence.delay_s.is_none_or(|delay_s| delay_s >= 0.0 && delay_s.is_finite()));
    assert!(window.evidence.burst != Some(0));
}

/// Calls `ask` with various windows.
fn windows(mut ask: impl FnMut(&Signature, &Metrics, &Evidence)) {
    let mut meter = Meter::new();
    let known = Evidence { burst: Some(8), delay_s: Some(0.002), host_drops: Some(20), marks: Some(1) };
    for runs in
        [&[][..], &[0, 1000], &[500, 20], &[10, 1, 90, 1, 90, 1, 90, 3], &[0, 1, 1, 1, 1, 1], &[3, 900]]
    {
        for window in [16, 1000, 100_000] {
            let Ok(signature) = Signature::from_runs(window, runs.iter().copied()) else { continue };
            let metrics = meter.measure(&signature);
            let delayed = Evidence { delay_s: Some(0.0), ..Evidence::default() };
            for evidence in [Evidence::default(), delayed, known] {
                ask(&signature, &metrics, &evidence);
            }
        }
    }
}

/// The shipped models. They are read only once, because reading the models for each input would
/// take most of a fuzzer's time.
static SHIPPED: LazyLock<(PaperClassifier, Classifier)> =
    LazyLock::new(|| (PaperClassifier::shipped(), Classifier::shipped()));

/// Maximum number of lines of one input that are read; longer inputs do not find further defects.
const LINES_MAX: usize = 16;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn replay(folder: &str, fuzz: impl Fn(&[u8])) {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(folder);
        let mut replayed = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            fuzz(&std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed >= 8, "the corpus is there, not {replayed} files");
    }

    #[test]
    fn all_corpora_replay_without_panics() {
        replay("line", fuzz_line);
        replay("model", fuzz_model);
        replay("table", fuzz_table);
    }

    #[test]
    fn truncated_or_changed_shipped_models_cause_no_panic() {
        for model in [PaperClassifier::shipped().write(), Classifier::shipped().write()] {
            fuzz_model(model.as_bytes());
            let step = model.len() / 50 + 1;
            for at in (0..model.len()).step_by(step) {
                fuzz_model(&model.as_bytes()[..at]);
                for byte in *b"-9 .e\n=[" {
                    let mut changed = model.clone().into_bytes();
                    changed[at] = byte;
                    fuzz_model(&changed);
                }
            }
        }
    }
}
