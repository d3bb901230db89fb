//! Memory of large values, kept for the next ones: pages that were touched once are several times as fast.
//!
//! The pool belongs to a [`Memory`](super::Memory) and is the thread's own while a replay runs on it.

use rustc_hash::FxHashMap;
use std::cell::RefCell;

/// Smaller blocks are left to the allocator, which keeps them anyway.
const LARGE: usize = 1 << 14;

/// Free blocks by their length in words.
#[derive(Debug, Default)]
pub(super) struct Pool(FxHashMap<usize, Vec<Vec<u64>>>);

impl Pool {
    /// Bytes of the free blocks.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|(&len, blocks)| 8 * (len * blocks.len()) as u64).sum()
    }
}

thread_local! {
    static POOL: RefCell<Option<Pool>> = const { RefCell::new(None) };
}

/// Runs `work` with the blocks of `pool`, which holds those that are free afterwards.
pub(super) fn with<T>(pool: &mut Pool, work: impl FnOnce() -> T) -> T {
    struct Outer(Option<Pool>);
    impl Drop for Outer {
        fn drop(&mut self) {
            POOL.set(self.0.take());
        }
    }
    // Also when the work unwinds, for somebody interrupts it.
    let _outer = Outer(POOL.replace(Some(std::mem::take(pool))));
    let done = work();
    *pool = POOL.take().unwrap_or_default();
    done
}

/// The words of a value.
#[derive(Debug)]
pub(super) struct Words(Vec<u64>);

impl Words {
    pub(super) fn zeros(len: usize) -> Self {
        match free(len) {
            None => Self(vec![0; len]),
            Some(mut words) => {
                words.fill(0);
                Self(words)
            }
        }
    }

    pub(super) fn copy_of(source: &[u64]) -> Self {
        match free(source.len()) {
            None => Self(source.to_vec()),
            Some(mut words) => {
                words.copy_from_slice(source);
                Self(words)
            }
        }
    }
}

/// A free block of exactly `len` words.
fn free(len: usize) -> Option<Vec<u64>> {
    if len < LARGE { None } else { POOL.with_borrow_mut(|pool| pool.as_mut()?.0.get_mut(&len)?.pop()) }
}

impl Clone for Words {
    fn clone(&self) -> Self {
        Self::copy_of(&self.0)
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        let words = std::mem::take(&mut self.0);
        if words.len() >= LARGE {
            POOL.with_borrow_mut(|pool| {
                if let Some(pool) = pool {
                    pool.0.entry(words.len()).or_default().push(words);
                }
            });
        }
    }
}

impl AsRef<[u64]> for Words {
    fn as_ref(&self) -> &[u64] {
        &self.0
    }
}

impl AsMut<[u64]> for Words {
    fn as_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_zeroed_or_copied_and_stay_with_their_pool() {
        let mut pool = Pool::default();
        with(&mut pool, || {
            let mut first = Words::zeros(LARGE);
            first.as_mut()[7] = 3;
            let copy = first.clone();
            assert_eq!(copy.as_ref()[7], 3);
            drop(first);
            assert_eq!(Words::zeros(LARGE).as_ref(), vec![0; LARGE]);
            drop(Words::zeros(LARGE - 1));
        });
        assert_eq!(pool.0.values().map(Vec::len).sum::<usize>(), 2);
        drop(Words::zeros(LARGE));
        with(&mut pool, || assert_eq!(Words::zeros(LARGE).as_ref(), vec![0; LARGE]));
        assert_eq!(pool.0[&LARGE].len(), 2);
    }
}
