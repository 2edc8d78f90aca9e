//! A hash table from anything to small numbers, four bytes an entry.

use std::hash::{BuildHasher, RandomState};

/// Hashing that differs from process to process, so that no file can be made to collide.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed {
    basis: u64,
    multiplier: u64,
}

impl Seed {
    pub(super) fn random() -> Self {
        let state = RandomState::new();
        Self { basis: state.hash_one(0), multiplier: state.hash_one(1) | 1 }
    }

    /// The hash of no bytes yet; goes on with [`Seed::step`] and ends with [`Seed::finish`].
    pub(super) fn start(self) -> u64 {
        self.basis
    }

    pub(super) fn step(self, hash: u64, byte: u8) -> u64 {
        (hash ^ u64::from(byte)).wrapping_mul(self.multiplier)
    }

    pub(super) fn finish(self, hash: u64) -> u64 {
        let mixed = (hash ^ hash >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ mixed >> 29
    }

    pub(super) fn bytes(self, bytes: &[u8]) -> u64 {
        self.finish(bytes.iter().fold(self.start(), |hash, &b| self.step(hash, b)))
    }

    pub(super) fn pair(self, left: u32, right: u32) -> u64 {
        let pair = u64::from(left) << 32 | u64::from(right);
        self.finish((pair ^ self.basis).wrapping_mul(self.multiplier))
    }
}

/// Open addressing over `u32`s: each slot holds a value and, in the bits that the value leaves, a part of its hash, so
/// that what is looked for and absent seldom costs a look at anything else.
#[derive(Debug)]
pub(super) struct SlotTable {
    slots: Vec<u32>,
    value_mask: u32,
}

const EMPTY: u32 = u32::MAX;

impl SlotTable {
    /// A table for `len` values below `values`.
    pub(super) fn new(len: usize, values: u32) -> Self {
        // All ones stay free for `EMPTY`.
        let value_mask = u32::MAX.checked_shr((values + 1).leading_zeros()).unwrap_or(0);
        Self { slots: vec![EMPTY; len + len / 3 + 1], value_mask }
    }

    fn first_slot(&self, hash: u64) -> usize {
        (((hash >> 32) * self.slots.len() as u64) >> 32) as usize
    }

    /// The value with this hash for which `is` holds.
    pub(super) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mark = hash as u32 & !self.value_mask;
        let (wrapped, from) = self.slots.split_at(self.first_slot(hash));
        for &slot in from.iter().chain(wrapped) {
            if slot == EMPTY {
                return None;
            }
            if slot & !self.value_mask == mark && is(slot & self.value_mask) {
                return Some(slot & self.value_mask);
            }
        }
        None
    }

    /// Adds a value; the caller has seen that it is not there yet, and that there is room.
    pub(super) fn insert(&mut self, hash: u64, value: u32) {
        let slot = hash as u32 & !self.value_mask | value;
        let first = self.first_slot(hash);
        let (wrapped, from) = self.slots.split_at_mut(first);
        if let Some(free) = from.iter_mut().chain(wrapped).find(|slot| **slot == EMPTY) {
            *free = slot;
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_found_and_nothing_else() {
        for len in [0_u32, 1, 2, 100, 5000] {
            let seed = Seed::random();
            let mut table = SlotTable::new(len as usize, len);
            for value in 0..len {
                table.insert(seed.pair(value, 7), value);
            }
            for value in 0..len {
                assert_eq!(table.find(seed.pair(value, 7), |v| v == value), Some(value));
                assert_eq!(table.find(seed.pair(value, 8), |v| v == value + len), None);
            }
        }
    }
}
