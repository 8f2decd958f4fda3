//! Checks that lines are of one series: one quantity, from one source to one target.

use super::{InputError, MeasurementDetail, excerpt};

/// Quantity, source and target of the lines so far. A line that names none of them may belong to
/// any series.
#[derive(Clone, Debug, Default)]
pub(super) struct SeriesCheck {
    wanted: Option<String>,
    quantity: Option<String>,
    source: Option<String>,
    target: Option<String>,
}

impl SeriesCheck {
    /// Selects the lines of this quantity; `None` = the only quantity of the lines.
    pub(super) fn of_quantity(wanted: Option<&str>) -> Self {
        Self { wanted: wanted.map(str::to_owned), ..Self::default() }
    }

    pub(super) fn quantity(&self) -> Option<&str> {
        self.quantity.as_deref()
    }

    /// Whether a line is of the wanted quantity, or names no quantity.
    pub(super) fn is_wanted(&self, detail: &MeasurementDetail) -> bool {
        detail.quantity.as_ref().zip(self.wanted.as_ref()).is_none_or(|(named, wanted)| named == wanted)
    }

    /// Whether a failure is of this series: it names nothing else than the wanted quantity, or else
    /// that of the values so far, and their source and target.
    pub(super) fn is_same(&self, detail: &MeasurementDetail) -> bool {
        let agree = |known: Option<&String>, named: &Option<String>| {
            known.zip(named.as_ref()).is_none_or(|(known, named)| known == named)
        };
        agree(self.wanted.as_ref().or(self.quantity.as_ref()), &detail.quantity)
            && agree(self.source.as_ref(), &detail.source)
            && agree(self.target.as_ref(), &detail.target)
    }

    /// Whether a line is of this series; false if the line is of a quantity other than the wanted
    /// quantity.
    ///
    /// # Errors
    /// If the line is of a different series than the lines before it.
    pub(super) fn accepts(&mut self, detail: &MeasurementDetail) -> Result<bool, InputError> {
        let MeasurementDetail { quantity, source, target, .. } = detail;
        if !self.is_wanted(detail) {
            return Ok(false);
        }
        if let Some((before, quantity)) = keep_first(&mut self.quantity, quantity) {
            return Err(InputError::MixedQuantities { quantities: vec![before, quantity] });
        }
        let ends = [("source", &mut self.source, source), ("target", &mut self.target, target)];
        for (end, known, named) in ends {
            if let Some((before, next)) = keep_first(known, named) {
                return Err(InputError::MixedEndpoints {
                    end,
                    before: excerpt(&before),
                    next: excerpt(&next),
                });
            }
        }
        Ok(true)
    }

    /// The error for a series that has no line of the wanted quantity; `None` if the caller wanted
    /// no specific quantity.
    pub(super) fn missing_quantity(&self) -> Option<InputError> {
        self.wanted.clone().map(|quantity| InputError::NoSuchQuantity { quantity })
    }
}

/// Stores the first name in `known`; if `named` is a different name, returns both names.
fn keep_first(known: &mut Option<String>, named: &Option<String>) -> Option<(String, String)> {
    match (&*known, named) {
        (Some(before), Some(next)) if before != next => Some((before.clone(), next.clone())),
        (None, Some(_)) => {
            known.clone_from(named);
            None
        }
        _ => None,
    }
}
