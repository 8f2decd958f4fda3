//! Loaded forms of quantities: measured while this host runs a bulk test.

use barograph_forecast::Quantity;

/// The quantity of values that are measured while this host runs a bulk test (invariant 5).
pub(crate) fn loaded_form(quantity: &Quantity) -> Quantity {
    Quantity::new(&format!("{quantity}{LOADED}")).unwrap_or(Quantity::RTT_LOADED)
}

/// The unit of a quantity; a loaded form has the unit of the plain form.
pub(crate) fn unit(quantity: &Quantity) -> &'static str {
    let plain = quantity.as_str().strip_suffix(LOADED).and_then(|word| Quantity::new(word).ok());
    plain.as_ref().unwrap_or(quantity).unit()
}

const LOADED: &str = "_loaded";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaded_measurements_form_separate_series() {
        assert_eq!(loaded_form(&Quantity::RTT), Quantity::RTT_LOADED);
        assert_eq!(loaded_form(&Quantity::CONNECT).as_str(), "connect_loaded");
    }
}
