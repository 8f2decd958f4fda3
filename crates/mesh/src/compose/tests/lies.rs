//! Robustness of composed estimates against one host that lies.

use super::*;

/// Factors by which a liar changes its measurements.
const LIES: [f64; 12] = [1e-70, 1e-5, 0.05, 0.1, 0.3, 0.6, 1.6, 3.0, 20.0, 100.0, 1e5, 1e70];

#[test]
fn false_values_of_one_host_hardly_change_the_estimates_of_other_hosts() {
    for what in [ComposedQuantity::Rtt, ComposedQuantity::Goodput] {
        for seed in 0..10 {
            let mut sites = Sites::new(seed);
            let taught = sites.taught(what, EVENLY);
            let legs = sites.legs(HOSTS + 1, 2 * HOSTS + 1, what);
            let of = |taught: &[Taught]| model(what, taught).estimate(&legs).unwrap();
            let honest = of(&taught);
            let width = |estimate: PathEstimate| (estimate.upper / estimate.lower).ln();
            for lie in LIES {
                let mut taught = taught.clone();
                // The liar is at the first site. The liar also invents tests with all hosts of
                // other sites, and legs of any uncertainty.
                let invented = (HOSTS..SITES * HOSTS).filter(|host| !host.is_multiple_of(HOSTS));
                for host in invented {
                    let legs = sites.legs(1, host, what);
                    taught.push(([1, host], legs, sites.path(sites.truth(1, host, what), what)));
                }
                for (_, legs, measured) in taught.iter_mut().filter(|(ends, ..)| ends.contains(&1)) {
                    measured.last *= lie;
                    legs[0].forecast.lower /= 1e3;
                }
                let lied = of(&taught);
                let moved = (lied.value / honest.value).ln().abs() / width(honest);
                let wider = width(lied) / width(honest);
                // Pairs with absurd values are ignored. A lie just within the believed range may
                // make the interval wider, but the estimate stays within the honest interval.
                let bounds = if (1e-3..1e3).contains(&lie) { (0.5, 2.5) } else { (0.3, 1.5) };
                assert!(
                    moved < bounds.0 && wider < bounds.1,
                    "{what:?} {seed} {lie:e}: by {moved}, {wider} as wide"
                );
            }
        }
    }
}

#[test]
fn false_losses_of_one_host_do_not_change_the_estimates() {
    let what = ComposedQuantity::Loss;
    let mut sites = Sites::new(1);
    let mut taught = sites.taught(what, EVENLY);
    let legs = sites.legs(HOSTS + 1, 2 * HOSTS + 1, what);
    let honest = model(what, &taught).estimate(&legs).unwrap();
    let of_liar = taught.iter_mut().filter(|(ends, ..)| ends.contains(&1));
    of_liar.for_each(|(.., measured)| *measured = lossy(1.0, 50));
    let lied = model(what, &taught).estimate(&legs).unwrap();
    assert!(
        (lied.value - honest.value).abs() < 0.01 && lied.upper <= honest.upper + 0.1,
        "{honest:?} {lied:?}"
    );
}

#[test]
fn pairs_of_a_single_host_do_not_train_the_model() {
    let legs = [around(1e8, 0.1), around(1e8, 0.1), around(1e8, 0.1)];
    let observation = |ends| PairObservation { ends, legs: &legs[..], measured: around(1e13, 0.1) };
    for what in [ComposedQuantity::Rtt, ComposedQuantity::Goodput] {
        let of_one = (1..100).map(|other| observation([0, other]));
        assert_eq!(CompositionModel::fit(what, of_one), CompositionModel::prior(what));
        let of_many = (1..100).map(|other| observation([other, other + 1]));
        assert_eq!(CompositionModel::fit(what, of_many).pairs(), 99);
    }
}
