//! Options of `barograph send` for the classifier of losses.

use std::path::PathBuf;
use std::sync::Arc;

use barograph_loss::Classifier;
use barograph_transfer::LossClassification;
use barograph_transfer::files::WindowLog;
use clap::ValueEnum;

use super::learned::learn;
use crate::classify::read_model;

/// Classifier of losses, and the directory from which its model is learned.
#[derive(Debug, clap::Args)]
pub(crate) struct ClassificationArgs {
    /// Classifier of losses: how the sender finds out whether the receiver's CPU or the network
    /// lost a packet
    #[arg(long, value_name = "NAME", value_enum, default_value_t = ClassifierName::Default)]
    classifier: ClassifierName,
    /// Model from `barograph classify fit` to use instead of the built-in model
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Keep the patterns of losses in DIR, labelled by the receiver's drop counter, for
    /// `--classifier learned` and `barograph classify fit`; at most 8 MiB, the oldest are removed.
    /// The receiver decides about the labels: use it only with receivers that you trust
    #[arg(long, value_name = "DIR")]
    pub(crate) keep_windows: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ClassifierName {
    /// All evidence: the receiver's drop counter, congestion marks, delay, and the pattern of
    /// losses
    Default,
    /// As default, but the receiver's drop counter is ignored
    Pattern,
    /// The pattern of losses alone, as in the paper (Dickens §3)
    Paper,
    /// The receiver's drop counter alone; without it, all losses count as losses by the network
    Counter,
    /// None: all losses count as losses by the network
    None,
    /// As default, with a model learned from the windows in --keep-windows DIR, if it is better
    /// than the built-in model
    Learned,
}

impl ClassificationArgs {
    /// The classifier to use. Reads the model, or learns one; `report` gets a sentence about what
    /// was learned. Creates the directory for windows.
    pub(crate) fn classification(&self, report: impl FnOnce(String)) -> Result<LossClassification, String> {
        if let Some(directory) = &self.keep_windows {
            // Check now, so that the user gets the error before the transfer.
            WindowLog::open(directory).map_err(|error| error.to_string())?;
        }
        if let Some(path) = &self.model {
            if self.classifier != ClassifierName::Default {
                return Err(
                    "--model replaces the model of the default classifier: leave out --classifier".into()
                );
            }
            return Ok(LossClassification::Model(Arc::new(read_model(path, Classifier::read)?)));
        }
        Ok(match self.classifier {
            ClassifierName::Default => LossClassification::Default,
            ClassifierName::Pattern => LossClassification::Pattern,
            ClassifierName::Paper => LossClassification::Paper,
            ClassifierName::Counter => LossClassification::Counter,
            ClassifierName::None => LossClassification::None,
            ClassifierName::Learned => {
                let directory = self.keep_windows.as_deref();
                learn(directory.ok_or("--classifier learned needs --keep-windows DIR")?, report)?
            }
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    fn classification(words: &[&str]) -> Result<&'static str, String> {
        let command = ClassificationArgs::augment_args(clap::Command::new("send"));
        let matches = command.try_get_matches_from([&["send"][..], words].concat()).unwrap();
        let args = ClassificationArgs::from_arg_matches(&matches).unwrap();
        args.classification(|_| {}).map(|classification| classification.name())
    }

    #[test]
    fn each_classifier_has_the_name_of_its_option() {
        for name in ["default", "pattern", "paper", "counter", "none"] {
            assert_eq!(classification(&["--classifier", name]), Ok(name));
        }
        assert_eq!(classification(&[]), Ok("default"));
    }

    #[test]
    fn a_model_is_read_or_its_defect_is_named() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("model.toml");
        let name = path.to_str().unwrap();
        let missing = classification(&["--model", name]).unwrap_err();
        assert!(missing.starts_with(&format!("{name}: cannot be opened: ")), "{missing}");
        std::fs::write(&path, barograph_loss::PaperClassifier::shipped().write()).unwrap();
        let other = classification(&["--model", name]).unwrap_err();
        assert!(other.starts_with(&format!("{name}: not a valid model: `format` is not")), "{other}");
        std::fs::write(&path, Classifier::shipped().write()).unwrap();
        assert_eq!(classification(&["--model", name]), Ok("model"));
        assert!(classification(&["--model", name, "--classifier", "paper"]).is_err());
    }

    #[test]
    fn learning_needs_a_private_directory() {
        assert!(classification(&["--classifier", "learned"]).unwrap_err().contains("--keep-windows"));
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = classification(&["--keep-windows", file.to_str().unwrap()]).unwrap_err();
        assert!(error.contains("cannot be created"), "{error}");
    }
}
