//! What the sender of a study knows about the causes of its losses.

use barograph_transfer::LossClassification;
use serde::{Deserialize, Serialize};

/// Evidence by which a sender finds the cause of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LossEvidence {
    /// The drop counter of the receiver's kernel, beside marks, delay and pattern.
    Counter,
    /// Marks, delay and pattern, without the counter.
    Pattern,
    /// Losses are not classified: all count as the network's.
    None,
}

impl LossEvidence {
    pub(crate) const ALL: [Self; 3] = [Self::Counter, Self::Pattern, Self::None];

    /// Name in tables and rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Pattern => "pattern",
            Self::None => "none",
        }
    }

    /// Whether losses are classified by cause.
    pub(crate) fn is_classified(self) -> bool {
        self != Self::None
    }

    /// Whether the receiver's kernel counts its drops for the sender.
    pub(crate) fn has_counter(self) -> bool {
        self == Self::Counter
    }

    pub(crate) fn classification(self) -> LossClassification {
        match self {
            Self::Counter => LossClassification::Default,
            Self::Pattern => LossClassification::Pattern,
            Self::None => LossClassification::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_in_tables_and_in_plans_of_processes() {
        for evidence in LossEvidence::ALL {
            let text = serde_json::to_string(&evidence).unwrap();
            assert_eq!(text, format!("\"{}\"", evidence.name()));
            assert_eq!(serde_json::from_str::<LossEvidence>(&text).unwrap(), evidence);
        }
    }

    #[test]
    fn only_the_pattern_is_classified_without_a_counter() {
        let without = LossEvidence::ALL.into_iter().filter(|evidence| !evidence.has_counter());
        let classified: Vec<_> = without.filter(|evidence| evidence.is_classified()).collect();
        assert_eq!(classified, [LossEvidence::Pattern]);
        assert_eq!(LossEvidence::Pattern.classification().name(), "pattern");
    }
}
