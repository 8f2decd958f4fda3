//! Which tests of a series of goodputs include slow start.

/// The newest tests of a series of goodputs, up to [`TESTS_MAX`].
///
/// Some tests of a series may include slow start, and others not: the stream of a test that is
/// usually long enough ended early once. The forecasts are of the whole series, and a forecast at
/// 0.5 is near the median of its values, so it is of the kind that more than half of the tests are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlowStarts {
    /// A bit for each test, the newest in the lowest one; set if the test includes slow start.
    included: u16,
    /// Number of tests that have a bit.
    tests: u8,
    /// Size of the newest test that includes slow start (bytes).
    bytes: Option<u64>,
}

impl SlowStarts {
    /// Learns a test: its size (bytes), if it includes slow start.
    pub(super) fn learn(&mut self, bytes: Option<u64>) {
        self.included = ((self.included << 1) | u16::from(bytes.is_some())) & NEWEST;
        self.tests = TESTS_MAX.min(self.tests + 1);
        self.bytes = bytes.or(self.bytes);
    }

    /// Size (bytes) of the newest test that includes slow start, if more than half of the tests do.
    pub(super) fn usual(&self) -> Option<u64> {
        let is_usual = u32::from(self.tests) < 2 * self.included.count_ones();
        self.bytes.filter(|_| is_usual)
    }

    /// Size (bytes) of the newest test, if it includes slow start.
    pub(super) fn newest(&self) -> Option<u64> {
        self.bytes.filter(|_| self.included & 1 == 1)
    }
}

/// Number of tests that decide: as many as the points that the period of a series is computed from,
/// and an odd number, so that a full set has a majority.
const TESTS_MAX: u8 = 9;
/// The bits of the tests that decide.
const NEWEST: u16 = (1 << TESTS_MAX) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn learnt(tests: &[Option<u64>]) -> SlowStarts {
        let mut slow_starts = SlowStarts::default();
        tests.iter().for_each(|bytes| slow_starts.learn(*bytes));
        slow_starts
    }

    #[test]
    fn more_than_half_of_the_newest_nine_tests_decide() {
        let (short, long) = (Some(1 << 20), None);
        for (tests, usual, newest) in [
            (vec![], None, None),
            (vec![short], short, short),
            (vec![long, short], None, short),
            (vec![long, short, short], short, short),
            (vec![short, long], None, None),
            ([vec![long; 20], vec![short; 4]].concat(), None, short),
            ([vec![long; 20], vec![short; 5]].concat(), short, short),
            ([vec![short; 20], vec![long; 4]].concat(), short, None),
            ([vec![short; 20], vec![long; 5]].concat(), None, None),
        ] {
            let slow_starts = learnt(&tests);
            assert_eq!((slow_starts.usual(), slow_starts.newest()), (usual, newest), "{tests:?}");
        }
        assert_eq!(learnt(&[Some(1000), Some(2000)]).usual(), Some(2000), "the newest size");
    }
}
