//! What one reduction computes: the element-wise maximum of all nodes' integers.

use anyhow::ensure;
use barograph_sim::Chance;

/// Each node's integers, and what each must send up.
#[derive(Debug)]
pub(crate) struct Round {
    /// The integers of each node.
    pub(crate) own: Vec<Vec<u32>>,
    /// The maxima of each node's subtree; those of node 0 are the result.
    pub(crate) expected: Vec<Vec<u32>>,
}

impl Round {
    /// Every round has other integers, so that a message of an earlier one would be told from its own.
    pub(crate) fn draw(nodes: usize, integers: usize, seed: u64, number: usize) -> Self {
        let of_node = |node: usize| {
            let mut draws = Chance::new(seed, ((number as u64) << 16) | node as u64);
            (0..integers).map(|_| (draws.bits() >> 32) as u32).collect()
        };
        let own: Vec<Vec<u32>> = (0..nodes).map(of_node).collect();
        let mut expected = own.clone();
        for child in (1..nodes).rev() {
            let (before, from) = expected.split_at_mut(child);
            raise(&mut before[(child - 1) / 2], &from[0]);
        }
        Self { own, expected }
    }
}

/// Raises each number to the other where that is larger; both are equally long.
pub(crate) fn raise(numbers: &mut [u32], others: &[u32]) {
    for (number, other) in numbers.iter_mut().zip(others) {
        *number = (*number).max(*other);
    }
}

/// As a message: four bytes a number, the least significant first.
pub(crate) fn encode(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// The numbers of a message, which must be so many.
pub(crate) fn decode(bytes: &[u8], count: usize) -> anyhow::Result<Vec<u32>> {
    ensure!(bytes.len() == 4 * count, "a message of {} bytes instead of {}", bytes.len(), 4 * count);
    let (fours, _) = bytes.as_chunks::<4>();
    Ok(fours.iter().map(|four| u32::from_le_bytes(*four)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_expects_the_maxima_of_all() {
        let round = Round::draw(7, 50, 3, 2);
        for i in 0..50 {
            let of = |nodes: &[usize]| nodes.iter().map(|node| round.own[*node][i]).max();
            assert_eq!(Some(round.expected[0][i]), of(&[0, 1, 2, 3, 4, 5, 6]));
            assert_eq!(Some(round.expected[2][i]), of(&[2, 5, 6]));
            assert_eq!(Some(round.expected[6][i]), of(&[6]));
        }
        assert_ne!(round.own, Round::draw(7, 50, 3, 3).own);
        assert_eq!(decode(&encode(&round.own[4]), 50).expect("its own"), round.own[4]);
        assert!(decode(&[0; 199], 50).is_err() && decode(&[0; 204], 50).is_err());
    }
}
