//! Learns a model from the windows that earlier transfers kept.

use std::path::Path;
use std::sync::Arc;

use barograph_loss::{Classifier, Label, LabelledWindow, OwnModel, fit_own};
use barograph_transfer::LossClassification;
use barograph_transfer::files::WindowLog;

use crate::classify::read_windows;
use crate::problem::shown;

/// Learns a model from the windows in `directory`. Returns the default classifier if there are too
/// few windows, or if the model is not better than the shipped one. `report` gets a sentence about
/// the outcome.
pub(super) fn learn(directory: &Path, report: impl FnOnce(String)) -> Result<LossClassification, String> {
    let name = shown(directory);
    let log = WindowLog::open(directory).map_err(|error| error.to_string())?;
    let windows = newest(log.read(|| kept(directory)).map_err(|error| error.to_string())??);
    let own = match fit_own(&windows, &Classifier::shipped()) {
        Ok(own) => own,
        Err(error) => {
            report(format!("using the built-in model: cannot learn from {name} yet: {error}"));
            return Ok(LossClassification::Default);
        }
    };
    let OwnModel { ref own_scores, ref other_scores, .. } = own;
    let right = |share: f64| format!("{:.1} %", 100.0 * share);
    let (ours, shipped) = (right(own_scores.mean_right()), right(other_scores.mean_right()));
    let count = windows.len();
    if own.is_better() {
        report(format!(
            "using the model learned from {count} windows in {name}: on runs that were held back it is right for {ours} \
             of the windows, the built-in model for {shipped}"
        ));
        Ok(LossClassification::Model(Arc::new(own.classifier)))
    } else {
        report(format!(
            "using the built-in model: it is right for {shipped} of the windows in {name}, and the model learned from \
             {count} of them, on runs that were held back, for {ours}"
        ));
        Ok(LossClassification::Default)
    }
}

/// Reads all windows of the log in `directory`, the oldest first.
fn kept(directory: &Path) -> Result<Vec<LabelledWindow>, String> {
    let files = WindowLog::FILE_NAMES.map(|file| directory.join(file));
    // A file that was made but has no windows yet is no error.
    let files = files.into_iter().filter(|path| path.metadata().is_ok_and(|metadata| metadata.len() > 0));
    let mut windows = Vec::new();
    for path in files {
        windows.extend(read_windows(&path)?);
    }
    Ok(windows)
}

/// Keeps the newest windows of each cause. The windows are in the order in which they were kept.
fn newest(mut windows: Vec<LabelledWindow>) -> Vec<LabelledWindow> {
    let mut left = [Label::Host, Label::Network].map(|label| (label, WINDOWS_MAX));
    windows.reverse();
    windows.retain(|window| {
        let of_cause = left.iter_mut().find(|(label, _)| *label == window.cause);
        of_cause.is_some_and(|(_, left)| {
            let keeps = *left > 0;
            *left = left.saturating_sub(1);
            keeps
        })
    });
    windows
}

/// Largest number of windows of each cause from which a model is learned, so that `send` begins
/// soon.
const WINDOWS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Writes windows of `runs` runs of each cause, ten windows a run.
    fn write(directory: &Path, runs: u32) {
        let mut text = "# window 20000\n".to_owned();
        for run in 0..runs {
            for window in 0..10 {
                let (at, lost) = (500 + 97 * run + 31 * window, 60 + 7 * window + run);
                text += &format!(
                    "{at},{lost},4000,{}\tburst=4\tcause=cpu\tkind=observed\trun=h{run}\n",
                    lost + 9
                );
                let single = (0..30).map(|loss| format!("{},1", 200 + (loss * loss * 17 + at) % 400));
                let single = single.collect::<Vec<_>>().join(",");
                text += &format!("{single}\tburst=4\tcause=network\tkind=observed\trun=n{run}\n");
            }
        }
        std::fs::write(directory.join("windows.txt"), text).unwrap();
    }

    /// Writes windows of eight runs of each cause, ten windows a run. The host stalls for 5 to 9
    /// packets, which the built-in model was not fitted on.
    fn write_short_stalls(directory: &Path) {
        let stall = |noise| 5 + noise % 5;
        let single = |noise: u32| 1 + u32::from(noise.is_multiple_of(6));
        let causes: [(&str, &dyn Fn(u32) -> u32); 2] = [("cpu", &stall), ("network", &single)];
        let mut text = "# window 20000\n".to_owned();
        for (cause, length) in causes {
            for window in 0..80 {
                // A fixed scramble of the number of the window and of the loss.
                let noise = |at: u32| (window * 7919 + at * 104_729 + window * at * 31) % 1009;
                let losses = (0..12).map(|at| format!("{},{}", 300 + noise(at), length(noise(at + 40))));
                let losses = losses.collect::<Vec<_>>().join(",");
                text += &format!("{losses}\tburst=4\tcause={cause}\trun={cause}{}\n", window / 10);
            }
        }
        std::fs::write(directory.join("windows.txt"), text).unwrap();
    }

    #[test]
    fn a_model_that_is_better_is_used() {
        let root = tempfile::tempdir().unwrap();
        write_short_stalls(root.path());
        let mut said = String::new();
        let learned = learn(root.path(), |text| said = text).unwrap();
        assert_eq!(learned.name(), "model", "{said}");
        assert!(said.starts_with("using the model learned from 160 windows"), "{said}");
    }

    #[test]
    fn the_built_in_model_is_used_until_another_one_is_better() {
        let root = tempfile::tempdir().unwrap();
        let learned = || {
            let mut said = String::new();
            let name = learn(root.path(), |text| said = text).map(|classification| classification.name());
            (name, said)
        };
        let (name, said) = learned();
        assert!(name == Ok("default") && said.contains("cannot learn from"), "{name:?} {said}");
        // The built-in model is right for all of these windows, so no model is better.
        write(root.path(), 8);
        let (name, said) = learned();
        assert!(name == Ok("default") && said.contains("it is right for"), "{name:?} {said}");
        std::fs::write(root.path().join("windows.txt"), "# window 20000\n1,2\tcause=me\n").unwrap();
        let error = learned().0.unwrap_err();
        assert!(error.contains("windows.txt: line 2: cause is"), "{error}");
    }
}
