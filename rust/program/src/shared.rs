//! Lists that several bodies share.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// An immutable list with one owner or many. Its hash is computed once, so that a body of shared lists is interned
/// without reading them.
#[derive(Debug, Clone)]
pub struct Shared<T> {
    items: Arc<[T]>,
    hash: u64,
}

impl<T: Hash> From<Vec<T>> for Shared<T> {
    fn from(items: Vec<T>) -> Self {
        let mut hasher = rustc_hash::FxHasher::default();
        items.hash(&mut hasher);
        Self { hash: hasher.finish(), items: items.into() }
    }
}

impl<T: Hash + Copy> From<&[T]> for Shared<T> {
    fn from(items: &[T]) -> Self {
        let mut hasher = rustc_hash::FxHasher::default();
        items.hash(&mut hasher);
        Self { hash: hasher.finish(), items: items.into() }
    }
}

impl<T: Hash> FromIterator<T> for Shared<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        items.into_iter().collect::<Vec<T>>().into()
    }
}

impl<T: Hash> Default for Shared<T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T> Deref for Shared<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<'a, T> IntoIterator for &'a Shared<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl<T: Eq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && (Arc::ptr_eq(&self.items, &other.items) || self.items == other.items)
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}
