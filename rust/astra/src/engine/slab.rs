//! Values with positions that are used again.

use std::ops::{Index, IndexMut};

/// Most values at a time: a position and the kind of an event share 32 bits.
const MOST: usize = 1 << 29;

#[derive(Debug, Clone)]
enum Place<T> {
    Value(T),
    /// The next free place.
    Free(u32),
}

/// A list of values; what is removed leaves its place to the next.
#[derive(Debug)]
pub(super) struct Slab<T> {
    places: Vec<Place<T>>,
    free: u32,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: u32::MAX }
    }
}

impl<T> Slab<T> {
    /// # Panics
    /// When more values are held than an event can name; memory ends before.
    pub(super) fn insert(&mut self, value: T) -> u32 {
        if self.free == u32::MAX {
            assert!(self.places.len() < MOST, "more than 2^29 things at a time");
            self.places.push(Place::Value(value));
            return self.places.len() as u32 - 1;
        }
        let at = self.free;
        if let Place::Free(next) = std::mem::replace(&mut self.places[at as usize], Place::Value(value)) {
            self.free = next;
        }
        at
    }

    /// # Panics
    /// When nothing is there.
    pub(super) fn remove(&mut self, at: u32) -> T {
        match std::mem::replace(&mut self.places[at as usize], Place::Free(self.free)) {
            Place::Value(value) => {
                self.free = at;
                value
            }
            Place::Free(_) => unreachable!("nothing at {at}"),
        }
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        match &self.places[at as usize] {
            Place::Value(value) => value,
            Place::Free(_) => unreachable!("nothing at {at}"),
        }
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        match &mut self.places[at as usize] {
            Place::Value(value) => value,
            Place::Free(_) => unreachable!("nothing at {at}"),
        }
    }
}
